"""Records of bound matrix instructions: a computation on registers, or accesses to memory.

Worker-only: imports numpy. All of them are `.aligned`: every lane of a warp takes part or the result is undefined.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class MatrixOperation:
    """A computation on registers: `mma.sync`, `wmma.mma`, `movmatrix`.

    Attributes:
        run: `run(active, *operands)` gives the destination's registers. `active` are the lanes that execute it; an
            operand is the tuple of its registers, each (lanes,) of raw bits. Warps without an active lane get zeros.
    """

    run: Callable[..., tuple[Bits, ...]]


@dataclass(frozen=True)
class MatrixAccess:
    """An access to memory: `ldmatrix`, `stmatrix`, `wmma.load`, `wmma.store`.

    The machine asks for the addresses, reads or writes `width` bytes at each with its own checks, and for a load hands
    the bytes to `registers`, for a store gets them from `data`.

    Attributes:
        store: True if it writes.
        space: the state space its opcode names, `global`, `shared` or "" for a generic address.
        width: bytes of each access.
        count: accesses of each lane.
        lanes: (32,), which lanes of a warp access memory; the bytes of the others do not matter.
        addresses: `addresses(address, stride)`, byte addresses (lanes, count) out of the instruction's address operand
            (lanes,) and its stride in elements, (lanes,) or 0-d or None where it has none.
        registers: `registers(data)`, the destination's registers out of bytes (lanes, count, width).
        data: `data(*registers)`, the bytes (lanes, count, width) of a store.
    """

    store: bool
    space: str
    width: int
    count: int
    lanes: NDArray[Any]
    addresses: Callable[[Bits, Bits | None], Bits]
    registers: Callable[[Bits], tuple[Bits, ...]]
    data: Callable[..., Bits]
