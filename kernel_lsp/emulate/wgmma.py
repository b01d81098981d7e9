"""`wgmma`: products of matrices by four warps together, with operands in shared memory.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
Instructions". The product is computed at once. That it may be computed later shows in the shadow of shared memory,
where the operands are read by an agent of the warpgroup until it has waited for the group. Sums are rounded as by
`mma.sync`, but for 8-bit floats (`matrix.accumulate.WARPGROUP_BYTES`): so an H200 did in each of the pipelines of
`tests/bench/random_pipelines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import products
from kernel_lsp.emulate.bulk_memory import CHUNK, Copiers, read_shared, sound_shared
from kernel_lsp.emulate.cooperation import WholeWarps
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step, Successors
from kernel_lsp.emulate.descriptors import read_descriptors
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.matrix.formats import BITS
from kernel_lsp.emulate.matrix.fragments import Fragment, accumulator, multiplicand_a
from kernel_lsp.emulate.matrix.mma import Product, bind_product, sizes
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.program import Immediate, Operand, PtxInstruction, Vector
from kernel_lsp.emulate.registers import Activation, Fetch, Store

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_WARPS = 4  # of a warpgroup
_THREADS = _WARPS * WARP
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}


class MatrixGroups:
    """The groups of `wgmma` that each resident warpgroup has closed, and the agents that compute them.

    Attributes:
        waited: groups that each warp has waited for, (blocks, warps).
    """

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._committed = np.zeros((resident.extent[0], -(-resident.extent[1] // WARP)), np.int64)  # by warp
        self.waited = np.zeros_like(self._committed)
        self._agents: dict[int, int] = {}  # by warpgroup of a block

    def start(self, rows: Array, group: int) -> tuple[int, Array]:
        """Return agent and clock of a product in the open group of a warpgroup."""
        if group not in self._agents:
            self._agents[group] = self._resident.shared_shadow.clocks.agent()
        return self._agents[group], self._committed[rows, group * _WARPS] + 1

    def begin(self, activation: Activation, slots: tuple[int, ...], lanes: Lanes, site: Site) -> None:
        """Mark the registers `slots` of these warps as those of a product in their open group."""
        products.begin(activation, slots, self._committed + 1, self._resident.shared_shadow.clocks.pairs(lanes), site)

    def commit(self, lanes: Lanes) -> None:
        """Close the groups of these warps."""
        self._committed[self._resident.shared_shadow.clocks.pairs(lanes)] += 1

    def wait(self, pending: int, lanes: Lanes) -> None:
        """Wait for all groups of these warps but the last `pending`."""
        clocks = self._resident.shared_shadow.clocks
        rows, warps = clocks.pairs(lanes)
        self.waited[rows, warps] = np.maximum(self.waited[rows, warps], self._committed[rows, warps] - pending)
        for group, agent in self._agents.items():
            mine = warps // _WARPS == group
            if mine.any():
                pairs = rows[mine], warps[mine]
                clocks.learn(agent, pairs, self._committed[pairs] - pending)


def bind_wgmma(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind dense products of warpgroups, and the groups that they are waited for in."""
    parts = instruction.parts
    if parts[0] != "wgmma":
        return None
    if parts[1] == "fence":  # orders registers, which are written at once
        return lambda _r, _a, _l: None
    if parts[1] == "commit_group":
        return lambda resident, _, lanes: resident.matrix_groups.commit(lanes)
    if parts[1] == "wait_group":
        (pending,) = instruction.operands
        assert isinstance(pending, Immediate)
        return lambda resident, _, lanes: resident.matrix_groups.wait(pending.bits, lanes)
    if parts[1] != "mma_async" or "sp" in parts:
        return None
    return _bind_product(decoder, instruction, site)


@dataclass(frozen=True)
class _Form:
    """The product that an instruction computes.

    Attributes:
        product: of raw matrices.
        m, n, k: extents for a warpgroup.
        size: bytes of an element of A and B.
        d: the fragment of D in a warp.
        a: that of A, if it is in registers.
        negative: for A and for B, True if it changes its sign.
        transposed: for A and for B, True if neighbours in M or N lie side by side.
    """

    product: Product
    m: int
    n: int
    k: int
    size: int
    d: Fragment
    a: Fragment | None
    negative: tuple[bool, bool]
    transposed: tuple[bool, bool]


