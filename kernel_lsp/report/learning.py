"""Datasets and trainings, as tables."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.learn.collect import Collected
from kernel_lsp.learn.grpo_plan import PlannedPolicy
from kernel_lsp.learn.memory import GIB
from kernel_lsp.learn.rounds import PlannedRounds, Round
from kernel_lsp.learn.sft import PlannedTraining
from kernel_lsp.learn.tasks import NoTask, reasons
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
    return _with_left_out(head, planned.left_out, planned.folder)


def rounds_view(planned: PlannedRounds) -> RenderableType:
    """Return one line on a fine-tuning in rounds, and one on what was left out of its folders."""
    job = planned.job
    place = planned.gpu.name if planned.gpu else "the processor"
    head = Text(
        f"{job.adapter}: rank {job.rank}, {job.rounds} rounds of {job.trajectories} trajectories of {job.turns} "
        f"answers on each of {len(job.kernels)} kernels, {job.epochs} epochs, on {place}"
    )
    return _with_left_out(head, planned.tasks.left_out, planned.folder)


def round_text(one: Round) -> str:
    """Return one line on the answers of a round."""
    said = one.answers
    right, faster = _share(said.right, said.judged), _share(said.faster, said.judged)
    return (
        f"round {said.round}: {said.judged} answers in {said.seconds:.0f} s, {right} right, {faster} faster; "
        f"{one.kept} to learn from"
    )


def rounds_table(rounds: Sequence[Round]) -> RenderableType:
    """Return the table of what each round's answers were, and who gave them."""
    table = Table("round", "answered by", "answers", "right", "faster", "learned from", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for one in rounds:
        said = one.answers
        shares = _share(said.right, said.judged), _share(said.faster, said.judged)
        table.add_row(str(said.round), Text(said.model), str(said.judged), *shares, str(one.kept))
    return table


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


def _with_left_out(head: Text, left_out: Sequence[NoTask], folder: Path) -> RenderableType:
    left = ", ".join(f"{count} {kind}" for kind, count in reasons(left_out).items())
    return Group(head, Text(f"left out: {left}; `tasks.json` in {folder} names them", "dim")) if left else head


def _share(some: int, every: int) -> str:
    return f"{some / every:.0%}" if every else "-"
