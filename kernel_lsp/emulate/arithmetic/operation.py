"""The record that an opcode is bound to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from kernel_lsp.emulate.arithmetic.opcode import Type

Array = npt.NDArray[Any]
Run = Callable[..., Array | tuple[Array, ...]]


@dataclass(frozen=True)
class Operation:
    """The computation of an instruction.

    Attributes:
        run: raw bits of the sources to raw bits of the destination, element by element.
        reads_carry: the last operand is the carry flag, bool.
        writes_carry: the last result is the carry flag, bool.
        approximate: architectures may differ in the last bits of the result; ours is that of sm_90.
        by_constant: the operation that the assembler uses if the last operand is a constant; None if the same.
        factors: for a product, the two numbers multiplied last, whose rounded product it is.
        extends_sign: a destination register wider than the result takes its sign, else zeros.
    """

    run: Run
    reads_carry: bool = False
    writes_carry: bool = False
    approximate: bool = False
    extends_sign: bool = False
    by_constant: "Operation | None" = None
    factors: Run | None = None

    def wrapped(self, wrap: Callable[[Run], Run]) -> "Operation":
        """Return the same operation with its functions wrapped."""
        return replace(
            self,
            run=wrap(self.run),
            by_constant=self.by_constant.wrapped(wrap) if self.by_constant else None,
            factors=wrap(self.factors) if self.factors else None,
        )


def typed(run: Run, *types: Type, **marks: bool) -> Operation:
    """Return an operation whose operands are cut to the raw bits of these types; further operands pass unchanged."""
    raws = [kind.register for kind in types]

    def cut(*operands: Array) -> Array | tuple[Array, ...]:
        fitted = [x if x.dtype == raw else x.astype(raw) for x, raw in zip(operands, raws, strict=False)]
        return run(*fitted, *operands[len(raws) :])

    return replace(Operation(cut), **marks)
