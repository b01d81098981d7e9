"""`tensormap.replace` and `tensormap.cp_fenceproxy`: tensor maps that a kernel makes or changes itself.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Data Movement and Conversion: tensormap.replace". A
kernel begins with 128 zero bytes or with a map of the driver, and replaces fields; here these are those of
`tensormap.TensorMap`, in its encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import spaces, tensormap
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.program import Address, Immediate, PtxInstruction
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.tensormap import DRIVER_TYPES, FIELDS
from kernel_lsp.emulate.transfers import locator, space_of

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_WORD = 8
_ALWAYS_ZERO = frozenset(("interleave_layout", "swizzle_atomicity"))


def bind_map_changes(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind what changes and copies tensor maps."""
    parts = instruction.parts
    if parts[0] != "tensormap":
        return None
    if parts[1] == "replace":
        return _bind_replace(decoder, instruction, site)
    if parts[1] == "cp_fenceproxy":
        return _bind_copy(decoder, instruction, site)
    return None


def _bind_replace(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    parts = instruction.parts
    name, space = parts[3], space_of(parts)
    address, *given = instruction.operands
    assert isinstance(address, Address)
    locate, fetch = locator(decoder, address), decoder.fetch(given[-1], parts[-1])
    number = given[0].bits if len(given) == 2 and isinstance(given[0], Immediate) else 0
    if name in _ALWAYS_ZERO:
        return _refusing(fetch, instruction)
    offset, size = FIELDS[name]
    change, kind = _change(name), raw_type(size)

    def replace(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        value = change(fetch(resident, activation, lanes).astype(np.uint64)).astype(kind)
        start = locate(resident, activation, lanes)
        magic = np.full((1, 1), int.from_bytes(tensormap.MAGIC, "little"), np.uint32)
        spaces.store(resident, space, start, [magic], lanes, site, False)
        spaces.store(resident, space, start + offset + number * size, [value], lanes, site, False)

    return replace


def _refusing(fetch: Callable[[Resident, Activation, Lanes], Array], instruction: PtxInstruction) -> Step:
    """Return a step for a field that is emulated only as zero."""

    def refuse(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        if fetch(resident, activation, lanes).any():
            raise NeedsGpu(f"`{instruction.opcode}`")

    return refuse


def _change(name: str) -> Callable[[Array], Array]:
    """Return how the value of a field is encoded."""
    if name == "rank":
        return lambda value: value + np.uint64(1)
    if name == "global_dim":
        return lambda value: np.where(value == 0, np.uint64(1 << 32), value)
    if name == "elemtype":
        table = np.array([DRIVER_TYPES.get(kind, kind) for kind in range(256)], np.uint64)
        return lambda value: table[value.astype(np.intp)]
    return lambda value: value


def _bind_copy(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    """Bind the copy of a map from shared to global memory, which all threads of a warp ask for together."""
    target, source, size = instruction.operands
    assert isinstance(target, Address)
    assert isinstance(source, Address)
    assert isinstance(size, Immediate)
    to, origin, kind = locator(decoder, target), locator(decoder, source), raw_type(_WORD)

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        targets, sources = to(resident, activation, lanes), origin(resident, activation, lanes)
        if resident.check:
            resident.shared_shadow.clocks.warp_sync(lanes)  # the threads of a warp execute it together
        for offset in range(0, size.bits, _WORD):
            words = spaces.load(resident, "shared", sources + offset, kind, 1, lanes, site, False)
            spaces.store(resident, "global", targets + offset, words, lanes, site, False)

    return copy
