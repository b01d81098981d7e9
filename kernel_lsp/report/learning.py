"""Datasets and trainings, as tables."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.learn.collect import Collected
from kernel_lsp.learn.grpo_plan import PlannedPolicy
from kernel_lsp.learn.memory import GIB
from kernel_lsp.learn.sft import PlannedTraining
from kernel_lsp.learn.tasks import reasons
from kernel_lsp.learn.training import TrainingEvent


def collected_view(found: Collected) -> RenderableType:
    """Return the counts of a dataset: the turns kept, and those left out with the reason."""
    kept = found.train + found.held_out
    head = Text.assemble(
        (f"{kept} of {found.turns} turns", "bold"),
        f" on {found.kernels} kernels in {found.folder}: {found.train} to train on, {found.held_out} held out",
    )
    table = Table.grid(padding=(0, 2))
    for reason, count in found.dropped.items():
        table.add_row("", Text(str(count), justify="right"), Text(reason, "dim"))
    return Group(head, table) if found.dropped else head


def planned_view(planned: PlannedTraining) -> RenderableType:
    """Return one line on what is trained where, or that it was trained before."""
    job = planned.job
    if planned.is_done:
        return Text(f"{job.adapter} was trained on this dataset before")
    return Text(
        f"{job.adapter}: rank {job.rank}, {job.epochs} epochs, on {planned.place}, "
        f"about {planned.needed / GIB:.1f} of {planned.free / GIB:.1f} GiB free"
    )


def policy_view(planned: PlannedPolicy) -> RenderableType:
    """Return one line on a run of reinforcement learning, and one on what was left out of its folders."""
    job = planned.job
    made = sum(task.is_variant for task in planned.tasks)
    variants = f" with {made} variants" if made else ""
    head = Text(
        f"{job.adapter}: rank {job.rank}, {len(job.kernels) - made} kernels{variants}, {job.trajectories} trajectories "
        f"of {job.turns} answers on {min(job.at_once, len(job.kernels))} in each of {job.steps} steps, on "
        f"{planned.place}"
    )
    left = ", ".join(f"{count} {kind}" for kind, count in reasons(planned.left_out).items())
    return Group(head, Text(f"left out: {left}; `tasks.json` in {planned.folder} names them", "dim")) if left else head


def event_text(event: TrainingEvent) -> str:
    """Return one line on an event of a training."""
    match event.kind:
        case "read":
            longer = f"; {event.longer} are too long and left out" if event.longer else ""
            return f"{event.kept} conversations{longer}"
        case "resumed":
            return f"goes on after step {event.step}"
        case "step":
            rate = f", {event.rate:,.0f} tokens/s" if event.rate is not None else ""
            return f"step {event.step}/{event.steps}: loss {event.loss:.4f}, {event.tokens:,} tokens{rate}"
        case "held-out":
            return f"step {event.step}/{event.steps}: loss {event.loss:.4f} on the kernels that are held out"
        case "done":
            return f"{event.step} steps done"
        case _:
            return event.message
