"""Arithmetic of PTX: instructions without memory, control or other lanes, bound to functions on raw bits.

Worker processes only (numpy). Semantics are those of the PTX ISA 9.0; where it leaves a result to the machine (division
by zero, payloads of NaN) it is what NVIDIA's hardware gives, as held to it by `tests/bench/ptx_fuzz.py`.
"""

from functools import cache

import numpy as np

from kernel_lsp.emulate.arithmetic import approximate, bits, compare, convert, floating, integer
from kernel_lsp.emulate.arithmetic.opcode import decode
from kernel_lsp.emulate.arithmetic.operation import Array, Operation, Run

__all__ = ["Array", "Operation", "bind"]

_FAMILIES = (integer.bind, bits.bind, compare.bind, floating.bind, approximate.bind, convert.bind)


@cache
def bind(opcode: str) -> Operation | None:
    """Return the operation of an opcode with its modifiers, such as `fma.rn.ftz.f32`; None if it is not implemented.

    `run` takes the source operands in the instruction's order as arrays of raw bits (`bool`, `uint16`, `uint32`,
    `uint64`, of shape (n,) or ()) and gives raw bits of the destination. An operand in a register wider than the
    instruction's type is cut to that type. `setp` gives the pair (p, q), `lop3` with a Boolean operation the pair
    (d, p); an operation that reads the carry takes it as last operand, one that writes it gives it as last result,
    both bool.
    """
    decoded = decode(opcode)
    if decoded is None:
        return None
    found = next((operation for family in _FAMILIES if (operation := family(decoded)) is not None), None)
    return None if found is None else found.wrapped(_guarded)


def _guarded(run: Run) -> Run:
    """Wrap a function: numpy's warnings off, and scalars as arrays of one element, which wrap silently."""

    def guarded(*operands: Array) -> Array | tuple[Array, ...]:
        scalar = not any(x.ndim for x in operands)
        with np.errstate(all="ignore"):
            result = run(*(x if x.ndim else x.reshape(1) for x in operands))
        if not scalar:
            return result
        return tuple(x.reshape(()) for x in result) if isinstance(result, tuple) else result.reshape(())

    return guarded
