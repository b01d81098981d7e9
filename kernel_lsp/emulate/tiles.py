"""`cp.async.bulk.tensor`: copies of a box of a tensor, or of a column of pixels (im2col), as a tensor map tells.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Tensors": the box is dense in shared memory, the
innermost dimension first; elements outside the tensor are zeros on the way in and are left out on the way out. A
swizzle exchanges pieces of 16 bytes by bits of their address in shared memory.

An im2col copy begins at a pixel of the bounding box and goes on through its rows, planes and images; of each pixel it
takes some channels, from where the offsets lead from it. The order of corners and coordinates, the width first, is that
of CUTLASS (`cute/atom/copy_traits_sm90_im2col.hpp`).

Measured on an H200 (driver 580.159) with `tests/bench/random_pipelines.py`: rows of a box that are narrower than the
swizzle lie as far apart as it is wide, and what is between them is left as it was. A box that goes out ends, in the
innermost dimension, at the first multiple of 16 bytes behind the tensor's row, so up to 15 bytes there are written. A
box that begins within 16 bytes, or goes out to a negative place, ends the kernel as an illegal instruction does. The
copy is made here all the same, so that nothing but its place is found wrong. Not measured: stores of narrow rows, taken
to be as loads are.

A map of TF32 rounds what it loads to the nearest with 10 bits of mantissa, ties to even, infinities and NaNs as they
are. Triton's authors saw that on an sm_120 (their pull request 11751); an H200 was not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import tensormap
from kernel_lsp.emulate.arithmetic.formats import F32, shorten
from kernel_lsp.emulate.bulk import Delivery, copiers_of, deliver, flat
from kernel_lsp.emulate.bulk_memory import (
    CHUNK,
    Copiers,
    read_global,
    read_shared,
    sound_shared,
    update_global,
    write_global,
)
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import WINDOW_BYTES, raw_type
from kernel_lsp.emulate.program import Address, Immediate, Operand, PtxInstruction, Register, Symbol, Vector
from kernel_lsp.emulate.reductions import is_reduction, plain, tensor_reduction
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.tensormap import SWIZZLE_BYTES, Im2col, TensorMap
from kernel_lsp.emulate.transfers import locator
from kernel_lsp.emulate.wording import VERBS

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]
Operands: TypeAlias = "Callable[[Resident, Activation, Lanes], tuple[Array, Array]]"

_ALIGN = 128  # of a box in shared memory


def bind_tiles(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind tiled tensor copies, and prefetches of boxes."""
    parts = plain(instruction.parts)
    if parts[:3] != ("cp", "async", "bulk") or "tensor" not in parts:
        return None
    if "prefetch" in parts:
        return lambda _r, _a, _l: None
    if any(part.startswith(("im2col::", "tile::", "cta_group")) for part in parts):
        return None
    if "bulk_group" in parts:
        return _bind_out(decoder, instruction, site)
    if "mbarrier::complete_tx::bytes" in parts:
        return _bind_in(decoder, instruction, site)
    return None


def swizzled(places: Array, swizzle: int) -> Array:
    """Return where the bytes of offsets in shared memory lie with a `CUtensorMapSwizzle`.

    Bits from 4 on are exchanged by those from 7 on: one with 32 bytes, two with 64, three with 128.
    """
    if swizzle >= len(SWIZZLE_BYTES):
        raise NeedsGpu("a swizzle of other pieces than 16 bytes")
    mask = SWIZZLE_BYTES[swizzle] // CHUNK - 1 if swizzle else 0
    return places ^ (places >> 3 & mask << 4)


def _named_tensor(decoder: Decoder, operand: Operand) -> Operands:
    """Return a function that gives the maps' addresses and the coordinates (threads, dimensions) of `[map, {x, y}]`."""
    assert isinstance(operand, Vector)
    base, coordinates = operand.items
    assert isinstance(base, Register | Symbol | Immediate)
    assert isinstance(coordinates, Vector)
    locate = locator(decoder, Address(base))
    fetches = [decoder.fetch(each, "s32") for each in coordinates.items]

    def fetch(resident: Resident, activation: Activation, lanes: Lanes) -> tuple[Array, Array]:
        values = [flat(each(resident, activation, lanes).astype(np.uint32).view(np.int32), lanes) for each in fetches]
        return flat(locate(resident, activation, lanes), lanes), np.stack(values, axis=1)

    return fetch


