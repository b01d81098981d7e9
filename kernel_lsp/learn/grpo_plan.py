"""Plan a run of reinforcement learning, and refuse what would teach cheating or cannot be done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.base_model import BaseModel, read_base_model
from kernel_lsp.learn.memory import Training, need
from kernel_lsp.learn.process import base_folder, require_name, require_same
from kernel_lsp.learn.serving import local_endpoint
from kernel_lsp.learn.strength import strong_tasks
from kernel_lsp.learn.tasks import NoTask, PolicyTask, Tasks, as_begun, find_tasks, remember
from kernel_lsp.learn.training import GrpoJob
from kernel_lsp.model.adapters import Adapter, adapter_folder, base_identity, find_adapter
from kernel_lsp.model.endpoint import Endpoint
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.refine.run import require_gpu
from kernel_lsp.store.store import Store

_JOB = "job.json"


@dataclass(frozen=True, slots=True)
class PlannedPolicy:
    """A run that can be begun or taken up.

    Attributes:
        job: what is trained.
        folder: of the adapter.
        tasks: as the job has them.
        left_out: of the folders and variants, as they are no tasks.
        before: digests of kernels that the adapter it begins from was trained on.
        endpoint: of the base model's server.
        profile: of the model.
        base: sizes of the base model.
        gpu: that trains; None for the processor.
    """

    job: GrpoJob
    folder: Path
    tasks: tuple[PolicyTask, ...]
    left_out: tuple[NoTask, ...]
    before: tuple[str, ...]
    endpoint: Endpoint
    profile: Profile
    base: BaseModel
    gpu: Gpu | None

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the kernels with their workloads, as the job has them."""
        return tuple(task.target for task in self.tasks)

    @property
    def seen(self) -> frozenset[str]:
        """Return the digests of all kernels that the adapter will have been trained on."""
        return frozenset(self.before).union(*(task.kernels for task in self.tasks))

    @property
    def is_begun(self) -> bool:
        """True if its job was written before."""
        return (self.folder / _JOB).is_file()

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
    variants: int = 0,
) -> PlannedPolicy:
    """Return the run for some kernels.

    Args:
        kernels: `path`, `path::kernel`, a capture, or a folder (`find_tasks`).
        adapter: a name for what is trained.
        settings: in force.
        steps: in all; a run that is taken up may be given more.
        start: name of the adapter that it begins from; None for a new one.
        weights: folder of the base model, instead of `model.weights`.
        variants: of each kernel, with other sizes, at most.

    Raises:
        ConfigurationError: a name, a kernel or a setting cannot be used, the server is elsewhere, or another training
            has the name.
        CannotJudgeError: there is no GPU, and `refine.untimed` is not set.
        ModelError: no server of the model is running, or there are no weights.
    """
    require_name(adapter)
    require_gpu(settings)
    folder = adapter_folder(settings.paths.data, adapter)
    found = as_begun(folder, find_tasks(kernels, settings, variants))
    base = read_base_model(base_folder(weights, settings))
    endpoint = local_endpoint(settings)
    profile = find_profile(endpoint.profile)
    begun = find_adapter(settings.paths.data, start) if start else None
    _require_base(base, begun)
    learn = settings.learn
    gpu = choose_gpu(learn.gpu or settings.gpu)
    job = GrpoJob(
        adapter=adapter,
        kernels=tuple(task.key for task in found.tasks),
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
    require_same(folder, job, moved=("weights", "start", "steps", "gpu"))
    before = begun.card.kernels if begun else ()
    tasks, left_out = tuple(found.tasks), tuple(found.left_out)
    return PlannedPolicy(job, folder, tasks, left_out, before, endpoint, profile, base, gpu)


async def require_strong(
    planned: PlannedPolicy, settings: Settings, store: Store, show: Callable[[str], None] = lambda _: None
) -> PlannedPolicy:
    """Return the run with those tasks whose workloads are strong enough (`strong_tasks`).

    Raises:
        WorkloadError: one is too weak, or wrong, and cannot be left out.
    """
    found = Tasks(list(planned.tasks), list(planned.left_out))
    strong = await strong_tasks(found, settings, store, show, begun=planned.is_begun)
    job = planned.job.model_copy(update={"kernels": tuple(task.key for task in strong.tasks)})
    return replace(planned, job=job, tasks=tuple(strong.tasks), left_out=tuple(strong.left_out))


def begin(planned: PlannedPolicy) -> None:
    """Write the job into its folder, after its tasks.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    try:
        (planned.folder / "steps").mkdir(parents=True, exist_ok=True, mode=0o700)
        planned.folder.chmod(0o700)
        if not planned.is_begun:
            remember(planned.folder, Tasks(list(planned.tasks), list(planned.left_out)))
        (planned.folder / _JOB).write_text(planned.job.model_dump_json(indent=2), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The training cannot be kept: {error.strerror}", planned.folder) from None


def _require_base(base: BaseModel, begun: Adapter | None) -> None:
    if begun is not None and begun.card.base != base_identity(base.folder):
        fix = "Name the folder of its own base with `--weights`."
        raise ConfigurationError(f"`{begun.card.name}` is an adapter of another model", base.folder, fix=fix)
