"""Take those tasks alone whose workloads catch most bugs, and trivial answers: a policy finds what passes."""

from collections.abc import Callable

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import WorkloadError
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.environment import require_telling
from kernel_lsp.learn.tasks import NoTask, PolicyTask, Tasks
from kernel_lsp.mutation_testing import measure_strength
from kernel_lsp.store.store import Store


async def strong_tasks(
    found: Tasks, settings: Settings, store: Store, show: Callable[[str], None], *, begun: bool
) -> Tasks:
    """Return tasks without those of weak workloads, which are left out.

    Args:
        found: the tasks.
        settings: in force.
        store: where outcomes are kept and looked up.
        show: called with what is being done.
        begun: True if a run was begun with these tasks, and cannot go on without one.

    Raises:
        WorkloadError: a workload lets a trivial answer pass, or catches fewer planted bugs than `learn.strength`; its
            kernel is named, or the run was begun with it, or no other is left.
    """
    strong: list[PolicyTask] = []
    weak: list[NoTask] = []
    for task in found.tasks:
        name = task.target.source.path.name
        show(f"planting bugs in {name}")
        try:
            await _require_strong(task.target, settings, store)
        except WorkloadError as error:
            if task.named or begun or len(weak) + 1 == len(found.tasks):
                raise
            file = f"{name} ({task.origin})" if task.is_variant else name
            weak.append(NoTask(file, "with a workload that is too weak, or wrong", error.message, task.key))
        else:
            strong.append(task)
    return Tasks(strong, [*found.left_out, *weak])


async def _require_strong(target: Target, settings: Settings, store: Store) -> None:
    workload = target.workload.source
    texts = {target.source.path: target.source.text, workload.path: workload.text}
    reports = await measure_strength([target.source], settings, store=store, workload=workload.path, texts=texts)
    for report in reports:
        if report.problem:
            raise WorkloadError(f"its strength cannot be measured: {report.problem}", target.source.path)
        require_telling(target, report.weak)
        if (score := report.score) is not None and score < settings.learn.strength:
            message = f"the workload catches {score:.0%} of planted bugs, and {settings.learn.strength:.0%} are needed"
            fix = "`kernel-lsp check --strength` shows those that it misses; `learn.strength` is the limit."
            raise WorkloadError(message, workload.path, fix=fix)
