"""Measure how strong a workload is: whether a trivial answer would pass its checks."""

from collections.abc import AsyncIterator, Mapping, Sequence

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.compare import OutputForm
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.plan import SIGNED
from kernel_lsp.runner.messages import OTHER_ANSWER
from kernel_lsp.runner.messages.oracle import Discriminate


async def measure_strength(
    harness: Harness, draws: Sequence[Draw], fresh: Mapping[int, Draw], outputs: Mapping[str, Sequence[OutputForm]]
) -> list[str]:
    """Return the trivial answers that would pass, as sentences.

    The inputs of a KernelBench problem often let one pass, as a copy of non-negative values does for a ReLU. There it
    is reported only if it passes on all inputs that decide about a candidate. Each launch is right or wrong by itself:
    where sums of many terms come out much alike, an answer to other inputs may pass by chance, and hardly ever again.
    """
    groups = [[draw] for draw in draws if draw.is_plain and draw.case in fresh]
    if harness.target.workload.problem:
        groups = [[d for d in draws if d.case in fresh and d.case not in harness.workload.advisory]]
    weak: list[str] = []
    for group in groups:
        passing: tuple[str, ...] | None = None
        for draw in sorted(group, key=_most_telling):
            types = tuple(kind for kind, _, _ in outputs[draw.key])
            passing = await _passing(harness, draw, fresh[draw.case], types, passing)
            if not passing:
                break
        weak += [f"{answer} would pass on case {harness.cases[group[0].case]}" for answer in passing or ()]
    return weak


def _most_telling(draw: Draw) -> tuple[bool, bool]:
    """Sort plain inputs before negative ones, and both before others: few trivial answers are left after these."""
    return not draw.is_plain, draw.family != SIGNED


async def _passing(
    harness: Harness, draw: Draw, fresh: Draw, types: tuple[str, ...], among: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return those trivial answers that pass on inputs; further inputs are drawn only for the answer to such."""
    found: tuple[str, ...] = ()
    async for other in _others(harness, fresh):
        found = await harness.oracle(Discriminate(key=draw.key, other=other.key, outputs=types, among=among))
        if OTHER_ANSWER not in found:
            break
        among = found
    return found


async def _others(harness: Harness, fresh: Draw) -> AsyncIterator[Draw]:
    """Yield other plain inputs of a case, the ones that are there first."""
    yield fresh
    for number in range(policy.STRENGTH_FURTHER_DRAWS):
        yield await drawing.draw(harness, fresh.case, PLAIN, 2 + number)
