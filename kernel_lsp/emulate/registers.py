"""Registers of one activation of a function, with functions to fetch and store an instruction's operands.

Worker-only: imports numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.program import (
    Function,
    Immediate,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from kernel_lsp.emulate.ptx import immediate_bits, type_bytes

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]
Fetch: TypeAlias = "Callable[[Resident, Activation, Lanes], Array]"
Store: TypeAlias = "Callable[[Activation, Array, Lanes], None]"

_UNSIGNED = {1: np.uint16, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@cache
def register_type(kind: str) -> np.dtype[Any]:
    """Return numpy's type of a register of PTX type `kind` (two 64-bit words for `b128`)."""
    if kind == "pred":
        return np.dtype(np.bool_)
    return np.dtype(_UNSIGNED.get(type_bytes(kind), np.uint64))


class Activation:
    """One function being executed by some threads, called from one place.

    Attributes:
        function: the decoded function.
        path: orders activations as the program's text does: the calls that led here.
        parent: its caller; None for a kernel.
        return_to: position in the parent at which it continues.
        registers: a value for each register, None until written. The first is the carry flag.
        owned: True if a register's array is not shared, so that it can be written in place.
        parameters: values of `.param` variables by name: parameters, results, and those of calls it makes.
        results: (formal, actual) of results that the caller takes in registers.
        local_base: where its local variables start, in bytes.
        taint: unknown bits of registers that were loaded from memory nobody has written, by slot.
        unready: registers of products that may be under way, by slot.
    """

    def __init__(
        self, function: Any, path: tuple[int, ...], parent: Activation | None, return_to: int, local_base: int
    ) -> None:
        self.function, self.path, self.parent, self.return_to = function, path, parent, return_to
        self.registers: list[Array | None] = [None] * function.register_count
        self.owned = [False] * function.register_count
        self.parameters: dict[str, ParameterValue] = {}
        self.children: dict[tuple[int, str], Activation] = {}
        self.results: list[tuple[str, Store]] = []
        self.local_base = local_base
        self.taint: dict[int, Any] = {}  # slot -> `taint.Taint`
        self.unready: dict[int, Any] = {}  # slot -> `products.Unready`

    def write(self, slot: int, value: Array, lanes: Lanes) -> None:
        """Set a register for some threads; a whole value is kept, not copied."""
        if lanes.full:
            self.registers[slot] = value
            self.owned[slot] = False
            return
        old = self.registers[slot]
        if old is None and value.shape[:2] == (1, 1):
            self.registers[slot] = value  # the other threads have no value yet
            return
        if not self.owned[slot]:
            whole = np.zeros if old is None else np.empty
            mine = whole(lanes.extent + value.shape[2:], value.dtype)
            if old is not None:
                mine[...] = old
            old = self.registers[slot] = mine
            self.owned[slot] = True
        assert old is not None
        lanes.write(old, value)


class ParameterValue:
    """A `.param` variable of a call, as the values stored at its offsets."""

    def __init__(self) -> None:
        self._parts: dict[int, Array] = {}

    def write(self, offset: int, value: Array, lanes: Lanes) -> None:
        """Store raw bits."""
        old = self._parts.get(offset)
        if lanes.full:
            self._parts[offset] = value.copy()  # its register may be written in place
            return
        mine = np.zeros(lanes.extent, value.dtype)
        if old is not None and old.dtype == value.dtype:
            mine[...] = old
        lanes.write(mine, value)
        self._parts[offset] = mine

    @property
    def kind(self) -> np.dtype[Any]:
        """Return the type of the first stored part."""
        return self._parts[min(self._parts)].dtype

    def read(self, offset: int, kind: np.dtype[Any], lanes: Lanes) -> Array:
        """Return raw bits, assembled from stored parts if the widths differ."""
        exact = self._parts.get(offset)
        if exact is not None and exact.dtype == kind:
            return lanes.read(exact)
        total = np.zeros((1, 1), np.uint64)
        for start, part in self._parts.items():
            shift = 8 * (start - offset)
            if start + part.dtype.itemsize > offset and start < offset + kind.itemsize:
                wide = lanes.read(part).astype(np.uint64)
                total = total | (wide << np.uint64(shift) if shift >= 0 else wide >> np.uint64(-shift))
        return total.astype(kind)


@cache
def constant(bits: int, kind: str) -> Array:
    """Return raw bits of a PTX type as a value that is the same for all threads."""
    value = np.array(bits, register_type(kind)).reshape(1, 1)
    value.flags.writeable = False
    return value


