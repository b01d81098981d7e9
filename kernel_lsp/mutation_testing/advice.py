"""Explain why a planted bug was not found, from the cases that ran, and advise what to add to the workload."""

import math
import re
from collections.abc import Sequence
from itertools import combinations

from kernel_lsp.source.mutations import Bug

_SIZE = re.compile(r"(\w+)=(\d+)(?![\d.])")
_ROUND = 32
"""Sizes that all are multiples of this or more hide what happens at the end of a block."""

_EDGES = (Bug.DROPPED_GUARD, Bug.OFF_BY_ONE, Bug.DROPPED_TAIL, Bug.WRONG_FILL)
_AXES = (Bug.SWAPPED_INDEX, Bug.WRONG_STRIDE)
_WHY = {
    Bug.DROPPED_GUARD: "no input that ran goes beyond this bound, or another check stops what does",
    Bug.OFF_BY_ONE: "no input that ran lies exactly on this bound, or another check stops what does",
    Bug.DROPPED_TAIL: "no size that ran leaves a rest when it is cut into tiles",
    Bug.WRONG_FILL: "what is filled in reaches no answer: it meets a zero, or is masked again",
    Bug.DROPPED_BARRIER: "no race was seen on any input that ran",
    Bug.NARROW_ACCUMULATOR: "its rounding stays below what the output's type and the tolerance show",
    Bug.SWAPPED_INDEX: "on the inputs that ran both give the same element",
    Bug.WRONG_STRIDE: "on the inputs that ran both give the same address",
    Bug.UNINITIALISED_SHARED: "nobody reads what was to be stored",
    Bug.WRONG_START: "no input that ran needs the right one",
    Bug.DROPPED_TERM: "on the inputs that ran it hardly changes the answer",
    Bug.LOST_ATOMIC: "no two threads met at one element",
}
_ADVICE = {
    Bug.DROPPED_GUARD: "add inputs at and beyond every bound that the kernel checks",
    Bug.OFF_BY_ONE: "add inputs that lie exactly on the bounds that the kernel checks",
    Bug.DROPPED_TAIL: "add a case whose size leaves a rest when it is cut into the kernel's tiles",
    Bug.WRONG_FILL: "add a case in which what masked loads fill in takes part in the answer",
    Bug.DROPPED_BARRIER: "see whether the barrier is needed at all",
    Bug.NARROW_ACCUMULATOR: "add a case that sums up many more elements, or narrow TOLERANCE",
    Bug.SWAPPED_INDEX: "add a case whose sizes all differ",
    Bug.WRONG_STRIDE: "add a case whose sizes all differ and go over several blocks, or whose rows lie apart",
    Bug.UNINITIALISED_SHARED: "add a case that uses all of the shared memory",
    Bug.WRONG_START: "add inputs that all lie far from zero, on its negative side",
    Bug.DROPPED_TERM: "add inputs for which every term changes the answer",
    Bug.LOST_ATOMIC: "add a case in which many threads update one element",
}


def reason_for(bug: Bug, cases: Sequence[str]) -> str:
    """Return why such a bug may not have shown on these cases."""
    if bug in _EDGES and (names := always_round(cases)):
        return f"in every case that ran {', '.join(names)}"
    if bug in _AXES and (pairs := always_equal(cases)):
        return f"in every case that ran {', '.join(pairs)}"
    return _WHY[bug]


def advice_for(bugs: Sequence[Bug], cases: Sequence[str]) -> tuple[str, ...]:
    """Return what to add to a workload on whose cases such bugs survived, each item once."""
    found: list[str] = []
    for bug in bugs:
        if bug in _EDGES and (names := always_round(cases)):
            found += [f"no case that ran is off the tiles: {name}" for name in names]
        elif bug in _AXES and (pairs := always_equal(cases)):
            found += [f"no case that ran tells these apart: {pair}" for pair in pairs]
        else:
            found.append(_ADVICE[bug])
    return tuple(dict.fromkeys(found))


def always_round(cases: Sequence[str]) -> list[str]:
    """Return sizes that are multiples of a power of two in all cases: "`cols` is a multiple of 256"."""
    found: list[str] = []
    for name, values in _sizes(cases).items():
        power = math.gcd(*values) & -math.gcd(*values)
        if len(values) == len(cases) and power >= _ROUND:
            found.append(f"`{name}` is a multiple of {power}")
    return found


def always_equal(cases: Sequence[str]) -> list[str]:
    """Return sizes that are equal in all cases: `m = n`."""
    sizes = _sizes(cases)
    return [f"`{a}` = `{b}`" for a, b in combinations(sizes, 2) if sizes[a] == sizes[b]]


def _sizes(cases: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for case in cases:
        for name, value in _SIZE.findall(case):
            found.setdefault(name, []).append(int(value))
    return found