def _form(instruction: PtxInstruction, arch: int) -> _Form | None:
    words = [word for word in instruction.parts[4:] if word != "satfinite"]
    if len(words) != 4:  # products of single bits name their operation too
        return None
    shape, kind_d, kind_a, kind_b = words
    m, n, k = sizes(shape)
    if _DEPTHS.get(kind_a) != k or _DEPTHS.get(kind_b) != k:
        return None
    product = bind_product(kind_d, kind_a, kind_b, kind_d, arch, "satfinite" in instruction.parts, warpgroup=True)
    if product is None:
        return None
    flags = [each.bits for each in instruction.operands[4:] if isinstance(each, Immediate)]
    in_registers = isinstance(instruction.operands[1], Vector)
    scales, turns = (flags[:2] or [1, 1]), flags[2:]
    if in_registers:
        turns = [0, *turns]
    bits = BITS[kind_a]
    return _Form(
        product=product,
        m=m,
        n=n,
        k=k,
        size=bits // 8,
        d=accumulator(m // _WARPS, n, BITS[kind_d]),
        a=multiplicand_a(m // _WARPS, k, bits) if in_registers else None,
        negative=(scales[0] == -1, scales[1] == -1),
        transposed=(bool(turns[:1] == [1]), bool(turns[1:] == [1])),
    )


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _bind_product(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    form = _form(instruction, decoder.decoded.program.arch)
    if form is None:
        return None
    target, a, b, keep, *_ = instruction.operands
    site.approximate = instruction.parts[5] != "s32"
    stores: list[Store] = [decoder.store(each) for each in _items(target)]
    sums: list[Fetch] = [decoder.fetch(each, "b32") for each in _items(target)]
    left: list[Fetch] = [decoder.fetch(each, "b32" if form.a else "b64") for each in _items(a)]
    right, keeps = decoder.fetch(b, "b64"), decoder.fetch(keep, "pred")
    position, written = decoder.position, decoder.decoded.flow(decoder.position).results

    def multiply(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        late = _incomplete(resident, lanes)
        if late is not None and not resident.forced:
            return [(activation, position, lanes, True)]
        if late is not None:
            message = "{who} waits in wgmma for threads of its warpgroup, which do not come"
            resident.reports.about_lanes(FindingKind.INACTIVE_LANE, site, message, late)
            resident.leave(lanes)
            return []
        warps = WholeWarps(lanes, False)
        chosen = np.flatnonzero(warps.active().reshape(-1, WARP).any(axis=1))  # in fours

        def of_warps(fetch: Fetch) -> Array:
            """Return a value for the threads of the warps that take part, (threads,)."""
            return warps.gather(fetch(resident, activation, warps.around)).reshape(-1, WARP)[chosen].reshape(-1)

        groups = len(chosen) // _WARPS
        first = of_warps(right)[::_THREADS]
        operand_b = _in_shared(resident, form, 1, first, chosen, lanes, site)
        if form.a is None:
            operand_a = _in_shared(resident, form, 0, of_warps(left[0])[::_THREADS], chosen, lanes, site)
        else:
            operand_a = form.a.gather(tuple(of_warps(fetch) for fetch in left)).reshape(groups, form.m, form.k)
        start = form.d.gather(tuple(of_warps(fetch) for fetch in sums)).reshape(groups, form.m, form.n)
        start = np.where(of_warps(keeps)[::_THREADS][:, None, None], start, start.dtype.type(0))
        a_signed, b_signed = (
            operand ^ operand.dtype.type(1 << (8 * form.size - 1)) if negative else operand
            for operand, negative in zip((operand_a, operand_b), form.negative, strict=True)
        )
        result = form.product(a_signed, b_signed.swapaxes(1, 2), start)
        registers = form.d.scatter(np.ascontiguousarray(result).reshape(len(chosen), form.m // _WARPS, form.n))
        for store, register in zip(stores, registers, strict=True):
            whole = np.zeros((warps.size // WARP, WARP), register.dtype)
            whole[chosen] = register.reshape(-1, WARP)
            store(activation, warps.scatter(whole.reshape(-1)), lanes)
        if resident.check:
            resident.matrix_groups.begin(activation, written, lanes, site)
        return None

    return multiply


def _incomplete(resident: Resident, lanes: Lanes) -> Lanes | None:
    """Return the threads whose warpgroup is not here as a whole; None if there are none."""
    mask = lanes.to_mask()
    blocks, threads = mask.shape
    padded = np.zeros((blocks, -(-threads // _THREADS) * _THREADS), np.bool_)
    padded[:, :threads] = mask
    by_group = padded.reshape(blocks, -1, _THREADS)
    partial: Array = np.logical_xor(by_group.any(axis=2), by_group.all(axis=2))
    if not partial.any():
        return None
    return Lanes.of((by_group & partial[:, :, None]).reshape(blocks, -1)[:, :threads])


def _in_shared(
    resident: Resident, form: _Form, side: int, bits: Array, chosen: Array, lanes: Lanes, site: Site
) -> Array:
    """Return A (side 0) or B (side 1), (warpgroups, M or N, K) of raw elements, from shared memory."""
    descriptor = read_descriptors(bits)
    extent = form.m if side == 0 else form.n
    kind = raw_type(form.size)
    warps = -(-lanes.extent[1] // WARP)
    rows, groups = lanes.row_ids[chosen[::_WARPS] // warps], chosen[::_WARPS] % warps // _WARPS
    places = descriptor.places(extent, form.k, form.size, form.transposed[side])
    data = np.zeros(places.shape, kind)
    by_address = np.arange(places.shape[1]).reshape(extent, form.k)
    order = (by_address.T if form.transposed[side] else by_address).reshape(-1)  # pieces of 16 bytes side by side
    for group in np.unique(groups):
        at = np.flatnonzero(groups == group)
        copiers = Copiers(rows[at], rows[at], np.full(len(at), int(group) * _THREADS), site)
        low, high = places[at].min(axis=1), places[at].max(axis=1)
        sound = sound_shared(resident, low, CHUNK, CHUNK, copiers, "read")
        sound &= sound_shared(resident, high & -CHUNK, CHUNK, CHUNK, copiers, "read")
        at, copiers = at[sound], copiers.part(sound)
        if len(at):
            if resident.check:
                resident.swizzles.read(copiers, places[at], descriptor.swizzle)
            agent, clock = resident.matrix_groups.start(rows[at], int(group))
            ordered = read_shared(resident, places[at][:, order], kind, copiers, agent, clock)
            data[at[:, None], order] = ordered
    return data.reshape(len(bits), extent, form.k)