def fetcher(function: Function, slots: dict[str, int], operand: Operand, kind: str) -> Fetch:
    """Return a function that fetches a source operand; constants are values of PTX type `kind`."""
    if isinstance(operand, Register):
        slot = slots[operand.name]
        nothing = constant(0, function.registers[operand.name])
        if function.registers[operand.name] == "b128":
            nothing = np.zeros((1, 1, 2), np.uint64)

        def register(_: Resident, activation: Activation, lanes: Lanes) -> Array:
            value = activation.registers[slot]
            return nothing if value is None else value if lanes.full else lanes.read(value)

        return register
    if isinstance(operand, Immediate):
        value = constant(immediate_bits(operand, kind), kind)
        return lambda _r, _a, _l: value
    if isinstance(operand, Special):
        name = operand.name
        wanted = register_type(kind)
        return lambda resident, _, lanes: lanes.read(resident.special(name)).astype(wanted, copy=False)
    if isinstance(operand, Symbol):
        symbol, offset = operand.name, operand.offset
        wanted = register_type(kind)

        def address(resident: Resident, activation: Activation, _: Lanes) -> Array:
            return np.array(resident.address_of(symbol, activation) + offset, np.uint64).astype(wanted).reshape(1, 1)

        return address
    if isinstance(operand, Negated):
        inner = fetcher(function, slots, operand.operand, kind)
        return lambda resident, activation, lanes: ~inner(resident, activation, lanes)
    if isinstance(operand, Vector):
        return _packed(function, slots, operand, kind)
    raise NeedsGpu(f"operand {operand}")


def _packed(function: Function, slots: dict[str, int], operand: Vector, kind: str) -> Fetch:
    """Return a function that fetches `{a, b}` as one wider value, the first in the low bits."""
    size = type_bytes(kind)
    part = f"b{8 * size // len(operand.items)}"
    items = [fetcher(function, slots, item, part) for item in operand.items]
    if size == 16:
        halves = (
            items if len(items) == 2 else [_packed(function, slots, Vector(h), "b64") for h in _halves(operand.items)]
        )

        def wide(resident: Resident, activation: Activation, lanes: Lanes) -> Array:
            low, high = (half(resident, activation, lanes) for half in halves)
            return np.stack(np.broadcast_arrays(low, high), axis=-1)

        return wide
    wanted, bits = register_type(kind), 8 * size // len(items)
    low_bits = wanted.type((1 << bits) - 1)

    def packed(resident: Resident, activation: Activation, lanes: Lanes) -> Array:
        total = items[0](resident, activation, lanes).astype(wanted) & low_bits
        for number, item in enumerate(items[1:], start=1):
            value = item(resident, activation, lanes).astype(wanted) & low_bits
            total = total | value << wanted.type(bits * number)
        return total

    return packed


def _halves(items: tuple[Operand, ...]) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    return items[: len(items) // 2], items[len(items) // 2 :]


def storer(function: Function, slots: dict[str, int], operand: Operand, signed: bool = False) -> Store:
    """Return a function that stores a result, extended if it is narrower than its register."""
    if isinstance(operand, Register):
        slot = slots[operand.name]
        kind = register_type(function.registers[operand.name])
        if function.registers[operand.name] == "b128":
            return lambda activation, value, lanes: activation.write(slot, value, lanes)

        def register(activation: Activation, value: Array, lanes: Lanes) -> None:
            if value.dtype != kind:
                value = widened(value, kind, signed)
            activation.write(slot, value, lanes)

        return register
    if isinstance(operand, Vector):
        return _unpacking(function, slots, operand)
    if isinstance(operand, Pair):
        return storer(function, slots, operand.first, signed)
    if isinstance(operand, Sink):
        return lambda _a, _v, _l: None
    raise NeedsGpu(f"result {operand}")


def widened(value: Array, kind: np.dtype[Any], signed: bool) -> Array:
    """Return raw bits in another width."""
    if signed and value.dtype.kind == "u":
        return value.view(f"<i{value.dtype.itemsize}").astype(f"<i{kind.itemsize}").view(kind)
    return value.astype(kind)


def _unpacking(function: Function, slots: dict[str, int], operand: Vector) -> Store:
    """Return a function that splits a value among `{a, b}`."""
    stores = [storer(function, slots, item) for item in operand.items]

    def store(activation: Activation, value: Array, lanes: Lanes) -> None:
        if value.ndim == 3:  # b128
            words = [value[..., 0], value[..., 1]]
            if len(stores) == 4:
                words = [w >> np.uint64(s) for w in words for s in (0, 32)]
            parts = [word.astype(np.uint32) if len(stores) == 4 else word for word in words]
        else:
            bits = 8 * value.dtype.itemsize // len(stores)
            part = register_type(f"b{bits}")
            low_bits = value.dtype.type((1 << bits) - 1)
            parts = [((value >> value.dtype.type(bits * n)) & low_bits).astype(part) for n in range(len(stores))]
        for each, bits_of in zip(stores, parts, strict=True):
            each(activation, bits_of, lanes)

    return store
