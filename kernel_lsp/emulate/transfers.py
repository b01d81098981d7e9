"""Binds `ld`, `st`, and other instructions with addresses: parameters, constants, prefetches, matrix rows.

Worker-only: imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import spaces
from kernel_lsp.emulate.barriers import release
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.program import Address, Operand, PtxInstruction, Register, Symbol, Vector
from kernel_lsp.emulate.ptx import type_bytes
from kernel_lsp.emulate.registers import Activation, ParameterValue, Store

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]
Locate: TypeAlias = "Callable[[Resident, Activation, Lanes], Array]"

_SPACES = ("global", "shared", "local", "const", "param")
_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
_NOTHING = {"prefetch", "prefetchu", "discard", "applypriority", "createpolicy"}


def space_of(parts: tuple[str, ...]) -> str:
    """Return the state space that an opcode names; `cluster` for `.shared::cluster`, empty for a generic address."""
    for part in parts:
        name, _, where = part.partition("::")
        if name in _SPACES:
            if name == "shared" and where == "cluster":
                return "cluster"
            return "global" if name == "const" else name
    return ""


def locator(decoder: Decoder, address: Address) -> Locate:
    """Return a function that computes int64 addresses."""
    if isinstance(address.base, Register):
        fetch, offset = decoder.fetch(address.base, "u64"), address.offset
        signed = decoder.function.registers[address.base.name][1:] == "32"

        def register(resident: Resident, activation: Activation, lanes: Lanes) -> Array:
            value = fetch(resident, activation, lanes)
            whole = value.astype(np.int64) if signed or value.dtype != np.uint64 else value.view(np.int64)
            return whole + offset if offset else whole

        return register
    if isinstance(address.base, Symbol):
        name, offset = address.base.name, address.offset
        return lambda resident, activation, _: np.full((1, 1), resident.address_of(name, activation) + offset, np.int64)
    value = np.full((1, 1), address.base.bits + address.offset, np.int64)
    return lambda _r, _a, _l: value


def _shape(instruction: PtxInstruction) -> tuple[int, int]:
    """Return the bytes of an element and the number of elements."""
    parts = instruction.parts
    vector = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
    size = type_bytes(parts[-1])
    return (8, 2 * vector) if size == 16 else (size, vector)


def bind_transfers(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind loads and stores."""
    parts = instruction.parts
    if parts[0] in _NOTHING and parts[0] != "createpolicy":
        return lambda _r, _a, _l: None
    if parts[0] == "createpolicy":
        store = decoder.store(instruction.operands[0])
        nothing = np.zeros((1, 1), np.uint64)
        return lambda _r, activation, lanes: store(activation, nothing, lanes)
    if parts[0] not in ("ld", "ldu", "st") or "async" in parts:  # `st.async` reports to an mbarrier
        return None
    space = space_of(parts)
    address = instruction.operands[1 if parts[0] != "st" else 0]
    if not isinstance(address, Address):
        return None
    if space == "param":
        if isinstance(address.base, Symbol):
            return _bind_parameter(decoder, instruction, address.base.name, address.offset)
        space = "global"  # the address of a kernel's parameter was taken
    return (_bind_store if parts[0] == "st" else _bind_load)(decoder, instruction, site, space, address)


def _items(operand: Operand) -> list[Operand]:
    return list(operand.items) if isinstance(operand, Vector) else [operand]


def _bind_load(decoder: Decoder, instruction: PtxInstruction, site: Site, space: str, address: Address) -> Step:
    parts = instruction.parts
    size, vector = _shape(instruction)
    kind = raw_type(size)
    stores = _load_stores(decoder, instruction, parts[-1][0] == "s")
    locate = locator(decoder, address)
    strong = not _STRONG.isdisjoint(parts)
    wide = parts[-1] == "b128"

    def load(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        values = spaces.load(resident, space, locate(resident, activation, lanes), kind, vector, lanes, site, strong)
        if wide:
            values = [np.stack(values[n : n + 2], axis=-1) for n in range(0, vector, 2)]
        for store, value in zip(stores, values, strict=True):
            store(activation, value, lanes)

    return load


def _load_stores(decoder: Decoder, instruction: PtxInstruction, signed: bool) -> list[Store]:
    return [decoder.store(item, signed) for item in _items(instruction.operands[0])]


def _bind_store(decoder: Decoder, instruction: PtxInstruction, site: Site, space: str, address: Address) -> Step:
    parts = instruction.parts
    size, _ = _shape(instruction)
    kind = raw_type(size)
    wide = parts[-1] == "b128"
    fetches = [decoder.fetch(item, parts[-1]) for item in _items(instruction.operands[1])]
    locate = locator(decoder, address)
    strong, releases = not _STRONG.isdisjoint(parts), "release" in parts

    def store(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        values = [fetch(resident, activation, lanes) for fetch in fetches]
        if wide:
            values = [value[..., word] for value in values for word in (0, 1)]
        values = [value if value.dtype == kind else value.astype(kind) for value in values]
        if releases and resident.check:
            release(resident, lanes, "cta" in parts)
        spaces.store(resident, space, locate(resident, activation, lanes), values, lanes, site, strong)

    return store


def _bind_parameter(decoder: Decoder, instruction: PtxInstruction, name: str, offset: int) -> Step | None:
    """Bind accesses of `.param` variables: the kernel's are constants in memory, those of calls are values."""
    parts = instruction.parts
    size, _ = _shape(instruction)
    kind = raw_type(size)
    if decoder.function.entry and name in decoder.function.parameter_offsets:
        stores = _load_stores(decoder, instruction, parts[-1][0] == "s")
        start = decoder.function.parameter_offsets[name] + offset

        def load_constant(resident: Resident, activation: Activation, lanes: Lanes) -> None:
            data = resident.launch.parameters.data
            for number, store in enumerate(stores):
                at = start + number * size
                store(activation, data[at : at + size].copy().view(kind).reshape(1, 1), lanes)

        return load_constant
    if parts[-1] == "b128":
        return None
    if parts[0] == "st":
        fetches = [decoder.fetch(item, parts[-1]) for item in _items(instruction.operands[1])]

        def store_value(resident: Resident, activation: Activation, lanes: Lanes) -> None:
            target = activation.parameters.setdefault(name, ParameterValue())
            for number, fetch in enumerate(fetches):
                value = fetch(resident, activation, lanes)
                target.write(offset + number * size, value.astype(kind), lanes)

        return store_value
    stores = _load_stores(decoder, instruction, parts[-1][0] == "s")

    def load_value(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        source = activation.parameters.setdefault(name, ParameterValue())
        for number, store in enumerate(stores):
            store(activation, source.read(offset + number * size, kind, lanes), lanes)

    return load_value
