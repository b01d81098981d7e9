"""Trials of tensor maps that a kernel makes itself, field by field, and loads a box by: `tensormap.replace` and others.

What is expected is what the emulator's machine writes.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from kernel_lsp.emulate.tensormap import DRIVER_TYPES, ELEMENT_BYTES, SWIZZLE_BYTES, TensorMap
from tests.bench.ptx_trials.machine import Machine
from tests.bench.ptx_trials.trial import Array, Trial, module

_KINDS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16")
"""By the number that `tensormap.replace` gives a type."""
_FLUSHED = 8
_RANKS = 5
_TILE = 4096  # bytes of shared memory for a box
_DATA = 1 << 16  # bytes that tensors lie in
_WORDS = 32  # of a warp's parameters
_PIECE = 16
_MAP = 128


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Each rank with each swizzle, the types by turns, by `warps` warps that make a map each; none but on Hopper."""
    if arch != 90:
        return
    kinds = [kind for kind in range(len(_KINDS)) if kind != _FLUSHED]
    for rank in range(1, _RANKS + 1):
        for swizzle in range(len(SWIZZLE_BYTES)):
            yield _trial(rng, rank, swizzle, kinds[(4 * rank + swizzle) % len(kinds)], warps)


def _draw(rng: np.random.Generator, rank: int, swizzle: int, kind: int) -> tuple[TensorMap, list[int]]:
    """A map of a tensor at an offset of the data, and the place of a box, in part outside of the tensor."""
    driver_kind = DRIVER_TYPES.get(kind, kind)
    size, most = ELEMENT_BYTES[driver_kind], SWIZZLE_BYTES[swizzle]
    while True:
        inner = most if most and rng.random() < 0.7 else _PIECE * int(rng.integers(1, (most or 256) // _PIECE + 1))
        box = [inner // size, *(int(rng.integers(1, 9)) for _ in range(rank - 1))]
        steps = [1, *(int(rng.choice([1, 1, 1, 2, 3])) for _ in range(rank - 1))]
        shape = [int(rng.integers(box[0] // 2 + 1, 3 * box[0])), *(int(rng.integers(2, 12)) for _ in range(rank - 1))]
        strides, extent = list[int](), shape[0] * size
        for count in shape[1:]:
            strides.append(-(-extent // _PIECE) * _PIECE + _PIECE * int(rng.integers(0, 3)))
            extent = strides[-1] * count
        offset = _PIECE * int(rng.integers(0, 64))
        made = TensorMap(driver_kind, offset, tuple(shape), tuple(strides), tuple(box), tuple(steps), swizzle)
        if offset + extent <= _DATA and made.span(prod(made.counts)) <= _TILE and made.fault() is None:
            break
    piece = _PIECE // size
    first = piece * int(rng.integers(-(box[0] // piece // 2), shape[0] // piece + 1))
    return made, [first, *(int(rng.integers(-1, max(count - 1, 1))) for count in shape[1:])]


def _trial(rng: np.random.Generator, rank: int, swizzle: int, kind: int, warps: int) -> Trial:
    parameters = np.zeros((warps, _WORDS), np.int64)
    for row in parameters:
        made, place = _draw(rng, rank, swizzle, kind)
        row[:2] = made.address, prod(made.counts) * made.element_bytes
        for start, values in ((2, made.shape), (7, made.strides), (11, made.box), (16, made.steps), (21, place)):
            row[start : start + len(values)] = values
    opcode = f"tensormap.replace [{rank}d, {_KINDS[kind]}, swizzle {SWIZZLE_BYTES[swizzle]}]"
    data = _numbers(rng, kind)
    initial = np.zeros(warps * (_TILE + _MAP), np.uint8)
    defined = np.arange(initial.size) < warps * _TILE
    ptx = module("90a", _body(rank, swizzle, kind, warps), _TILE + _MAP + 8)
    given = np.concatenate([parameters.view(np.uint8).reshape(-1), data])
    trial = Trial(opcode, ptx, warps, 32, given, initial, initial, defined, warps)
    return replace(trial, expected=Machine().run(trial))


def _numbers(rng: np.random.Generator, kind: int) -> Array:
    """Bytes of the tensors: any bits, but of floats no NaNs."""
    if not _KINDS[kind].startswith(("f", "b")):
        return rng.integers(0, 256, _DATA, np.uint8)
    if _KINDS[kind] == "bf16":
        return (rng.normal(size=_DATA // 2).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    size = ELEMENT_BYTES[DRIVER_TYPES.get(kind, kind)]
    return rng.normal(size=_DATA // size).astype(f"f{size}").view(np.uint8)


def _body(rank: int, swizzle: int, kind: int, warps: int) -> list[str]:
    each, start = _TILE // 32, warps * _WORDS * 8
    lines = [
        f"mov.u32 %r100, cells; add.u32 %r101, %r100, {_TILE}; add.u32 %r102, %r101, {_MAP};",
        "mad.lo.u32 %r103, %thread, 4, %r101; mov.u32 %r10, 0; st.shared.b32 [%r103], %r10;",
        f"mad.lo.u32 %r104, %thread, {each}, %r100; mov.u64 %x10, 0x5a5a5a5aa5a5a5a5;",
        *(f"st.shared.v2.b64 [%r104+{at}], {{%x10, %x10}};" for at in range(0, each, _PIECE)),
        "setp.eq.u32 %q1, %thread, 0; @%q1 mbarrier.init.shared::cta.b64 [%r102], 1;",
        "fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;",
        f"mul.wide.u32 %x40, %block, {8 * _WORDS}; add.u64 %x40, %x40, %in;",
        f"mul.wide.u32 %x41, %block, {_MAP}; add.u64 %x41, %x41, %out; add.u64 %x41, %x41, {warps * _TILE};",
        "@!%q1 bra MADE;",
        f"ld.global.b64 %x42, [%x40]; add.u64 %x42, %x42, %in; add.u64 %x42, %x42, {start};",
        f"{_replace('global_address', 'b64')} [%r101], %x42;",
        f"{_replace('rank', 'b32')} [%r101], {rank - 1};",
        f"{_replace('elemtype', 'b32')} [%r101], {kind};",
        f"{_replace('interleave_layout', 'b32')} [%r101], 0;",
        f"{_replace('swizzle_mode', 'b32')} [%r101], {swizzle};",
        f"{_replace('fill_mode', 'b32')} [%r101], 0;",
    ]
    for field, first, count in (("global_dim", 2, rank), ("box_dim", 11, rank), ("element_stride", 16, rank)):
        for i in range(count):
            lines.append(f"ld.global.b32 %r10, [%x40+{8 * (first + i)}];")
            lines.append(f"{_replace(field, 'b32')} [%r101], {i}, %r10;")
    stride = _replace("global_stride", "b64")
    lines += [f"ld.global.b64 %x42, [%x40+{8 * (7 + i)}]; {stride} [%r101], {i}, %x42;" for i in range(rank - 1)]
    places = ", ".join(f"%r{20 + i}" for i in range(rank))
    publish = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    copy = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return [
        *lines,
        "MADE: bar.sync 0;",
        f"{publish} [%x41], [%r101], {_MAP};",
        f"fence.proxy.tensormap::generic.acquire.gpu [%x41], {_MAP}; bar.sync 0;",
        *(f"ld.global.b32 %r{20 + i}, [%x40+{8 * (21 + i)}];" for i in range(rank)),
        "ld.global.b32 %r11, [%x40+8];",
        "@%q1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r102], %r11;",
        f"@%q1 {copy} [%r100], [%x41, {{{places}}}], [%r102];",
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r102], 0; @!%q2 bra AGAIN;",
        f"mul.wide.u32 %x43, %block, {_TILE}; mul.wide.u32 %x44, %thread, {each};",
        "add.u64 %x43, %x43, %x44; add.u64 %x43, %x43, %out;",
        *(
            f"ld.shared.v2.b64 {{%x46, %x47}}, [%r104+{at}]; st.global.v2.b64 [%x43+{at}], {{%x46, %x47}};"
            for at in range(0, each, _PIECE)
        ),
    ]


def _replace(field: str, kind: str) -> str:
    return f"tensormap.replace.tile.{field}.shared::cta.b1024.{kind}"
