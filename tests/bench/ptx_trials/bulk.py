"""Trials of bulk copies: each thread copies some pieces of 16 bytes, to its own or another block, or out of it."""

from collections.abc import Iterator

import numpy as np

from kernel_lsp.emulate import atomics
from tests.bench.ptx_trials.clusters import MEET, THREADS, Cluster, cluster_of
from tests.bench.ptx_trials.trial import Array, Trial, module, numbers, words

_CHUNK = 64  # bytes of shared memory of each thread
_PIECE = 16
_BARRIERS = THREADS * _CHUNK
_REDUCTIONS = (
    *(f"{name}.{kind}" for name in ("add", "min", "max") for kind in ("u32", "s32", "u64")),
    *(f"{name}.s64" for name in ("min", "max")),
    *(f"{name}.{kind}" for name in ("and", "or", "xor") for kind in ("b32", "b64")),
    *("inc.u32", "dec.u32", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16"),
    *(f"{name}.{kind}" for name in ("min", "max") for kind in ("f16", "bf16")),
)
_ELEMENTS = {"f16": "f2", "f32": "f4", "f64": "f8", "bf16": "u2"}


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Copies in each direction and every reduction, each started by all threads of `warps` warps."""
    if arch < 90:
        return
    cluster, ending = cluster_of(warps), "mbarrier::complete_tx::bytes"
    for target in ("shared::cluster", "shared::cta"):
        yield _load(rng, arch, f"cp.async.bulk.{target}.global.{ending}", cluster)
    yield _load(rng, arch, f"cp.async.bulk.shared::cluster.global.{ending}.multicast::cluster", cluster)
    yield _send(rng, arch, f"cp.async.bulk.shared::cluster.shared::cta.{ending}", cluster)
    yield _store(rng, arch, "cp.async.bulk.global.shared::cta.bulk_group", "u8", cluster)
    for form in _REDUCTIONS:
        opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form}"
        for spread in ("normal", "any") if form.rpartition(".")[2] in _ELEMENTS else ("any",):
            yield _store(rng, arch, opcode, form.rpartition(".")[2], cluster, spread)


_BEGIN = [
    f"mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, {_CHUNK}, %r100;",
    f"mad.lo.u32 %r102, %thread, 8, %r100; add.u32 %r102, %r102, {_BARRIERS};",
    "mul.lo.u64 %x40, %wide, 8; add.u64 %x41, %in, %wide; ld.global.v2.b32 {%r10, %r11}, [%x41];",
    "mbarrier.init.shared::cta.b64 [%r102], 1; fence.mbarrier_init.release.cluster;",
]
_AWAIT = (
    "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q1, [%r102], 0; @!%q1 bra AGAIN;"
)  # fmt: skip
_KEEP = [
    "add.u64 %x43, %out, %x40;",
    *(
        f"ld.shared.v2.b64 {{%x44, %x45}}, [%r101+{at}]; st.global.v2.b64 [%x43+{at}], {{%x44, %x45}};"
        for at in range(0, _CHUNK, _PIECE)
    ),
]


def _fill(start: int) -> list[str]:
    """Bring a thread's chunk from an array of chunks behind `start` to shared memory."""
    return [
        "add.u64 %x42, %in, %x40;",
        *(
            f"ld.global.v2.b64 {{%x44, %x45}}, [%x42+{start + at}]; st.shared.v2.b64 [%r101+{at}], {{%x44, %x45}};"
            for at in range(0, _CHUNK, _PIECE)
        ),
        "fence.proxy.async;",
    ]


def _drawn(rng: np.random.Generator, cluster: Cluster) -> tuple[Array, Array, Array]:
    """What is copied and what is there before, (threads, `_CHUNK`) bytes each, and how many bytes are copied."""
    source, before = (rng.integers(0, 256, (cluster.threads, _CHUNK), np.uint8) for _ in range(2))
    return source, before, _PIECE * rng.integers(1, _CHUNK // _PIECE + 1, cluster.threads)


def _load(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Chunks of global memory into each thread's own one, or by multicast into those of several blocks."""
    n, size = cluster.threads, cluster.size
    source, before, nbytes = _drawn(rng, cluster)
    several = "multicast" in opcode
    group = np.arange(n) // (size * THREADS) * THREADS + np.arange(n) % THREADS  # threads of equal number in a cluster
    groups, rank = n // size, cluster.block % size
    leader, mask = rng.integers(0, size, groups)[group], rng.integers(1, 2**size, groups)[group]
    nbytes = nbytes[:groups][group] if several else nbytes
    leads, takes = (leader == rank, mask >> rank & 1 > 0) if several else (np.ones(n, np.bool_),) * 2
    final = before.copy()
    for part in range(0, _CHUNK, _PIECE):
        here = np.flatnonzero(takes & (nbytes > part))
        origin = here % THREADS + THREADS * (cluster.block[here] // size * size + leader[here]) if several else here
        final[here, part : part + _PIECE] = source[origin, part : part + _PIECE]
    flags = leads | takes.astype(np.int64) << 1 | (mask << 2 if several else 0)
    body = [
        *_BEGIN,
        *_fill((8 + _CHUNK) * n),
        "and.b32 %r12, %r11, 1; setp.ne.u32 %q2, %r12, 0; and.b32 %r12, %r11, 2; setp.ne.u32 %q3, %r12, 0;",
        "shr.u32 %r12, %r11, 2; cvt.u16.u32 %h10, %r12; add.u64 %x42, %in, %x40;",
        f"@%q3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r102], %r10; {MEET}",
        f"@%q2 {opcode} [%r101], [%x42+{8 * n}], %r10, [%r102]{', %h10' if several else ''};",
        "@!%q3 bra KEPT;",
        _AWAIT,
        "KEPT:",
        *_KEEP,
        MEET,
    ]
    given = [words([nbytes | flags << 32]).view(np.uint8), source.reshape(-1), before.reshape(-1)]
    return _trial(arch, opcode, body, given, np.zeros_like(final), final, cluster)


def _send(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Chunks of shared memory into the partners' second ones."""
    n, partner = cluster.threads, cluster.partner(rng)
    source, before, nbytes = _drawn(rng, cluster)
    nbytes = np.minimum(nbytes, _CHUNK // 2)
    final, half = before.copy(), _CHUNK // 2
    for part in range(0, half, _PIECE):
        sends = np.flatnonzero(nbytes > part)
        final[partner[sends], half + part : half + part + _PIECE] = source[sends, part : part + _PIECE]
    final[:, :half] = source[:, :half]
    comes = np.zeros(n, np.int64)
    comes[partner] = nbytes
    place = partner // THREADS % cluster.size | partner % THREADS << 16
    body = [
        *_BEGIN,
        *_fill(16 * n),
        f"ld.global.b32 %r12, [%x41+{8 * n}];",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r102], %r12; {MEET}",
        "and.b32 %r13, %r11, 65535; shr.u32 %r14, %r11, 16;",
        f"mad.lo.u32 %r15, %r14, {_CHUNK}, %r100; mad.lo.u32 %r16, %r14, 8, %r100; add.u32 %r16, %r16, {_BARRIERS};",
        "mapa.shared::cluster.u32 %r15, %r15, %r13; mapa.shared::cluster.u32 %r16, %r16, %r13;",
        f"add.u32 %r15, %r15, {half}; {opcode} [%r15], [%r101], %r10, [%r16];",
        _AWAIT,
        *_KEEP,
        MEET,
    ]
    first = np.concatenate([source[:, :half], before[:, half:]], axis=1)
    given = [words([nbytes | place << 32, comes]).view(np.uint8), first.reshape(-1)]
    return _trial(arch, opcode, body, given, np.zeros_like(final), final, cluster)


def _store(rng: np.random.Generator, arch: int, opcode: str, kind: str, cluster: Cluster, spread: str = "any") -> Trial:
    """Chunks of shared memory into global memory, or onto what is there."""
    n = cluster.threads
    source, before, nbytes = _drawn(rng, cluster)
    if "reduce" in opcode:
        source, before = (_numbers(rng, kind, n, spread) for _ in range(2))
    final, copied = before.copy(), np.arange(_CHUNK) < nbytes[:, None]
    final[copied] = _changed(opcode, kind, before, source)[copied]
    body = [
        *_BEGIN,
        *_fill(8 * n),
        f"add.u64 %x43, %out, %x40; {opcode} [%x43], [%r101], %r10;",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    ]
    element = np.dtype(_ELEMENTS.get(kind) or f"u{int(kind[1:]) // 8}")
    given = [words([nbytes]).view(np.uint8), source.reshape(-1)]
    opcode += f" [{spread}]" if kind in _ELEMENTS else ""
    return _trial(arch, opcode, body, given, before, final.reshape(-1).view(element), cluster)


def _numbers(rng: np.random.Generator, kind: str, n: int, spread: str) -> Array:
    """Chunks of numbers of a type: ordinary ones, or any bits."""
    count = n * _CHUNK // numbers(rng, kind, 1).itemsize
    found = numbers(rng, kind, count)
    if spread == "normal":
        values = rng.normal(size=count) * np.exp2(rng.integers(-6, 7, count))
        wide = values.astype(np.float32).view(np.uint32) >> 16
        found = wide.astype(np.uint16) if kind == "bf16" else values.astype(f"f{found.itemsize}")
    return found.view(np.uint8).reshape(n, _CHUNK)


def _changed(opcode: str, kind: str, before: Array, source: Array) -> Array:
    """What is there after a copy, or a reduction, of whole chunks."""
    if "reduce" not in opcode:
        return source
    name = opcode.split(".")[7]
    operation = atomics.bind(f"red.global.{name}.{kind}", shared=(name, kind) == ("add", "f32"))  # keeps subnormals
    assert operation is not None
    unsigned = np.dtype(f"u{operation.width}")
    old, new = (np.ascontiguousarray(array).reshape(-1).view(unsigned) for array in (before, source))
    return operation.update(old, new).view(np.uint8).reshape(before.shape)


def _trial(
    arch: int, opcode: str, body: list[str], given: list[Array], before: Array, final: Array, cluster: Cluster
) -> Trial:
    ptx = module(arch, body, _BARRIERS + 8 * THREADS, cluster.size)
    expected = final.reshape(-1)
    ones, initial = np.ones(expected.size, np.bool_), before.reshape(-1)
    inputs = np.concatenate(given)
    return Trial(opcode, ptx, cluster.blocks, THREADS, inputs, initial, expected, ones, cluster.threads // 32)
