"""How strong a workload is: would a trivial answer pass?"""

from collections.abc import Mapping, Sequence

from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.compare import OutputForm
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.runner.messages.oracle import Discriminate


async def measure_strength(
    harness: Harness, draws: Sequence[Draw], fresh: Mapping[int, Draw], outputs: Mapping[str, Sequence[OutputForm]]
) -> list[str]:
    """Return trivial answers that would pass, as sentences.

    The inputs that a KernelBench problem makes are often such that one would, as a copy of what is never negative does
    for a ReLU: there it has to pass on all that decides on a candidate.
    """
    groups = [[draw] for draw in draws if draw.is_plain and draw.case in fresh]
    if harness.target.workload.problem:
        groups = [[d for d in draws if d.case in fresh and d.case not in harness.workload.advisory]]
    weak: list[str] = []
    for group in groups:
        passing: list[str] | None = None
        for draw in group:
            types = tuple(kind for kind, _, _ in outputs[draw.key])
            found = await harness.oracle(Discriminate(key=draw.key, other=fresh[draw.case].key, outputs=types))
            passing = [answer for answer in found if passing is None or answer in passing]
            if not passing:
                break
        weak += [f"{answer} would pass on case {harness.cases[group[0].case]}" for answer in passing or ()]
    return weak
