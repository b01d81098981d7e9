"""Instructions that exchange data between the lanes of a warp: shfl, vote, match, redux, activemask and elect.

Worker-only: imports numpy. A warp is 32 consecutive lanes; lanes that execute an instruction together may belong to
many warps and, within one, name different member masks. The meaning is that of the PTX ISA, "Data Movement: shfl.sync"
and "Parallel Synchronization: vote, match, redux, activemask, elect".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]
Lanes: TypeAlias = NDArray[np.bool_]
Run: TypeAlias = Callable[..., tuple[Bits, ...]]

WARP = 32
_LANE = np.arange(WARP, dtype=np.uint32)
_BIT = np.uint32(1) << _LANE
_CANONICAL_NAN = np.uint32(0x7FFFFFFF)


@dataclass(frozen=True)
class WarpOperation:
    """One warp-level instruction.

    Attributes:
        run: `run(active, *operands)` gives all destinations in the instruction's order, as raw bits: `(d, p)` where it
            may name `d|p`. `active` are the lanes that execute it together, operands are arrays of one element for each
            lane or 0-d ones. Results for lanes not in `active` are meaningless.
        mask: position among the operands of the member mask the instruction waits for; None where it does not wait.
        sources: `sources(n, *operands)`, the lane of its warp each of n lanes reads from; None where it reads none.
    """

    run: Run
    mask: int | None
    sources: Callable[..., Bits] | None = None


@dataclass(frozen=True)
class WarpFaults:
    """Undefined behaviour of one execution, an element for each lane; zero for lanes that do not execute.

    Attributes:
        absent: mask of the lanes named in the member mask that live but do not take part (uint32).
        outside: the lane is not in the member mask it names (bool).
        source: the lane it reads from where that one does not take part, else -1 (int32).
    """

    absent: NDArray[np.uint32]
    outside: Lanes
    source: NDArray[np.int32]

    def any(self) -> bool:
        """Return True if there is any fault."""
        return bool(self.absent.any() or self.outside.any() or (self.source >= 0).any())


@cache
def bind(opcode: str) -> WarpOperation | None:
    """Return the operation of an opcode such as `shfl.sync.bfly.b32`; None if it is not emulated."""
    match opcode.split("."):
        case ["shfl", "sync", ("up" | "down" | "bfly" | "idx") as mode, "b32"]:
            return WarpOperation(partial(_shuffle, mode), 3, lambda n, a, b, c, mask: _source(mode, n, b, c)[0])
        case ["vote", "sync", ("all" | "any" | "uni") as mode, "pred"]:
            return WarpOperation(partial(_vote, mode), 1)
        case ["vote", "sync", "ballot", "b32"]:
            return WarpOperation(_ballot, 1)
        case ["match", ("any" | "all") as mode, "sync", "b32" | "b64"]:
            return WarpOperation(partial(_match, mode), 1)
        case [
            "redux",
            "sync",
            ("add" | "min" | "max" | "and" | "or" | "xor") as operation,
            ("u32" | "s32" | "b32") as kind,
        ]:
            return WarpOperation(partial(_reduce_integers, operation, np.int32 if kind == "s32" else np.uint32), 1)
        case ["redux", "sync", ("min" | "max") as operation, *extra, "f32"] if set(extra) <= {"abs", "NaN"}:
            return WarpOperation(partial(_reduce_floats, operation, "abs" in extra, "NaN" in extra), 1)
        case ["activemask", "b32"]:
            return WarpOperation(lambda active: (_to_lanes(_masks(active)),), None)
        case ["elect", "sync"]:
            return WarpOperation(_elect, 0)
        case _:
            return None


def faults(operation: WarpOperation, active: Lanes, alive: Lanes, *operands: Bits) -> WarpFaults:
    """Return the undefined behaviour when lanes `active` execute an operation while lanes `alive` have not exited."""
    n = active.size
    absent, outside, source = np.zeros(n, np.uint32), np.zeros(n, np.bool_), np.full(n, -1, np.int32)
    if operation.mask is not None:
        members = np.broadcast_to(operands[operation.mask], n)
        here = _to_lanes(_masks(active))
        absent = np.where(active, members & _to_lanes(_masks(alive)) & ~here, np.uint32(0))
        outside = active & ~_has(members, np.tile(_LANE, n // WARP))
        if operation.sources is not None:
            lane = np.broadcast_to(operation.sources(n, *operands), n)
            source = np.where(active & ~_has(members & here, lane), lane, -1).astype(np.int32)
    return WarpFaults(absent, outside, source)


def _masks(lanes: Bits) -> NDArray[np.uint32]:
    """Return for each warp a mask of the lanes for which `lanes` is true."""
    return np.packbits(lanes.reshape(-1, WARP).astype(np.bool_), axis=1, bitorder="little").view("<u4")[:, 0]


def _to_lanes(per_warp: Bits) -> Bits:
    return np.repeat(per_warp, WARP)


def _has(mask: Bits, lane: Bits) -> Lanes:
    return (mask >> lane.astype(np.uint32) & np.uint32(1)).astype(np.bool_)


def _source(mode: str, n: int, b: Bits, c: Bits) -> tuple[Bits, Lanes]:
    """Return the lane each lane reads from and whether that lies in its segment, by the ISA's pseudo code of shfl."""
    lane = np.tile(_LANE.astype(np.int32), n // WARP)
    b, c = b.astype(np.uint32), c.astype(np.uint32)
    step, clamp, segment = ((x & 31).astype(np.int32) for x in (b, c, c >> np.uint32(8)))
    low = lane & segment
    high = low | (clamp & ~segment)
    match mode:
        case "up":
            source = lane - step
            within = source >= high
        case "down":
            source = lane + step
            within = source <= high
        case "bfly":
            source = lane ^ step
            within = source <= high
        case _:
            source = low | (step & ~segment)
            within = source <= high
    return np.where(within, source, lane), within


def _shuffle(mode: str, active: Lanes, a: Bits, b: Bits, c: Bits, mask: Bits) -> tuple[Bits, ...]:
    source, within = _source(mode, active.size, b, c)
    warps = np.broadcast_to(a, active.size).reshape(-1, WARP)
    return np.take_along_axis(warps, source.reshape(-1, WARP), axis=1).reshape(-1), within


def _group(active: Lanes, mask: Bits) -> Bits:
    """Return for each lane the members of its mask that take part."""
    return _to_lanes(_masks(active)) & mask


def _ballot(active: Lanes, a: Bits, mask: Bits) -> tuple[Bits, ...]:
    return (_to_lanes(_masks(active & a)) & mask,)


def _vote(mode: str, active: Lanes, a: Bits, mask: Bits) -> tuple[Bits, ...]:
    (yes,), members = _ballot(active, a, mask), _group(active, mask)
    match mode:
        case "all":
            return (yes == members,)
        case "any":
            return (yes != 0,)
        case _:
            return ((yes == members) | (yes == 0),)


def _match(mode: str, active: Lanes, a: Bits, mask: Bits) -> tuple[Bits, ...]:
    values = np.broadcast_to(a, active.size).reshape(-1, WARP)
    equal = np.zeros(values.shape, np.uint32)
    for lane in range(WARP):
        equal |= (values == values[:, lane : lane + 1]) * _BIT[lane]
    members = _group(active, mask)
    same = equal.reshape(-1) & members
    if mode == "any":
        return (same,)
    return np.where(same == members, members, np.uint32(0)), same == members


def _reduce(combine: Callable[[Bits, Bits], Bits], start: Any, values: Bits, members: Bits) -> Bits:
    """Combine, for each lane, the values of its members; every lane of a warp may have members of its own."""
    values, members = values.reshape(-1, WARP), members.reshape(-1, WARP)
    total = np.full(values.shape, start, values.dtype)
    for lane in range(WARP):
        total = np.where(members & _BIT[lane], combine(total, values[:, lane : lane + 1]), total)
    return total.reshape(-1)


def _reduce_integers(operation: str, integer: type, active: Lanes, a: Bits, mask: Bits) -> tuple[Bits, ...]:
    limits = np.iinfo(integer)
    combine, start = {
        "add": (np.add, 0),
        "min": (np.minimum, limits.max),
        "max": (np.maximum, limits.min),
        "and": (np.bitwise_and, limits.max),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }[operation]
    values = np.broadcast_to(a, active.size).view(integer)
    return (_reduce(combine, start, values, _group(active, mask)).view(np.uint32),)


def _reduce_floats(operation: str, absolute: bool, nan: bool, active: Lanes, a: Bits, mask: Bits) -> tuple[Bits, ...]:
    """Return minimum or maximum in the total order of the bits, where -0 is below +0, and NaNs lose or, with
    `.NaN`, win.
    """
    bits = np.broadcast_to(a, active.size)
    if absolute:
        bits = bits & np.uint32(0x7FFFFFFF)
    is_nan = np.isnan(bits.view(np.float32))
    # The order of floats is that of sign-magnitude integers; a NaN is replaced by the value that always loses.
    key = np.where(bits >> 31 != 0, ~(bits & 0x7FFFFFFF), bits & 0x7FFFFFFF).view(np.int32)
    worst = np.int32(2**31 - 1) if operation == "min" else np.int32(-(2**31))
    members = _group(active, mask)
    best = _reduce(np.minimum if operation == "min" else np.maximum, worst, np.where(is_nan, worst, key), members)
    value = np.where(best < 0, ~best | np.int32(-(2**31)), best).view(np.uint32)
    some = _to_lanes(_masks(active & is_nan)) & members != 0
    return (np.where((best == worst) | (some & nan), _CANONICAL_NAN, value),)


def _elect(active: Lanes, mask: Bits) -> tuple[Bits, ...]:
    """Return the leader, the lowest member, as sm_90 elects."""
    members = _group(active, mask)
    lowest = members & (~members + np.uint32(1))
    leader = np.bitwise_count(lowest - np.uint32(1)).astype(np.uint32)
    return leader, leader == np.tile(_LANE, active.size // WARP)
