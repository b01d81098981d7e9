"""Rules about regressions since the repository's baseline was recorded."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule

_FIX = "See `kernel-lsp facts`; if the change is meant, record it with `kernel-lsp check --update-baseline`."


def _regression(
    number: int, name: str, summary: str, needs: Needs = Needs.BASELINE, *, what: str, why: str, before: str, after: str
) -> Rule:
    return Rule(
        id=f"KL{number:03}",
        name=name,
        group=Group.REGRESSION,
        severity=Severity.ERROR,
        needs=needs,
        summary=summary,
        what=what,
        why=why,
        before=before,
        after=after,
        fix=_FIX,
    )


REGISTERS = _regression(
    40,
    "more-registers",
    "The kernel takes more registers than recorded.",
    what="More registers a thread than `.kernel-lsp/baseline.json` has for this architecture, once rounded up to 8: "
    "the hardware hands them out in such units, so growth within one costs nothing.",
    why="Registers are the first thing to limit occupancy, and they creep up change by change.",
    before="#pragma unroll 16",
    after="#pragma unroll 4",
)

SPILLS = _regression(
    41,
    "more-spills",
    "The kernel spills more than recorded.",
    what="More bytes of spills a thread than `.kernel-lsp/baseline.json` has for this architecture.",
    why="A kernel that begins to spill moves its own registers through memory.",
    before="__launch_bounds__(256, 4)",
    after="__launch_bounds__(256, 3)",
)

OCCUPANCY = _regression(
    42,
    "less-occupancy",
    "Fewer warps of the kernel fit on a multiprocessor than recorded.",
    what="An occupancy below what `.kernel-lsp/baseline.json` has for this architecture.",
    why="Fewer warps hide less of the wait for memory.",
    before="__shared__ float tile[64][65];",
    after="__shared__ float tile[32][33];",
)

SLOWER = _regression(
    43,
    "slower",
    "The kernel takes longer than recorded.",
    Needs.TIMING,
    what="A time whose whole interval lies 5 % or more above the recorded interval of the same case on the same model "
    "of GPU. Days and processes differ by a few per cent with clocks and placement, so less is not reported. Only "
    "kernels whose machine code changed are timed.",
    why="It is what all the other figures stand for.",
    before="x[threadIdx.x * cols + col]",
    after="x[row * cols + threadIdx.x]",
)

RULES = (REGISTERS, SPILLS, OCCUPANCY, SLOWER)
