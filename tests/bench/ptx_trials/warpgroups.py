"""Trials of `wgmma`: A and the sums in registers, B in shared memory without a swizzle."""

from collections.abc import Iterator

import numpy as np

from kernel_lsp.emulate.matrix.fragments import accumulator, multiplicand_a
from kernel_lsp.emulate.matrix.mma import bind_product
from tests.bench.ptx_trials.matrices import BITS, ELEMENT, draw, draw_registers, spreads
from tests.bench.ptx_trials.trial import Array, Trial, loads, module, stores, words

_ARCH = 90
_TARGET = "90a"
_WARPS = 4  # of a warpgroup
_ROWS = 16  # of A, in a warp
_DEPTH_BYTES = 32
_FORMS = (
    *(("f32", kind, kind) for kind in ("f16", "bf16", "tf32")),
    ("f16", "f16", "f16"),
    *(("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
    *((d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
)
_WIDTHS = (8, 32)


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every pair of types in two widths, each executed by `warps` warps; none but on Hopper."""
    if arch != _ARCH:
        return
    for d, a, b in _FORMS:
        for n in _WIDTHS:
            for limit in ("", ".satfinite") if d == "s32" else ("",):
                for spread in spreads(a):
                    yield _product(rng, (d, a, b), n, limit, spread, warps)


def _product(
    rng: np.random.Generator, kinds: tuple[str, str, str], n: int, limit: str, spread: str, warps: int
) -> Trial:
    d, a, b = kinds
    k, lanes, groups = _DEPTH_BYTES * 8 // BITS[a], 32 * warps, warps // _WARPS
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}{limit}"
    left = draw_registers(rng, a, _ROWS * k, lanes, spread)
    sums = draw_registers(rng, d, _ROWS * n, lanes, spread)
    right = draw(rng, b, groups * n * k, spread).reshape(groups, n, k)
    product = bind_product(d, a, b, d, _ARCH, bool(limit), warpgroup=True)
    assert product is not None
    matrices = (
        multiplicand_a(_ROWS, k, BITS[a]).gather(left).reshape(groups, _WARPS * _ROWS, k),
        right.swapaxes(1, 2),
        accumulator(_ROWS, n, BITS[d]).gather(sums).reshape(groups, _WARPS * _ROWS, n),
    )
    made = np.ascontiguousarray(product(*matrices)).reshape(warps, _ROWS, n)
    results = accumulator(_ROWS, n, BITS[d]).scatter(made)
    targets, given = ([f"%r{first + i}" for i in range(len(of))] for first, of in ((10, sums), (50, left)))
    held = words([*sums, *left])
    body = [
        *loads([*targets, *given], lanes),
        *_fill(held.nbytes, n),
        "wgmma.fence.sync.aligned; setp.eq.u32 %q1, 0, 0;",
        f"{opcode} {{{', '.join(targets)}}}, {{{', '.join(given)}}}, %x50, %q1{_flags(a)};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *stores(targets, lanes),
    ]
    expected = words(results).view(ELEMENT[d])
    defined = np.zeros(words(results).nbytes, np.bool_).reshape(-1, 8)
    defined[:, : results[0].itemsize] = True
    return Trial(
        f"{opcode} [{spread}]",
        module(_TARGET, body, n * _DEPTH_BYTES),
        groups,
        32 * _WARPS,
        np.concatenate([held.view(np.uint8), _pieces(right, n).reshape(-1)]),
        np.zeros(lanes * len(results), np.uint64),
        expected,
        defined.reshape(-1, expected.itemsize)[:, 0],
        warps,
    )


def _flags(kind: str) -> str:
    """Signs of A and B, which integers do not have, and how B lies, which 16-bit numbers may choose."""
    return {8: "" if kind in ("s8", "u8") else ", 1, 1", 16: ", 1, 1, 0", 32: ", 1, 1"}[BITS[kind]]


def _pieces(right: Array, n: int) -> Array:
    """The bytes of B (groups, N, K) as shared memory has them: pieces of 16 bytes of all rows, then the next ones."""
    rows = np.ascontiguousarray(right).view(np.uint8).reshape(len(right), n, _DEPTH_BYTES // 16, 16)
    return np.ascontiguousarray(rows.swapaxes(1, 2))


def _fill(start: int, n: int) -> list[str]:
    """Bring a block's B from `start` on to shared memory, and its descriptor to %x50."""
    nbytes = n * _DEPTH_BYTES
    fixed = (16 * n >> 4) << 16 | (128 >> 4) << 32
    return [
        f"mul.wide.u32 %x40, %block, {nbytes}; mul.wide.u32 %x41, %thread, 16;",
        f"add.u64 %x40, %x40, %x41; add.u64 %x40, %x40, %in; setp.lt.u32 %q0, %thread, {nbytes // 16};",
        "mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, 16, %r100;",
        f"@%q0 ld.global.v2.b64 {{%x42, %x43}}, [%x40+{start}]; @%q0 st.shared.v2.b64 [%r101], {{%x42, %x43}};",
        "fence.proxy.async.shared::cta; bar.sync 0;",
        f"shr.u32 %r100, %r100, 4; cvt.u64.u32 %x50, %r100; or.b64 %x50, %x50, {fixed};",
    ]
