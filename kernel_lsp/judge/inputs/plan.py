"""Choose the inputs: plain ones of all cases, all families on the quickest cases, and more while time is left."""

import random
from collections.abc import Collection, Iterator, Sequence

from kernel_lsp import policy
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.draw import PLAIN, WEIGHTS, Draw
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.runner.messages.oracle import InputSizes
from kernel_lsp.workload.spec import REFERENCE

SORTED, SIGNED = "sorted", "signed"
NONFINITE = ("nonfinite", "nan", "nan-in-data", "infinite-in-data")
"""Families with values that are not finite; each shows what another hides. They cost little and find much."""
UNALIGNED, PADDED = "unaligned", "padded"
MISALIGNED = tuple(f"misaligned-{number}" for number in range(1, policy.MISALIGNED_TENSORS + 1))
LAYOUTS = (UNALIGNED, "strided", PADDED, *MISALIGNED)
"""Families that change how tensors lie in memory and nothing else."""
RESTRIDED = ("strided", PADDED)
"""Those that change strides, which outputs may take over or not."""
_VALUES = ("shifted", "large", "tiny", "vast", "minute", "spiked", "ties", SORTED, "outliers")
_LAST = ("alternating", "above", "below")
TOO_SLOW = "too slow on the emulator; needs a GPU"


def first_inputs(
    harness: Harness, order: Sequence[int], leaders: Sequence[int], rng: random.Random
) -> Iterator[tuple[int, str]]:
    """Yield (case, family): plain inputs of every case, all families on `leaders`, two random ones on the others.

    The most useful inputs come first, because the emulator may run out of time: each case runs once before any repeats.
    """
    values = [f for f in _wanted(harness, _VALUES) if f != SORTED or not harness.large]
    for case in order:
        yield case, PLAIN
    for family in values:
        for case in leaders:
            yield case, family
    if harness.target.workload.problem:
        yield order[0], SIGNED
    if harness.workload.weights:
        yield order[0], WEIGHTS
    for case in (case for case in order if case not in leaders and case not in harness.workload.advisory):
        chosen = [*values, *([WEIGHTS] if harness.workload.weights else [])]
        for family in rng.sample(chosen, min(policy.FAMILIES_PER_TIMED_CASE, len(chosen))):
            yield case, family
    layouts = {
        **dict.fromkeys(NONFINITE, not harness.contract.finite),
        UNALIGNED: not harness.contract.aligned,
        "strided": not harness.contract.contiguous,
    }
    for family in _wanted(harness, [name for name, applies in layouts.items() if applies]):
        yield order[0], family


def layouts_elsewhere(
    harness: Harness, order: Sequence[int], managed: Collection[str], rng: random.Random
) -> list[tuple[int, str]]:
    """Return (case, family) for the memory layouts that the baseline handled on the first case, on all later cases.

    Their right answers are known, so they are always worth the time: a kernel that recognises large inputs by their
    size may be careless there only. Of those that misalign one tensor each case gets a few by chance. Empty on the
    emulator, which has no time for them.
    """
    if harness.gpu is None:
        return []
    every = [family for family in LAYOUTS if family in managed and family not in MISALIGNED]
    single = [family for family in MISALIGNED if family in managed]
    count = min(policy.MISALIGNED_ELSEWHERE, len(single))
    return [(case, family) for case in order[1:] for family in (*every, *rng.sample(single, count))]


def later_layouts(harness: Harness, managed: Collection[str]) -> list[str]:
    """Return the memory layouts that are tried after all values, on the first case only.

    Single tensors are misaligned where the baseline `managed` that all are: otherwise it would fault again and again.
    """
    families = [] if harness.contract.contiguous else [PADDED]
    return _wanted(harness, [*families, *MISALIGNED] if UNALIGNED in managed else families)


def further_inputs(
    harness: Harness,
    order: Sequence[int],
    managed: Collection[str],
    tried: Collection[tuple[int, str]],
    rng: random.Random,
) -> list[tuple[int, str | int]]:
    """Return further inputs to try while time is left: (case, family), or (case, number of an argument).

    These are the families that the baseline `managed` on the first case, on all other cases where they were not
    `tried`, and other values of integers and bools. Non-finite inputs come first, the rest in random order. The
    emulator varies arguments of the first case only.
    """
    numbers = range(min(len(harness.workload.arguments), policy.VARIED_ARGUMENTS))
    if harness.gpu is None:
        return [(order[0], number) for number in numbers]
    families = [family for family in (*_VALUES, *_LAST, SIGNED, WEIGHTS, *NONFINITE) if family in managed]
    found: list[tuple[int, str | int]] = [
        (case, family) for case in order[1:] for family in families if (case, family) not in tried
    ]
    found += [(case, number) for case in order for number in numbers]
    rng.shuffle(found)
    return sorted(found, key=lambda pair: pair[1] not in NONFINITE)