def _map_at(resident: Resident, address: int, dimensions: int, pixels: bool) -> TensorMap:
    """Return the map at an address, of so many dimensions, and of `pixels` or of boxes as the copy has them.

    Raises:
        NeedsGpu: there is none, or one of another kind.
    """
    buffer = resident.memory.find(address)
    if buffer is None or address + tensormap.BYTES > buffer.end:
        raise NeedsGpu("a tensor map outside of all buffers")
    start = address - buffer.address
    found = tensormap.decode(buffer.data[start : start + tensormap.BYTES].tobytes())
    if len(found.shape) != dimensions:
        raise NeedsGpu(f"a copy in {dimensions} dimensions by a map of {len(found.shape)}")
    if pixels != (found.im2col is not None):
        raise NeedsGpu("a tiled copy by an im2col map, or the other way round,")
    if found.im2col and found.pitch > found.inner_bytes:
        raise NeedsGpu("an im2col map whose channels are narrower than its swizzle")
    return found


def _is_faulty(resident: Resident, tensor: TensorMap, copiers: Copiers) -> bool:
    """Report a map that a kernel made and the driver would have refused; return True if it is one."""
    fault = tensor.fault()
    if fault is not None:
        message = f"{{who}} copies by a tensor map that the kernel has made wrongly: {fault}"
        row, column = int(copiers.owners[0]), int(copiers.columns[0])
        resident.reports.say(FindingKind.MISALIGNED, copiers.site, message, row, column, count=len(copiers.owners))
    return fault is not None


def _report_corners(resident: Resident, tensor: TensorMap, corners: Array, copiers: Copiers, access: str) -> None:
    """Report boxes at `corners` (boxes, dimensions) that end the kernel: see this module's own text."""
    crooked = corners[:, 0] * tensor.element_bytes % CHUNK != 0
    negative = (corners < 0).any(axis=1) & (access == "write")
    for bad, kind, why in (
        (crooked, FindingKind.MISALIGNED, f"whose innermost place is no multiple of {CHUNK} bytes"),
        (negative, FindingKind.OUT_OF_BOUNDS, "before the tensor's start, where only reads may begin"),
    ):
        if bad.any() and not tensor.im2col:
            first = int(bad.argmax())
            place = ", ".join(map(str, corners[first]))
            message = f"{{who}} {VERBS[access]} a box at ({place}), {why}; a GPU ends with an illegal instruction"
            row, column = int(copiers.owners[first]), int(copiers.columns[first])
            resident.reports.say(kind, copiers.site, message, row, column, access=access, count=int(bad.sum()))


