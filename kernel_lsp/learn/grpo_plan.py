"""Plan a run of reinforcement learning, and refuse what would teach cheating or cannot be done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError, WorkloadError
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.dataset import is_held_out
from kernel_lsp.learn.environment import require_telling, target_of
from kernel_lsp.learn.memory import Training, need
from kernel_lsp.learn.process import base_folder, require_name, require_same
from kernel_lsp.learn.training import GrpoJob
from kernel_lsp.model.adapters import Adapter, adapter_folder, base_identity, find_adapter
from kernel_lsp.model.endpoint import Endpoint, find_endpoint
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.mutation_testing import measure_strength
from kernel_lsp.refine.journal import kernel_key
from kernel_lsp.refine.run import require_gpu
from kernel_lsp.store.store import Store


@dataclass(frozen=True, slots=True)
class PlannedPolicy:
    """A run that can be begun or taken up.

    Attributes:
        job: what is trained.
        folder: of the adapter.
        targets: the kernels, as the job has them.
        seen: digests of kernels that the adapter it begins from was trained on.
        endpoint: of the base model's server.
        profile: of the model.
        base: sizes of the base model.
        gpu: that trains; None for the processor.
    """

    job: GrpoJob
    folder: Path
    targets: tuple[Target, ...]
    seen: tuple[str, ...]
    endpoint: Endpoint
    profile: Profile
    base: BaseModel
    gpu: Gpu | None

    @property
    def place(self) -> str:
        """Return where it trains, in words."""
        return self.gpu.name if self.gpu else "the processor"

    @property
    def training(self) -> Training:
        """Return what decides how much memory it takes: the longest conversation that the context allows."""
        return Training(self.job.rank, self.job.context, gpu=self.gpu is not None, answer=self.job.longest)

    @property
    def needed(self) -> float:
        """Return the bytes that training is estimated to take."""
        return need(self.base, self.training).total


def plan_grpo(
    kernels: Sequence[str],
    adapter: str,
    settings: Settings,
    steps: int,
    start: str | None = None,
    weights: Path | None = None,
) -> PlannedPolicy:
    """Return the run for some kernels.

    Args:
        kernels: `path` or `path::kernel`.
        adapter: a name for what is trained.
        settings: in force.
        steps: in all; a run that is taken up may be given more.
        start: name of the adapter that it begins from; None for a new one.
        weights: folder of the base model, instead of `model.weights`.

    Raises:
        ConfigurationError: a name, a kernel or a setting cannot be used, the server is elsewhere, or another training
            has the name.
        CannotJudgeError: there is no GPU, and `refine.untimed` is not set.
        ModelError: no server of the model is running, or there are no weights.
    """
    require_name(adapter)
    require_gpu(settings)
    targets = [target_of(kernel, settings) for kernel in kernels]
    keys = _keys(kernels, targets, settings)
    base = read_base_model(base_folder(weights, settings))
    endpoint = _local(find_endpoint(settings))
    profile = find_profile(endpoint.profile)
    begun = find_adapter(settings.paths.data, start) if start else None
    _require_base(base, begun)
    learn = settings.learn
    gpu = choose_gpu(learn.gpu or settings.gpu)
    job = GrpoJob(
        adapter=adapter,
        kernels=keys,
        weights=base.folder,
        base=base.identity,
        start=begun.weights if begun else None,
        begun=begun.card.content if begun else "",
        rank=begun.card.rank if begun else learn.rank,
        rate=learn.policy_rate,
        temperature=learn.temperature,
        gamma=learn.gamma,
        turns=learn.turns,
        trajectories=learn.trajectories,
        at_once=learn.kernels,
        longest=min(profile.drawing.max_tokens, endpoint.context or profile.drawing.max_tokens),
        context=endpoint.context or base.positions or 0,
        steps=steps,
        seed=0,
        gpu=gpu.uuid if gpu else None,
    )
    folder = adapter_folder(settings.paths.data, adapter)
    require_same(folder, job, moved=("weights", "start", "steps", "gpu"))
    seen = begun.card.kernels if begun else ()
    return PlannedPolicy(job, folder, tuple(targets), seen, endpoint, profile, base, gpu)


async def require_strong(
    planned: PlannedPolicy, settings: Settings, store: Store, show: Callable[[str], None] = lambda _: None
) -> None:
    """Check that the workloads catch most bugs, and trivial answers: a policy finds what passes, and is paid for it.

    Raises:
        WorkloadError: a workload lets a trivial answer pass, or catches fewer planted bugs than `learn.strength`.
    """
    for target in planned.targets:
        show(f"planting bugs in {target.source.path.name}")
        reports = await measure_strength([target.source], settings, store=store, workload=target.workload.source.path)
        for report in reports:
            if report.problem:
                raise WorkloadError(f"its strength cannot be measured: {report.problem}", target.source.path)
            require_telling(target, report.weak)
            if (score := report.score) is not None and score < settings.learn.strength:
                message = (
                    f"the workload catches {score:.0%} of planted bugs, and {settings.learn.strength:.0%} are needed"
                )
                fix = "`kernel-lsp check --strength` shows those that it misses; `learn.strength` is the limit."
                raise WorkloadError(message, target.workload.source.path, fix=fix)


def begin(planned: PlannedPolicy) -> None:
    """Write the job into its folder.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    try:
        (planned.folder / "steps").mkdir(parents=True, exist_ok=True, mode=0o700)
        planned.folder.chmod(0o700)
        (planned.folder / "job.json").write_text(planned.job.model_dump_json(indent=2), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The training cannot be kept: {error.strerror}", planned.folder) from None


def _keys(kernels: Sequence[str], targets: Sequence[Target], settings: Settings) -> tuple[str, ...]:
    """Return the kernels' digests; those that datasets hold out are refused, and so is one kernel under two names."""
    keys: dict[str, str] = {}
    for name, target in zip(kernels, targets, strict=True):
        key = kernel_key(target.baseline)
        if is_held_out(key, settings.learn.held_out):
            fix = "Leave it out; it is kept to compare models on. `learn.held_out` is the share of kernels that are."
            raise ConfigurationError("This kernel is held out of training", target.source.path, fix=fix)
        if key in keys:
            raise ConfigurationError(f"This kernel is the same as {keys[key]}", target.source.path)
        if not settings.learn.collect:
            raise ConfigurationError("`learn.collect` keeps this project's kernels out of training", target.source.path)
        keys[key] = name
    return tuple(keys)


def _local(endpoint: Endpoint) -> Endpoint:
    if not endpoint.local:
        fix = "Serve the model here: `kernel-lsp model serve FOLDER --adapters`."
        raise ConfigurationError("A policy is trained on a server of this machine only", fix=fix)
    return endpoint


def _require_base(base: BaseModel, begun: Adapter | None) -> None:
    if begun is not None and begun.card.base != base_identity(base.folder):
        fix = "Name the folder of its own base with `--weights`."
        raise ConfigurationError(f"`{begun.card.name}` is an adapter of another model", base.folder, fix=fix)