def leaders_of(harness: Harness, order: Sequence[int], built: Built) -> list[int]:
    """Return the cases that get all families: on a GPU the first, else the first for each set of launched kernels.

    On a GPU all cases get more families later; on the emulator time is short. Each instance of a template, and each
    constant of a Triton kernel, makes another kernel that can have its own bugs.
    """
    if harness.gpu is not None:
        return list(order[:1])
    launched = {plan.case: frozenset(map(_specialisation, plan.launches)) for plan in built.plans}
    found: dict[frozenset[object], int] = {}
    for case in order:
        if case not in harness.workload.advisory:
            found.setdefault(launched.get(case, frozenset()), case)
    return list(found.values())


def _specialisation(launch: Launch) -> object:
    return launch.entry or launch.kernel, tuple(sorted(launch.constexprs.items())), launch.num_warps, launch.num_stages


def last_families(harness: Harness) -> list[str]:
    """Return the families that find rarer, gross mistakes; they are tried on the first case only."""
    problem = harness.target.workload.problem  # it has `signed` before, in which inputs are negative
    families = [family for family in _LAST if family != "below"] if problem else [*_LAST, SIGNED]
    return _wanted(harness, families)


async def case_order(harness: Harness, findings: Findings) -> list[int]:
    """Return cases by the size of their inputs, smallest first; without a GPU only those that are emulated in time."""
    sizes = await harness.oracle(InputSizes())
    order = sorted(harness.workload.decisive, key=lambda case: sizes[case])
    if harness.gpu is not None:
        return order
    small = [case for case in order if case == order[0] or sizes[case] <= policy.EMULATED_INPUT_BYTES]
    for case in (case for case in order if case not in small):
        findings.skipped("inputs: normal", "too large for the emulator; needs a GPU", harness.cases[case])
    return [*small, *harness.workload.advisory]


def note_limits(harness: Harness, order: Sequence[int], findings: Findings) -> None:
    """Record what is not compared, and which inputs are never tried: too large, or excluded by the contract."""
    if not harness.target.workload.has_reference:
        findings.skipped(REFERENCE, "outputs are compared with nothing, as the workload has no `reference`")
    if harness.large:
        detail = "inputs so large take ten times their memory to be sorted, and longer than all else"
        findings.skipped(f"inputs: {SORTED}", detail, harness.cases[order[0]])
    for name, promise in harness.contract.promises.items():
        detail = f"CONTRACT says that `{name}` is {promise}: all inputs keep to that"
        findings.skipped(f"inputs: any `{name}`", detail)


def unaffordable(harness: Harness, draw: Draw, managed: Sequence[Draw], findings: Findings) -> str:
    """Return why there is no time to run the baseline on these inputs; empty if there is time.

    `managed` are inputs on which it was right.
    """
    if harness.gpu is None:
        return "" if affordable(harness, draw, findings) else TOO_SLOW
    launch_time = harness.launch_time
    if (seconds := launch_time.launch_s.get(draw.case)) is not None:
        spare = not launch_time.is_slow(draw.case) or launch_time.affords_inputs(seconds)
        return "" if spare else f"a launch of the baseline takes {seconds:.1f} s there"
    known = [(launch_time.launch_s.get(d.case, 0.0), d) for d in managed if d.is_plain]
    expected = max((s * max(1.0, draw.input_bytes / max(d.input_bytes, 1)) for s, d in known), default=0.0)
    if launch_time.affords_case(expected):
        return ""
    return f"a launch of the baseline is expected to take {expected:.1f} s there; this case is not judged"


def affordable(harness: Harness, draw: Draw, findings: Findings) -> bool:
    """Return True if one more run fits into the time for emulation.

    The estimate is the time of earlier runs of the same case, else the previous run scaled by the bytes of the inputs.
    """
    if not findings.runs:
        return True
    own = [run.seconds for run in findings.runs if run.case == harness.cases[draw.case]]
    last = findings.runs[-1]
    growth = max(1.0, draw.input_bytes / max(last.input_bytes, 1))
    expected = max(own) if own else last.seconds * growth
    return sum(run.seconds for run in findings.runs) + expected <= harness.settings.judge.emulator_seconds


def _wanted(harness: Harness, families: Sequence[str]) -> list[str]:
    return [family for family in families if harness.settings.judge.wants(family)]
