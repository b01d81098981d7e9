"""Emulate a few blocks of the launches of the largest case, to count what a GPU would execute and move there."""

from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.draw import PLAIN
from kernel_lsp.judge.inputs.findings import RUN_ERRORS
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.emulated import SampledRun
from kernel_lsp.runner.messages.oracle import InputSizes
from kernel_lsp.runner.messages.subject import SampleBlocks
from kernel_lsp.source.candidate import Candidate

_MOST_INSTRUCTIONS = 20_000  # that the blocks of one launch execute together: some seconds of the emulator's
_SEED = 0  # the same blocks of every version, wherever their grids are alike


@dataclass(frozen=True, slots=True)
class CaseSample:
    """A version's launches on one case, of which a few blocks were run to their end.

    Attributes:
        case: its number.
        input_bytes: of its inputs: what has to be moved at least.
        run: what the blocks did.
    """

    case: int
    input_bytes: int
    run: SampledRun


async def sample_largest(harness: Harness, version: Subject) -> CaseSample | None:
    """Return a sample of the largest case that decides and whose inputs the CPU can draw; None without a whole one.

    It ends without a result where the emulator cannot run the launches, or the blocks need more instructions than
    `_MOST_INSTRUCTIONS`. Nothing is checked: inputs and outputs are meaningless afterwards.
    """
    sizes = await harness.oracle(InputSizes())
    cases = [case for case in harness.workload.decisive if sizes[case] <= policy.SAMPLED_INPUT_BYTES]
    if not cases:
        return None
    draw = await drawing.draw(harness, max(cases, key=lambda case: sizes[case]), PLAIN)
    request = SampleBlocks(
        buffer=draw.buffer,
        count=policy.EMULATED_TIMED_BLOCKS,
        seed=_SEED,
        instructions=_MOST_INSTRUCTIONS,
    )
    try:
        await harness.fill(version, draw)
        run = await version.ask(request, deadline=policy.EMULATED_SAMPLE_SECONDS)
        await harness.unbind(version, draw.buffer)
    except (CannotJudgeError, *RUN_ERRORS):
        return None
    if run.ended is not None or not run.launches or any(one.ended for one in run.launches):
        return None
    return CaseSample(draw.case, draw.input_bytes, run)


def blocks_run(run: SampledRun) -> str:
    """Return how many blocks of the first launches were run, as `softmax` 4 of 4,096."""
    return "; ".join(f"`{each.kernel}` {len(each.blocks)} of {each.grid_blocks:,}" for each in run.launches[:3])


async def sample_version(harness: Harness, candidate: Candidate, built: Built) -> CaseSample | None:
    """Return the same of a version in a process of its own; None, too, where it cannot be loaded."""
    try:
        subject = await harness.enter(candidate, built)
    except RUN_ERRORS:
        return None
    try:
        return await sample_largest(harness, subject)
    finally:
        await harness.leave(subject)