def _elements(
    tensor: TensorMap, corners: Array, offsets: Array, *, goes_out: bool = False
) -> tuple[Array, Array, Array]:
    """Return, for boxes at `corners` (boxes, dimensions): addresses of their elements in global memory, which of them
    are moved, and their offsets in a box, (elements,).

    `offsets` of im2col copies are (boxes, spatial dimensions), else (boxes, 0).
    """
    row_length = tensor.shape[0]
    if goes_out:
        row_length = -(-row_length * tensor.element_bytes // CHUNK) * CHUNK // tensor.element_bytes
    if tensor.im2col:
        return _pixels(tensor, tensor.im2col, corners, offsets, row_length)
    counts = tensor.counts
    inside = np.ones((len(corners), *reversed(counts)), np.bool_)
    address = np.full(inside.shape, tensor.address, np.int64)
    rank = len(counts)
    extents = (row_length, *tensor.shape[1:])
    for dimension, (count, extent) in enumerate(zip(counts, extents, strict=True)):
        step = tensor.steps[dimension] if dimension else 1
        stride = tensor.strides[dimension - 1] if dimension else tensor.element_bytes
        index = corners[:, dimension, None] + step * np.arange(count)
        shape = [len(corners), *(count if axis == rank - 1 - dimension else 1 for axis in range(rank))]
        index = index.reshape(shape)
        inside &= (index >= 0) & (index < extent)
        address = address + index * stride
    row, place = np.divmod(np.arange(inside[0].size), counts[0])
    offsets = row * tensor.pitch + place * tensor.element_bytes
    return address.reshape(len(corners), -1), inside.reshape(len(corners), -1), offsets


def _pixels(
    tensor: TensorMap, box: Im2col, corners: Array, offsets: Array, channels: int
) -> tuple[Array, Array, Array]:
    """Return the same for columns of pixels that begin at `corners`, of a tensor with so many channels."""
    place = np.zeros((len(corners), box.pixels), np.int64)  # along the way through the bounding box
    lengths = [
        (extent - 1 + high - low) // step + 1
        for extent, low, high, step in zip(tensor.shape[1:-1], box.lower, box.upper, tensor.steps[1:-1], strict=True)
    ]
    before = 1
    for dimension, length in enumerate(lengths):
        start = (corners[:, 1 + dimension] - box.lower[dimension]) // tensor.steps[1 + dimension]
        place += before * start[:, None]
        before *= length
    place += before * corners[:, -1, None] + np.arange(box.pixels)
    address, inside = np.full(place.shape, tensor.address, np.int64), np.ones(place.shape, np.bool_)
    for dimension, length in enumerate([*lengths, 0]):  # the images come last, and have no end of their own
        place, index = np.divmod(place, length) if length else (place, place)
        if length:
            index = index * tensor.steps[1 + dimension] + box.lower[dimension] + offsets[:, dimension, None]
        inside &= (index >= 0) & (index < tensor.shape[1 + dimension])
        address += index * tensor.strides[dimension]
    channel = corners[:, 0, None, None] + np.arange(box.channels)
    inside = inside[:, :, None] & (channel >= 0) & (channel < channels)
    address = address[:, :, None] + channel * tensor.element_bytes
    steps = np.arange(box.pixels * box.channels) * tensor.element_bytes
    return address.reshape(len(corners), -1), inside.reshape(len(corners), -1), steps


def _bind_in(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    target, source, barrier, *extra = instruction.operands
    pixels = "im2col" in instruction.parts
    aside = extra.pop(0) if pixels else Vector(())
    assert isinstance(aside, Vector)
    delivery = Delivery(decoder, instruction, site, target, barrier, extra)
    tensor_of, shifts = _named_tensor(decoder, source), [decoder.fetch(each, "u16") for each in aside.items]

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        maps, corners = tensor_of(resident, activation, lanes)
        aside = [flat(shift(resident, activation, lanes), lanes) for shift in shifts]
        shifted = np.stack(aside, axis=1) if aside else np.zeros((len(maps), 0), np.int64)
        for copiers, offsets, barriers, threads in delivery.each(resident, activation, lanes):
            for address in np.unique(maps[threads]):
                tensor = _map_at(resident, int(address), corners.shape[1], pixels)
                same = np.flatnonzero(maps[threads] == address)
                part, at, signals = copiers.part(same), offsets[same], barriers[same]
                if _is_faulty(resident, tensor, part):
                    continue
                _report_corners(resident, tensor, corners[threads[same]], part, "read")
                sources, inside, steps = _elements(tensor, corners[threads[same]], shifted[threads[same]])
                amount = len(steps) * tensor.element_bytes
                good = _sound(resident, at, tensor.span(len(steps)), part, "write")
                if len(good):
                    kind, chosen = raw_type(tensor.element_bytes), part.part(good)
                    data, unwritten = read_global(resident, sources[good], inside[good], kind, chosen)
                    data = _to_tf32(data) if tensor.kind == tensormap.TF32 else data
                    places = swizzled(at[good][:, None] + steps, tensor.swizzle)
                    deliver(resident, chosen, signals[good], places, data, ~unwritten, amount)
                    if resident.check:
                        resident.swizzles.copied(chosen.rows, places, tensor.swizzle, site.index)

    return copy


def _to_tf32(data: Array) -> Array:
    """Return raw float32 bits, rounded; infinities and NaNs stay."""
    return np.where(data & F32.infinity == F32.infinity, data, shorten(data, F32, 13, "rn"))


def _sound(resident: Resident, offsets: Array, amount: int, copiers: Copiers, access: str) -> NDArray[np.intp]:
    sound = sound_shared(resident, offsets, amount, _ALIGN, copiers, access)
    return np.flatnonzero(sound & (copiers.rows >= 0))


def _bind_out(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step:
    target, source, *_ = instruction.operands
    parts = instruction.parts
    assert isinstance(source, Address)
    tensor_of, origin = _named_tensor(decoder, target), locator(decoder, source)

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        maps, corners = tensor_of(resident, activation, lanes)
        copiers = copiers_of(lanes, site)
        offsets = flat(origin(resident, activation, lanes), lanes) & (WINDOW_BYTES - 1)
        for address, column in {(int(a), int(c)) for a, c in zip(maps, copiers.columns, strict=True)}:
            tensor = _map_at(resident, address, corners.shape[1], "im2col_no_offs" in parts)
            if tensor.kind == tensormap.TF32:
                raise NeedsGpu("a store by a tensor map of TF32")
            at = np.flatnonzero((maps == address) & (copiers.columns == column))
            if _is_faulty(resident, tensor, copiers.part(at)):
                continue
            _report_corners(resident, tensor, corners[at], copiers.part(at), "write")
            none = np.zeros((len(at), max(0, corners.shape[1] - 2)), np.int64)
            targets, inside, steps = _elements(tensor, corners[at], none, goes_out=True)
            good = _sound(resident, offsets[at], tensor.span(len(steps)), copiers.part(at), "read")
            if not len(good):
                continue
            part = copiers.part(at[good])
            agent, clock = resident.bulk_groups.start(part, column)
            places = swizzled(offsets[at[good]][:, None] + steps, tensor.swizzle)
            data = read_shared(resident, places, raw_type(tensor.element_bytes), part, agent, clock)
            if is_reduction(parts):
                change = tensor_reduction(parts, tensor.kind).change
                update_global(resident, targets[good], inside[good], data, part, change)
            else:
                write_global(resident, targets[good], inside[good], data, part)

    return copy
