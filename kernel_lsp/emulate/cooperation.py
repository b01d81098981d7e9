"""Instructions by which the lanes of a warp work together: shuffles, votes, tensor cores, matrix rows.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import matrix, spaces, warp
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step, Successors
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.matrix import MatrixAccess, MatrixOperation
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.program import Address, Operand, Pair, PtxInstruction, Vector
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.transfers import locator

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_ALL = 0xFFFFFFFF


class WholeWarps:
    """Whole warps around a set of lanes: all threads of its blocks, padded to warps, on one axis."""

    def __init__(self, lanes: Lanes, alike: bool) -> None:
        self._lanes = lanes
        self._rows = 1 if alike else lanes.shape[0]
        self._columns = lanes.extent[1]
        self._padded = -(-self._columns // WARP) * WARP
        self.around = lanes if lanes.full else Lanes(lanes.extent, lanes.rows, slice(0, self._columns))
        self.size = self._rows * self._padded

    def gather(self, value: Array) -> Array:
        """Return a value of `around` as one element for each lane."""
        shape = (self._rows, self._columns)
        if self._padded == self._columns:
            return np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(-1)
        padded = np.zeros((self._rows, self._padded), value.dtype)
        padded[:, : self._columns] = value
        return padded.reshape(-1)

    def scatter(self, value: Array) -> Array:
        """Return one element for each lane as a value for the lanes: the reverse of `gather`."""
        whole = value.reshape(self._rows, self._padded)[:, : self._columns]
        return whole if self._lanes.shape[1] == self._columns else whole[:, self._lanes.columns]

    def active(self) -> Array:
        """Return True for lanes that take part."""
        active = np.zeros((self._rows, self._padded), np.bool_)
        active[:, self._lanes.columns] = True if self._lanes.mask is None else self._lanes.mask
        return active.reshape(-1)

    def alive(self, resident: Resident) -> Array:
        """Return True for lanes that have not exited."""
        alive = np.zeros((self._rows, self._padded), np.bool_)
        rows = resident.alive[self._lanes.rows]
        alive[:, : self._columns] = rows[: self._rows]
        return alive.reshape(-1)


def bind_warp(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind shuffles, votes and the like, and `bar.warp.sync`."""
    parts = instruction.parts
    if parts[:3] == ("bar", "warp", "sync"):
        operation = warp.WarpOperation(lambda active, *_: (), 0)
        targets: list[Operand] = []
        sources = list(instruction.operands)
    else:
        bound = warp.bind(instruction.opcode)
        if bound is None:
            return None
        operation = bound
        target, *sources = instruction.operands
        targets = [target.first, target.second] if isinstance(target, Pair) else [target]
    kinds = _warp_kinds(parts, len(sources))
    fetches = [decoder.fetch(each, kind) for each, kind in zip(sources, kinds, strict=True)]
    stores = [decoder.store(each) for each in targets]
    position = decoder.position

    def step(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        around = WholeWarps(lanes, False).around
        operands = [fetch(resident, activation, around) for fetch in fetches]
        alike = lanes.mask is None and all(operand.shape[0] == 1 for operand in operands)
        warps = WholeWarps(lanes, alike)
        flat = [warps.gather(operand) for operand in operands]
        active = warps.active()
        if operation.mask is not None:
            members = operands[operation.mask]
            whole = lanes.shape[1] == lanes.extent[1] and lanes.extent[1] % WARP == 0 and lanes.mask is None
            if not (whole and members.size == 1 and members.item() == _ALL):
                # Rows that are alike here may differ in which lanes have exited.
                every = WholeWarps(lanes, False)
                all_flat = [every.gather(operand) for operand in operands]
                faults = warp.faults(operation, every.active(), every.alive(resident), *all_flat)
                if faults.absent.any() and not resident.forced:
                    return [(activation, position, lanes, True)]
                if faults.any() and resident.check:
                    _report(resident, every, faults, lanes, site, instruction.opcode)
            if resident.check:
                resident.shared_shadow.clocks.warp_sync(lanes)
        results = operation.run(active, *flat)
        for store, value in zip(stores, results, strict=False):
            store(activation, warps.scatter(value), lanes)
        return None

    return step


def _warp_kinds(parts: tuple[str, ...], count: int) -> list[str]:
    if parts[0] == "vote":
        return ["pred", "b32"][:count]
    if parts[0] == "match":
        return [parts[-1], "b32"][:count]
    return ["b32"] * count


def _report(resident: Resident, warps: WholeWarps, faults: Any, lanes: Lanes, site: Site, opcode: str) -> None:
    name = ".".join(opcode.split(".")[:3])
    reports = resident.reports
    source = warps.scatter(faults.source)
    if (source >= 0).any():
        bad = source >= 0 if lanes.mask is None else (source >= 0) & lanes.mask
        lane = int(source.reshape(-1)[int(bad.argmax())])
        message = f"{{who}} reads from lane {lane} of its warp, which does not take part in {name}"
        reports.about_lanes(FindingKind.INACTIVE_LANE, site, message, lanes, bad)
        return
    absent = warps.scatter(faults.absent)
    if absent.any():
        mask = int(absent.reshape(-1)[int((absent != 0).argmax())])
        message = f"{{who}} waits in {name} for lanes {mask:#010x} of its warp, which do not come"
        reports.about_lanes(FindingKind.INACTIVE_LANE, site, message, lanes, absent != 0)
        return
    outside = warps.scatter(faults.outside)
    if outside.any():
        message = f"{{who}} executes {name} with a member mask that does not name its own lane"
        reports.about_lanes(FindingKind.INACTIVE_LANE, site, message, lanes, outside)


def bind_matrix(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind tensor-core instructions and those that move their fragments."""
    bound = matrix.bind(instruction.opcode, decoder.decoded.program.arch)
    if bound is None:
        return None
    if isinstance(bound, MatrixOperation):
        site.approximate = instruction.parts[0] in ("mma", "wmma") and instruction.parts[-1][0] in "fbte"
        return _bind_product(decoder, instruction, bound)
    return _bind_access(decoder, instruction, site, bound)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _bind_product(decoder: Decoder, instruction: PtxInstruction, operation: MatrixOperation) -> Step:
    target, *sources = instruction.operands
    stores = [decoder.store(each) for each in _items(target)]
    fetches = [[decoder.fetch(each, "b32") for each in _items(source)] for source in sources]

    def product(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        warps = WholeWarps(lanes, False)
        operands = [
            tuple(warps.gather(fetch(resident, activation, warps.around)) for fetch in group) for group in fetches
        ]
        results = operation.run(warps.active(), *operands)
        for store, value in zip(stores, results, strict=True):
            store(activation, warps.scatter(value), lanes)
        if resident.check:
            resident.shared_shadow.clocks.warp_sync(lanes)

    return product


def _bind_access(decoder: Decoder, instruction: PtxInstruction, site: Site, bound: MatrixAccess) -> Step | None:
    operands = list(instruction.operands)
    address = operands[0] if bound.store else operands[1]
    if not isinstance(address, Address):
        return None
    locate = locator(decoder, address)
    registers = _items(operands[1] if bound.store else operands[0])
    stride = decoder.fetch(operands[2], "b32") if len(operands) > 2 else None
    fetches = [decoder.fetch(each, "b32") for each in registers] if bound.store else []
    stores = [] if bound.store else [decoder.store(each) for each in registers]
    element = min(bound.width, 8)
    kind, words = raw_type(element), bound.width // element

    def parts(resident: Resident, activation: Activation, lanes: Lanes) -> tuple[WholeWarps, Array, Lanes | None]:
        warps = WholeWarps(lanes, False)
        flat = warps.gather(locate(resident, activation, warps.around))
        step = None if stride is None else warps.gather(stride(resident, activation, warps.around))
        addresses = bound.addresses(flat.astype(np.uint64), step).astype(np.int64)
        # Lanes whose address is meaningless do not access memory.
        takes = np.tile(bound.lanes, lanes.extent[1] // WARP + 1)[: lanes.extent[1]]
        reading, _ = lanes.where(takes[lanes.columns][None, :])
        return warps, addresses, reading

    def column(warps: WholeWarps, values: Array, reading: Lanes) -> Array:
        """Return values of all lanes of the warps, read for those that access memory."""
        whole = values.reshape(reading.shape[0], -1)[:, : reading.extent[1]]
        return whole[:, reading.columns]

    def load(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        warps, addresses, reading = parts(resident, activation, lanes)
        data = np.zeros((warps.size, bound.count, words), kind)
        if reading is not None:
            for number in range(bound.count):
                at = column(warps, addresses[:, number], reading)
                values = spaces.load(resident, bound.space, at, kind, words, reading, site)
                for word, value in enumerate(values):
                    whole = data[:, number, word].reshape(lanes.shape[0], -1)
                    whole[:, reading.columns] = value
                    data[:, number, word] = whole.reshape(-1)
        results = bound.registers(data.view(np.uint8).reshape(warps.size, bound.count, bound.width))
        for store, value in zip(stores, results, strict=True):
            store(activation, warps.scatter(value), lanes)
        if resident.check:
            resident.shared_shadow.clocks.warp_sync(lanes)

    def save(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        warps, addresses, writing = parts(resident, activation, lanes)
        values = [warps.gather(fetch(resident, activation, warps.around)) for fetch in fetches]
        if resident.check:
            resident.shared_shadow.clocks.warp_sync(lanes)
        if writing is None:
            return
        data = np.ascontiguousarray(bound.data(*values)).view(kind).reshape(warps.size, bound.count, words)
        for number in range(bound.count):
            at = column(warps, addresses[:, number], writing)
            each = [column(warps, data[:, number, word], writing) for word in range(words)]
            spaces.store(resident, bound.space, at, each, writing, site)

    return save if bound.store else load
