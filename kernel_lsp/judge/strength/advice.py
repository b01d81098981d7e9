"""Why a planted bug was not seen, as far as the cases that ran can tell, and what to add to the workload."""

import math
import re
from collections.abc import Sequence
from itertools import combinations

from kernel_lsp.source.mutations import Bug

_SIZE = re.compile(r"(\w+)=(\d+)(?![\d.])")
_ROUND = 8
"""Sizes that all are multiples of this or more hide what happens at the end of a block."""

_EDGES = (Bug.DROPPED_GUARD, Bug.OFF_BY_ONE, Bug.DROPPED_TAIL, Bug.WRONG_FILL)
_AXES = (Bug.SWAPPED_INDEX, Bug.WRONG_STRIDE)
_ADVICE = {
    Bug.DROPPED_GUARD: "add inputs at and beyond every bound that the kernel checks",
    Bug.OFF_BY_ONE: "add inputs that lie exactly on a bound that the kernel checks",
    Bug.DROPPED_TAIL: "add a case whose size leaves a rest when it is cut into the kernel's tiles",
    Bug.WRONG_FILL: "add a case in which masked elements take part in a sum or maximum",
    Bug.DROPPED_BARRIER: "no race was seen on any input: see whether the barrier is needed at all",
    Bug.NARROW_ACCUMULATOR: "add a case that sums up more elements, or narrow TOLERANCE",
    Bug.SWAPPED_INDEX: "add a case whose sizes all differ",
    Bug.WRONG_STRIDE: "add a case whose sizes all differ, or whose rows lie apart in memory",
    Bug.UNINITIALISED_SHARED: "add a case that reads all of the shared memory that is filled",
    Bug.WRONG_START: "add inputs that lie far from zero, all on its negative side",
    Bug.DROPPED_TERM: "add inputs for which each term of the formula changes the answer",
    Bug.LOST_ATOMIC: "add a case in which many threads update one element",
}


def reason_for(bug: Bug, cases: Sequence[str]) -> str:
    """Why such a bug may not have shown on these cases, as a sentence."""
    if bug in _EDGES and (names := always_round(cases)):
        return f"in every case that ran {', '.join(names)}"
    if bug in _AXES and (pairs := always_equal(cases)):
        return f"in every case that ran {', '.join(pairs)}"
    return "it changes no answer beyond what is allowed, on any input that ran"


def advice_for(bugs: Sequence[Bug], cases: Sequence[str]) -> tuple[str, ...]:
    """What to add to a workload on whose cases such bugs survived, each thing once."""
    found: list[str] = []
    for bug in bugs:
        if bug in _EDGES and (names := always_round(cases)):
            found.append(f"no case that ran is off the tiles: {'; '.join(names)}")
        elif bug in _AXES and (pairs := always_equal(cases)):
            found.append(f"no case that ran tells axes apart: {'; '.join(pairs)}")
        else:
            found.append(_ADVICE[bug])
    return tuple(dict.fromkeys(found))


def always_round(cases: Sequence[str]) -> list[str]:
    """Sizes that are multiples of one power of two in all cases: `cols is a multiple of 256`."""
    found: list[str] = []
    for name, values in _sizes(cases).items():
        shared = math.gcd(*values)
        power = shared & -shared
        if len(values) == len(cases) and power >= _ROUND:
            found.append(f"`{name}` is a multiple of {power}")
    return found


def always_equal(cases: Sequence[str]) -> list[str]:
    """Sizes that are the same in all cases: `m = n`."""
    sizes = _sizes(cases)
    return [f"`{a}` = `{b}`" for a, b in combinations(sizes, 2) if sizes[a] == sizes[b]]


def _sizes(cases: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for case in cases:
        for name, value in _SIZE.findall(case):
            found.setdefault(name, []).append(int(value))
    return found
