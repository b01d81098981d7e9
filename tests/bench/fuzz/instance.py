"""One random instruction on many operand values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LANES = 256
"""Operand sets of an instance: one for each thread of its block."""
REGISTERS = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.bool_}


@dataclass(frozen=True)
class Instance:
    """Lines of PTX that compute `results` from `sources`.

    Attributes:
        opcode: what is tested; differences are grouped by it.
        text: PTX with `{a0}`, `{a1}` ... for the sources, `{d0}` ... for the results and `{scratch}` for the address of
            16 bytes of global memory that each thread has for itself. It stands in a scope of its own and may declare
            registers there.
        sources: raw bits, each of shape (LANES,) and of a dtype in `REGISTERS`.
        results: the registers of the results.
        expected: computes the emulator's raw bits of all results.
    """

    opcode: str
    text: str
    sources: tuple[Array, ...]
    results: tuple[str, ...]
    expected: Callable[[], tuple[Array, ...]] = field(repr=False)


def register(x: Array) -> str:
    """The PTX register type that holds such raw bits."""
    return next(name for name, dtype in REGISTERS.items() if x.dtype == dtype)
