"""Compare an adapter with its base through the judge, on kernels that it was not trained on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.session import Pools
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.learn.comparison import AdapterComparison, KernelResults, TrajectoryResult, compare, write_comparison
from kernel_lsp.learn.environment import KernelEnvironment, Memory, open_environment, target_of
from kernel_lsp.learn.rollout import Policy, Trajectory, rollout
from kernel_lsp.model.adapters import Adapter, find_adapter
from kernel_lsp.model.client import Limits, ModelClient
from kernel_lsp.model.endpoint import Endpoint, find_endpoint
from kernel_lsp.model.profile import find_profile
from kernel_lsp.refine.journal import kernel_key
from kernel_lsp.refine.run import require_gpu
from kernel_lsp.store.store import Store

Side = Literal["base", "adapter"]


@dataclass(frozen=True, slots=True)
class Trials:
    """How an adapter is compared: trajectories on each kernel, their turns, and the tokens that each may spend."""

    samples: int
    turns: int
    tokens: int


async def evaluate(
    name: str, kernels: Sequence[str], trials: Trials, settings: Settings, store: Store, show: Callable[[str], None]
) -> AdapterComparison:
    """Return the comparison of an adapter with its base, and keep it beside the adapter.

    Both sides draw from the same seeds, with the same limits, and are judged in one session of each kernel.

    Args:
        name: of the adapter.
        kernels: `path` or `path::kernel`.
        trials: on each kernel.
        settings: in force.
        store: takes verdicts and turns.
        show: called with what is being done.

    Raises:
        ConfigurationError: there is no such adapter, or a kernel is one that it was trained on.
        CannotJudgeError: there is no GPU, and `refine.untimed` is not set.
        KernelLspError: a kernel cannot be used, or the server failed.
    """
    adapter = find_adapter(settings.paths.data, name)
    targets = [target_of(kernel, settings) for kernel in kernels]
    _require_unseen(adapter, kernels, targets)
    require_gpu(settings)
    changed = settings.model_copy(update={"model": settings.model.model_copy(update={"adapter": name})})
    tuned = find_endpoint(changed)
    base = replace(tuned, model=await _base_name(tuned, settings), adapter=None)
    profile = find_profile(tuned.profile)
    drawing = profile.drawing
    found: list[KernelResults] = []
    gpu: str | None = None
    async with (
        Pools(settings) as pools,
        Policy(base, profile, drawing.temperature, drawing.top_p) as without,
        Policy(tuned, profile, drawing.temperature, drawing.top_p) as with_it,
    ):
        for kernel, target in zip(kernels, targets, strict=True):
            show(f"opening {kernel}")
            memory: Memory = {}
            async with open_environment(target, profile, settings, store, pools.now(), memory) as environment:
                gpu = environment.gpu.name if environment.gpu else None
                show(f"{kernel}: the base answers")
                before = await _side(environment, without, "base", adapter, trials)
                show(f"{kernel}: {name} answers")
                after = await _side(environment, with_it, "adapter", adapter, trials)
            found.append(KernelResults(kernel=kernel, base=before, adapter=after))
    comparison = compare(found, adapter=name, content=adapter.card.content, gpu=gpu, tokens=trials.tokens)
    write_comparison(adapter.folder, comparison)
    return comparison


async def _side(
    environment: KernelEnvironment, policy: Policy, side: Side, adapter: Adapter, trials: Trials
) -> tuple[TrajectoryResult, ...]:
    key = kernel_key(environment.target.baseline)[:12]
    done = await rollout(
        environment,
        policy,
        name=f"eval-{adapter.served}-{key}-{side}",
        trajectories=trials.samples,
        turns=trials.turns,
        seed=0,
        tokens=trials.tokens,
    )
    return tuple(_result(one) for one in done)


def _result(trajectory: Trajectory) -> TrajectoryResult:
    faster = [turn.outcome.speedup or 1.0 for turn in trajectory if turn.outcome.result == Outcome.FASTER]
    return TrajectoryResult(
        right=any(turn.outcome.right for turn in trajectory),
        speedup=max([1.0, *faster]),
        tokens=sum(len(turn.tokens) for turn in trajectory),
    )


def _require_unseen(adapter: Adapter, kernels: Sequence[str], targets: Sequence[Target]) -> None:
    """Check that no kernel was trained on, by its text without names and layout, and that none is named twice."""
    seen: dict[str, str] = {}
    for name, target in zip(kernels, targets, strict=True):
        key = kernel_key(target.baseline)
        if key in adapter.card.kernels:
            fix = "Compare on kernels of the dataset's `held-out.jsonl`, or others that it has not seen."
            raise ConfigurationError(f"`{adapter.card.name}` was trained on this kernel", target.source.path, fix=fix)
        if key in seen:
            fix = "Name each kernel once; names and layout make no other kernel."
            raise ConfigurationError(f"This kernel is the same as {seen[key]}", target.source.path, fix=fix)
        seen[key] = name


async def _base_name(endpoint: Endpoint, settings: Settings) -> str:
    """Return the name of the base model at the adapter's server: the first that it lists, if no setting says."""
    if settings.model.endpoint is not None and settings.model.name is not None:
        return settings.model.name
    async with ModelClient(endpoint, Limits()) as client:
        return (await client.models())[0]
