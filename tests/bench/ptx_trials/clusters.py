"""Trials in clusters of up to eight blocks: ranks, addresses, and what threads do to another block's shared memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from kernel_lsp.emulate import atomics
from tests.bench.ptx_trials import cells
from tests.bench.ptx_trials.trial import Array, Trial, module, numbers, stores, vector, words

THREADS = 128
_CELL = 16  # bytes of shared memory of each thread
_MOST = 8  # blocks of a cluster
MEET = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
_ACCESSES = ("b8", "b16", "b32", "b64", "v2.b16", "v2.b32", "v2.b64", "v4.b8", "v4.b32")
_ORDERS = {
    "ld": ("", ".weak", ".volatile", ".relaxed.cluster", ".acquire.cluster"),
    "st": ("", ".weak", ".volatile", ".relaxed.cluster", ".release.cluster"),
}
_REGISTERS = {
    **{f"%cluster_ctaid.{axis}": lambda b, size, blocks, a=axis: b % size if a == "x" else 0 * b for axis in "xyz"},
    **{f"%cluster_nctaid.{axis}": lambda b, size, blocks, a=axis: 0 * b + (size if a == "x" else 1) for axis in "xyz"},
    **{f"%clusterid.{axis}": lambda b, size, blocks, a=axis: b // size if a == "x" else 0 * b for axis in "xyz"},
    **{
        f"%nclusterid.{axis}": lambda b, size, blocks, a=axis: 0 * b + (blocks // size if a == "x" else 1)
        for axis in "xyz"
    },
    "%cluster_ctarank": lambda b, size, blocks: b % size,
    "%cluster_nctarank": lambda b, size, blocks: 0 * b + size,
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the threads of a trial are spread: `blocks` of `THREADS`, of which `size` are a cluster."""

    blocks: int
    size: int

    @property
    def threads(self) -> int:
        """All threads."""
        return self.blocks * THREADS

    @property
    def block(self) -> Array:
        """Each thread's block."""
        return np.arange(self.threads) // THREADS

    def partner(self, rng: np.random.Generator) -> Array:
        """A thread of its own cluster for each thread, and each once."""
        each = self.size * THREADS
        order = np.argsort(rng.random((self.threads // each, each)), axis=1)
        return (order + each * np.arange(self.threads // each)[:, None]).reshape(-1)

    def place(self, thread: Array) -> Array:
        """The rank of a thread's block, and above it the offset of the thread's cell."""
        return thread // THREADS % self.size | thread % THREADS * _CELL << 32


def cluster_of(warps: int) -> Cluster:
    """The largest clusters into which the blocks of so many warps divide."""
    blocks = 32 * warps // THREADS
    return Cluster(blocks, next(size for size in (8, 4, 2, 1) if blocks % size == 0 and size <= _MOST))


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every way to name and use another block's shared memory, each by `warps` warps."""
    if arch < 90:
        return
    cluster = cluster_of(warps)
    for name, value in _REGISTERS.items():
        expected = words([value(cluster.block, cluster.size, cluster.blocks)])
        yield _plain(arch, name, [f"mov.u32 %r10, {name};"], ["%r10"], expected, np.zeros(1, np.uint64), cluster)
    yield from _addresses(rng, arch, cluster)
    for kind in _ACCESSES:
        for way in (".shared::cluster", ""):
            for order in _ORDERS["ld"] if kind == "b32" else ("",):
                yield _load(rng, arch, f"ld{order}{way}.{kind}", cluster)
            for order in _ORDERS["st"] if kind == "b32" else ("",):
                yield _store(rng, arch, f"st{order}{way}.{kind}", cluster)
    for form in cells.FORMS:
        if form.endswith("x2"):
            continue  # ptxas to 13.0 makes sums of integers of them, which are not atomic
        yield _atomic(rng, arch, f"atom.shared::cluster.{form}", cluster)
        if not form.startswith(("exch", "cas")):
            yield _atomic(rng, arch, f"red.shared::cluster.{form}", cluster)
        if form in ("add.u32", "cas.b64", "add.f32"):
            yield _atomic(rng, arch, f"atom.{form}", cluster)
    for opcode in ("arrive", "arrive_drop"):
        for order in ("release", "relaxed"):
            yield _arrivals(rng, arch, f"mbarrier.{opcode}.{order}.cluster.shared::cluster.b64", cluster)
            yield _arrivals(rng, arch, f"mbarrier.{opcode}.expect_tx.{order}.cluster.shared::cluster.b64", cluster)


def _plain(
    arch: int, opcode: str, body: list[str], results: list[str], expected: Array, given: Array, cluster: Cluster
) -> Trial:
    """One result of four or eight bytes for each thread."""
    ptx = module(arch, [*body, *stores(results, cluster.threads)], THREADS * _CELL, cluster.size)
    ones = np.ones(expected.size, np.bool_)
    zeros = np.zeros_like(expected)
    return Trial(opcode, ptx, cluster.blocks, THREADS, given, zeros, expected, ones, cluster.threads // 32)


def _named(generic: bool) -> list[str]:
    """The partner's cell: its rank in %r20; its address in %r21, or in %x21 if it is a generic one."""
    lines = [
        "add.u64 %at, %in, %wide; ld.global.v2.b32 {%r20, %r22}, [%at];",
        "mov.u32 %r23, cells; add.u32 %r22, %r22, %r23; mapa.shared::cluster.u32 %r21, %r22, %r20;",
    ]
    if generic:
        lines.append("cvt.u64.u32 %x20, %r22; cvta.shared.u64 %x20, %x20; mapa.u64 %x21, %x20, %r20;")
    return lines


def _addresses(rng: np.random.Generator, arch: int, cluster: Cluster) -> Iterator[Trial]:
    """Ranks of addresses, and the spaces that they lie in."""
    partner = cluster.partner(rng)
    given, ranks = words([cluster.place(partner)]), words([partner // THREADS % cluster.size])
    far, ones = words([partner // THREADS != cluster.block]), np.ones(cluster.threads, np.uint64)

    def one(opcode: str, lines: str, expected: Array) -> Trial:
        body = [*_named(True), lines, MEET]
        return _plain(arch, opcode, body, ["%r10"], expected, given, cluster)

    yield one("getctarank.shared::cluster.u32", "getctarank.shared::cluster.u32 %r10, %r21;", ranks)
    yield one("getctarank.u64", "getctarank.u64 %r10, %x21;", ranks)
    own = words([cluster.block % cluster.size])
    yield one("getctarank.shared::cluster.u32 [own]", "getctarank.shared::cluster.u32 %r10, %r22;", own)
    yield one("getctarank.u64 [own]", "getctarank.u64 %r10, %x20;", own)
    for space, where, holds in (
        ("shared::cluster", "%x21", ones),
        ("shared::cluster", "%x20", ones),
        ("shared::cta", "%x20", ones),
        ("global", "%x21", 0 * ones),
        ("local", "%x21", 0 * ones),
    ):
        lines = f"isspacep.{space} %q1, {where}; selp.b32 %r10, 1, 0, %q1;"
        yield one(f"isspacep.{space} [{'mapped' if where == '%x21' else 'own'}]", lines, holds)
    lines = "isspacep.shared::cta %q1, %x21; selp.b32 %r10, 1, 0, %q1;"
    yield replace(one("isspacep.shared::cta [mapped]", lines, 0 * ones), defined=far > 0)  # own block: not said


_FILL = [
    "mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, 16, %r100; add.u64 %x40, %wide, %wide; add.u64 %x41, %in, %x40;",
    "ld.global.v2.b64 {%x42, %x43}, [%x41+START]; st.shared.v2.b64 [%r101], {%x42, %x43};",
    MEET,
]
_KEEP = [
    MEET,
    "ld.shared.v2.b64 {%x42, %x43}, [%r101]; add.u64 %x41, %out, %x40; st.global.v2.b64 [%x41], {%x42, %x43};",
]
_NAMES: dict[int, Callable[[int], str]] = {
    1: lambda i: f"%h{10 + i}",
    2: lambda i: f"%h{10 + i}",
    4: lambda i: f"%r{10 + i}",
    8: lambda i: f"%x{10 + i}",
}


def _parts(opcode: str) -> tuple[list[str], int, int]:
    """The registers of an access, the bytes of each, and their number."""
    words = opcode.split(".")
    count = 2 if "v2" in words else 4 if "v4" in words else 1
    size = int(words[-1][1:]) // 8
    return [_NAMES[size](i) for i in range(count)], size, count


def _filled(start: int) -> list[str]:
    return [line.replace("START", str(start)) for line in _FILL]


def _where(opcode: str) -> str:
    return "[%r21]" if "shared::cluster" in opcode else "[%x21]"


def _load(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Each thread reads the cell of its partner."""
    n, partner = cluster.threads, cluster.partner(rng)
    memory = rng.integers(0, 256, (n, _CELL), np.uint8)
    names, size, count = _parts(opcode)
    read = memory[partner][:, : size * count].reshape(n, count, size)
    bits = 8 * size
    body = [
        *_filled(8 * n),
        *_named("shared::cluster" not in opcode),
        f"{opcode} {vector(names)}, {_where(opcode)};",
        MEET,
        "add.u64 %x41, %out, %x40;",
    ]
    body += [f"st.global.b{bits} [%x41+{size * i}], {name};" for i, name in enumerate(names)]
    expected = np.zeros((n, _CELL), np.uint8)
    expected[:, : size * count] = read.reshape(n, -1)
    return _cells(arch, opcode, body, partner, memory, expected.reshape(-1), cluster)


def _store(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Each thread writes to the cell of its partner."""
    n, partner = cluster.threads, cluster.partner(rng)
    memory, data = (rng.integers(0, 256, (n, _CELL), np.uint8) for _ in range(2))
    names, size, count = _parts(opcode)
    body = [*_filled(8 * n), *_named("shared::cluster" not in opcode), "add.u64 %x41, %in, %x40;"]
    body += [f"ld.global.b{8 * size} {name}, [%x41+{(8 + _CELL) * n + size * i}];" for i, name in enumerate(names)]
    body += [f"{opcode} {_where(opcode)}, {vector(names)};", *_KEEP]
    expected = memory.copy()
    expected[partner, : size * count] = data[:, : size * count]
    return _cells(arch, opcode, body, partner, np.concatenate([memory, data]), expected.reshape(-1), cluster)


def _atomic(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Each thread updates the cell of its partner, and may keep what was there."""
    n, partner = cluster.threads, cluster.partner(rng)
    operation = atomics.bind(opcode, shared=True)
    assert operation is not None
    width, kind = operation.width, opcode.rpartition(".")[2].removesuffix("x2")
    memory, *given = (np.zeros((n, _CELL), np.uint8) for _ in range(1 + operation.operands))
    each = numbers(rng, kind, 1).itemsize
    for array in (memory, *given):
        array[:, :width] = numbers(rng, kind, n * width // each).view(np.uint8).reshape(n, width)
    same = rng.random(n) < 0.3
    given[0][same] = memory[partner[same]]
    unsigned = np.dtype(f"u{width}")
    old = np.ascontiguousarray(memory[partner, :width]).view(unsigned)[:, 0]
    operands = (np.ascontiguousarray(array[:, :width]).view(unsigned)[:, 0] for array in given)
    final = memory.copy()
    final[partner, :width] = operation.update(old, *operands).view(np.uint8).reshape(n, width)
    returns = opcode.startswith("atom")
    names = [_NAMES[width](1 + i) for i in range(operation.operands)]
    result = _NAMES[width](0)
    body = [*_filled(8 * n), *_named("shared::cluster" not in opcode), "add.u64 %x41, %in, %x40;"]
    body += [f"ld.global.b{8 * width} {name}, [%x41+{(8 + _CELL * (1 + i)) * n}];" for i, name in enumerate(names)]
    body += [f"{opcode} {result + ', ' if returns else ''}{_where(opcode)}, {', '.join(names)};", *_KEEP]
    if returns:
        body.append(f"st.global.b{8 * width} [%x41+{_CELL * n}], {result};")
    olds = np.zeros((n, _CELL), np.uint8)
    olds[:, :width] = old.view(np.uint8).reshape(n, width) * returns
    element = np.dtype({"f16": "f2", "f32": "f4", "f64": "f8"}.get(kind, f"u{min(width, 2 if kind == 'bf16' else 8)}"))
    expected = np.concatenate([final.reshape(-1), olds.reshape(-1)]).view(element)
    return _cells(arch, opcode, body, partner, np.concatenate([memory, *given]), expected, cluster)


def _cells(
    arch: int, opcode: str, body: list[str], partner: Array, memory: Array, expected: Array, cluster: Cluster
) -> Trial:
    """A trial whose input are the places of partners, then cells; all of its output is compared."""
    given = np.concatenate([words([cluster.place(partner)]).view(np.uint8), memory.reshape(-1)])
    ptx, ones = module(arch, body, THREADS * _CELL, cluster.size), np.ones(expected.size, np.bool_)
    zeros = np.zeros(expected.nbytes, np.uint8)
    return Trial(opcode, ptx, cluster.blocks, THREADS, given, zeros, expected, ones, cluster.threads // 32)


def _arrivals(rng: np.random.Generator, arch: int, opcode: str, cluster: Cluster) -> Trial:
    """Threads arrive at barriers anywhere in their cluster, some of which get all their arrivals so."""
    n, each = cluster.threads, cluster.size * THREADS
    target = np.arange(n) // each * each + rng.integers(0, each, n)
    announces = "expect_tx" in opcode
    amounts = rng.integers(1, 6, n)
    came = np.bincount(target, None if announces else amounts, n).astype(np.int64)
    expected = np.maximum(came + np.where(rng.random(n) < 0.5, 0, rng.integers(1, 4, n)), 1) + ("drop" in opcode)
    nbytes = np.bincount(target, amounts, n).astype(np.int64) if announces else np.zeros(n, np.int64)
    brought = np.where(rng.random(n) < 0.7, nbytes, nbytes // 2)
    over = (came == expected - ("drop" in opcode)) & (expected - ("drop" in opcode) > 0) & (brought == nbytes)
    given = words([cluster.place(target), amounts, expected, brought])
    body = [
        "mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, 16, %r100; add.u64 %x41, %in, %wide;",
        *(f"ld.global.b32 %r{30 + i}, [%x41+{8 * n * (1 + i)}];" for i in range(3)),
        "mbarrier.init.shared::cta.b64 [%r101], %r31; fence.mbarrier_init.release.cluster;",
        "mbarrier.arrive.shared::cta.b64 _, [%r101];" if "drop" in opcode else "",
        MEET,
        *_named(False),
        f"{opcode} _, [%r21], %r30;",
        MEET,
        "setp.ne.u32 %q1, %r32, 0; @%q1 mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [%r101], %r32;",
        "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %q2, [%r101], 0; selp.b32 %r10, 1, 0, %q2;",
        MEET,
    ]
    return _plain(arch, opcode, body, ["%r10"], words([over]), given, cluster)
