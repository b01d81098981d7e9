"""Trials of mma.sync, wmma, ldmatrix, stmatrix and movmatrix."""

from collections.abc import Iterator

import numpy as np

from kernel_lsp.emulate.matrix import MatrixAccess, MatrixOperation, bind
from tests.bench.ptx_trials.trial import Array, Trial, loads, module, numbers, stores, vector, words

BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
ELEMENT = {"f64": "f8", "f32": "f4", "s32": "u4", "f16": "f2"}


def trials(rng: np.random.Generator, arch: int, warps: int) -> Iterator[Trial]:
    """Every dense shape and type, each executed by `warps` warps; tensor cores take numbers of all kinds of sizes."""
    for opcode, shape, kinds in _products(arch):
        for spread in spreads(kinds[1]):
            yield _mma(rng, arch, opcode, shape, kinds, spread, warps)
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            yield _ldmatrix(rng, arch, f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", warps)
            if arch >= 90:
                yield _stmatrix(rng, arch, f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", count, warps)
    yield _movmatrix(rng, arch, warps)
    for shape, kind, wide in _WMMA:
        for a, b in (("row", "col"),) if BITS[kind] < 8 else (("row", "col"), ("col", "row"), ("row", "row")):
            for spread in spreads(kind):
                yield _wmma(rng, arch, shape, (a, b), kind, wide, spread, warps)


_INTEGER_SHAPES = {
    8: ("m8n8k16", "m16n8k16", "m16n8k32"),
    4: ("m8n8k32", "m16n8k32", "m16n8k64"),
}
_WMMA = [
    *((shape, "f16", wide) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for wide in ("f16", "f32")),
    *((shape, "bf16", "f32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16")),
    *((shape, kind, "s32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for kind in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32"),
    ("m8n8k4", "f64", "f64"),
    ("m8n8k32", "s4", "s32"),
    ("m8n8k32", "u4", "s32"),
    ("m8n8k128", "b1", "s32"),
]


def _products(arch: int) -> Iterator[tuple[str, str, tuple[str, str, str, str]]]:
    """Opcodes of mma.sync with their shape and the types of D, A, B and C."""

    def opcode(shape: str, d: str, a: str, b: str, c: str, before: str = "", after: str = "") -> str:
        return f"mma.sync.aligned.{shape}.row.col{before}.{d}.{a}.{b}.{c}{after}"

    for bits, shapes in _INTEGER_SHAPES.items():
        for shape in shapes:
            for a in "su":
                for b in "su":
                    for saturate in ("", ".satfinite"):
                        kinds = ("s32", f"{a}{bits}", f"{b}{bits}", "s32")
                        yield opcode(shape, *kinds, before=saturate), shape, kinds
    for shape in ("m8n8k128", "m16n8k128", "m16n8k256"):
        for operation in ("xor", "and"):
            kinds = ("s32", "b1", "b1", "s32")
            yield opcode(shape, *kinds, after=f".{operation}.popc"), shape, kinds
    floats = [
        *((shape, "f16", "f16", wide) for shape in ("m16n8k8", "m16n8k16") for wide in ("f16", "f32")),
        *((shape, "bf16", "bf16", "f32") for shape in ("m16n8k8", "m16n8k16")),
        *((shape, "tf32", "tf32", "f32") for shape in ("m16n8k4", "m16n8k8")),
        ("m8n8k4", "f64", "f64", "f64"),
    ]
    if arch >= 90:
        floats += [(shape, "f64", "f64", "f64") for shape in ("m16n8k4", "m16n8k8", "m16n8k16")]
    if arch >= 89:
        bytes_ = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
        floats += [(s, a, b, wide) for s in ("m16n8k16", "m16n8k32") for a, b in bytes_ for wide in ("f16", "f32")]
    for shape, a, b, wide in floats:
        yield opcode(shape, wide, a, b, wide), shape, (wide, a, b, wide)


def spreads(kind: str) -> tuple[str, ...]:
    """How the numbers of a type are drawn."""
    return ("normal", "wide", "any") if kind in ("f16", "bf16", "tf32", "f64", "e4m3", "e5m2") else ("any",)


def draw(rng: np.random.Generator, kind: str, n: int, spread: str) -> Array:
    """n numbers (bytes of packed ones below 8 bits) of one spread: of size 1, of all sizes, or any bits at all."""
    if spread == "any" or kind not in ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2"):
        return numbers(rng, kind, n)
    if kind in ("e4m3", "e5m2"):
        low, high = (0x28, 0x48) if spread == "normal" else (0, 0x7B)
        return (rng.integers(low, high, n) | rng.integers(0, 2, n) << 7).astype(np.uint8)
    sizes = np.zeros(n) if spread == "normal" else rng.integers(-22, 6, n)
    x = np.ldexp(rng.normal(size=n), sizes.astype(np.int64))
    match kind:
        case "bf16":
            return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "f16":
            return x.astype(np.float16).view(np.uint16)
        case "f64":
            return x.view(np.uint64)
        case _:
            return x.astype(np.float32).view(np.uint32)


def draw_registers(rng: np.random.Generator, kind: str, elements: int, n: int, spread: str) -> tuple[Array, ...]:
    """Registers of (n,) for a fragment of so many elements in all lanes of a warp."""
    width = max(BITS[kind], 32)
    count = elements // 32 * BITS[kind] // width
    drawn = draw(rng, kind, n * count * width // max(BITS[kind], 8), spread)
    return tuple(drawn.view(f"u{width // 8}").reshape(count, n))


def _sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def _names(prefix: str, first: int, registers: tuple[Array, ...]) -> list[str]:
    return [f"%{prefix}{first + i}" for i in range(len(registers))]


def _mma(
    rng: np.random.Generator, arch: int, opcode: str, shape: str, kinds: tuple[str, ...], spread: str, warps: int
) -> Trial:
    operation = bind(opcode, arch)
    assert isinstance(operation, MatrixOperation)
    lanes = 32 * warps
    m, n, k = _sizes(shape)
    counts = (m * k, k * n, m * n)
    operands = [draw_registers(rng, kind, count, lanes, spread) for kind, count in zip(kinds[1:], counts, strict=True)]
    results = operation.run(np.ones(lanes, np.bool_), *operands)
    prefix = "x" if kinds[0] == "f64" else "r"
    names = [_names(prefix, first, registers) for first, registers in zip((20, 30, 40), operands, strict=True)]
    targets = _names(prefix, 10, results)
    form = ", ".join("{" + ", ".join(group) + "}" for group in (targets, *names))
    body = [
        *loads([name for group in names for name in group], lanes),
        f"{opcode} {form};",
        *stores(targets, lanes),
    ]
    expected = words(results).view(ELEMENT[kinds[0]])
    defined = np.zeros(words(results).nbytes, np.bool_).reshape(-1, 8)
    defined[:, : results[0].itemsize] = True
    return Trial(
        f"{opcode} [{spread}]",
        module(arch, body),
        warps,
        32,
        words([register for operand in operands for register in operand]),
        np.zeros(lanes * len(results), np.uint64),
        expected,
        defined.reshape(-1, expected.itemsize)[:, 0],
        warps,
    )


def _rows(rng: np.random.Generator, warps: int) -> tuple[Array, Array]:
    """1 KiB of random bytes and the offset of a row of its own for each lane of a warp, for each of many warps."""
    rows = np.argsort(rng.random((warps, 64)), axis=1)[:, :32] * 16
    return rng.integers(0, 256, (warps, 1024), np.uint8), rows


_FILL = """mul.wide.u32 %x40, %block, 1024; mul.wide.u32 %x41, %thread, 32;
add.u64 %x40, %x40, %x41; add.u64 %x40, %x40, %in;
mov.u32 %r100, cells; mad.lo.u32 %r101, %thread, 32, %r100;
ld.global.v2.b64 {%x42, %x43}, [%x40]; ld.global.v2.b64 {%x44, %x45}, [%x40+16];
st.shared.v2.b64 [%r101], {%x42, %x43}; st.shared.v2.b64 [%r101+16], {%x44, %x45}; bar.sync 0;"""


def _ldmatrix(rng: np.random.Generator, arch: int, opcode: str, warps: int) -> Trial:
    access = bind(opcode, arch)
    assert isinstance(access, MatrixAccess)
    memory, rows = _rows(rng, warps)
    data = np.stack([memory[warp, row : row + 16] for warp in range(warps) for row in rows[warp]])[:, None]
    results = access.registers(data)
    targets = _names("r", 1, results)
    body = [
        _FILL,
        f"add.u64 %x46, %in, {memory.size}; add.u64 %x46, %x46, %wide; ld.global.b32 %r50, [%x46];",
        f"add.u32 %r50, %r50, %r100; {opcode} {{{', '.join(targets)}}}, [%r50];",
        *stores(targets, 32 * warps),
    ]
    expected = words(results)
    inputs = np.concatenate([memory.reshape(-1), rows.astype(np.uint64).reshape(-1).view(np.uint8)])
    ones = np.ones(expected.size, np.bool_)
    return Trial(opcode, module(arch, body, 1024), warps, 32, inputs, np.zeros_like(expected), expected, ones, warps)


def _stmatrix(rng: np.random.Generator, arch: int, opcode: str, count: int, warps: int) -> Trial:
    access = bind(opcode, arch)
    assert isinstance(access, MatrixAccess)
    memory, rows = _rows(rng, warps)
    registers = [rng.integers(0, 2**32, 32 * warps, np.uint32) for _ in range(count)]
    data = access.data(*registers).reshape(warps, 32, 16)
    final = memory.copy()
    for warp, lane in np.ndindex(warps, 32):
        if access.lanes[lane]:
            final[warp, rows[warp, lane] : rows[warp, lane] + 16] = data[warp, lane]
    names = [f"%r{1 + i}" for i in range(count)]
    start = memory.size
    body = [_FILL, f"add.u64 %x46, %in, {start}; add.u64 %x46, %x46, %wide; ld.global.b32 %r50, [%x46];"]
    body += [f"ld.global.b32 {name}, [%x46+{8 * 32 * warps * (1 + i)}];" for i, name in enumerate(names)]
    body += [
        f"add.u32 %r50, %r50, %r100; {opcode} [%r50], {{{', '.join(names)}}}; bar.sync 0;",
        "sub.u64 %x40, %x40, %in; add.u64 %x40, %x40, %out;",
        "ld.shared.v2.b64 {%x42, %x43}, [%r101]; ld.shared.v2.b64 {%x44, %x45}, [%r101+16];",
        "st.global.v2.b64 [%x40], {%x42, %x43}; st.global.v2.b64 [%x40+16], {%x44, %x45};",
    ]
    inputs = np.concatenate([memory.reshape(-1), words([rows.reshape(-1), *registers]).view(np.uint8)])
    expected = final.reshape(-1)
    ones = np.ones(expected.size, np.bool_)
    return Trial(opcode, module(arch, body, 1024), warps, 32, inputs, np.zeros_like(expected), expected, ones, warps)


def _movmatrix(rng: np.random.Generator, arch: int, warps: int) -> Trial:
    opcode = "movmatrix.sync.aligned.m8n8.trans.b16"
    operation = bind(opcode, arch)
    assert isinstance(operation, MatrixOperation)
    n = 32 * warps
    a = rng.integers(0, 2**32, n, np.uint32)
    expected = words(operation.run(np.ones(n, np.bool_), (a,)))
    body = [*loads(["%r1"], n), f"{opcode} %r2, %r1;", *stores(["%r2"], n)]
    ones = np.ones(n, np.bool_)
    return Trial(opcode, module(arch, body), warps, 32, words([a]), np.zeros_like(expected), expected, ones, warps)


def _wmma(
    rng: np.random.Generator,
    arch: int,
    shape: str,
    layouts: tuple[str, str],
    kind: str,
    wide: str,
    spread: str,
    warps: int,
) -> Trial:
    """Matrices with gaps between their rows, loaded, multiplied and stored; all of what is stored is compared."""
    m, n, k = _sizes(shape)
    extents = {"a": (m, k, layouts[0], kind), "b": (k, n, layouts[1], kind), "c": (m, n, "row", wide)}
    memory: dict[str, Array] = {}
    strides: dict[str, int] = {}
    registers: dict[str, tuple[Array, ...]] = {}
    lines: list[str] = []
    offset = 0
    prefix = "x" if wide == "f64" else "r"
    groups: dict[str, str] = {}
    for number, (which, (rows, columns, layout, of)) in enumerate(extents.items()):
        strides[which] = (columns if layout == "row" else rows) + 256 // BITS[of]
        size = (rows if layout == "row" else columns) * strides[which] * BITS[of] // 8
        memory[which] = draw(rng, of, warps * size // max(1, BITS[of] // 8), spread).view(np.uint8)
        opcode = f"wmma.load.{which}.sync.aligned.{layout}.{shape}.global.{of}"
        access = bind(opcode, arch)
        assert isinstance(access, MatrixAccess)
        base = np.repeat(np.arange(warps, dtype=np.uint64) * np.uint64(size), 32)
        addresses = access.addresses(base, np.uint32(strides[which])).astype(np.int64)
        registers[which] = access.registers(memory[which][addresses[..., None] + np.arange(access.width)])
        groups[which] = "{" + ", ".join(_names(prefix, 20 * (number + 1), registers[which])) + "}"
        lines.append(f"mul.wide.u32 %x70, %block, {size}; add.u64 %x70, %x70, %in; add.u64 %x70, %x70, {offset};")
        lines.append(f"mov.u32 %r150, {strides[which]}; {opcode} {groups[which]}, [%x70], %r150;")
        offset += memory[which].size
    types = f"{wide}.{wide}" if kind == "f16" else f"{wide}.{kind}.{kind}.{wide}"
    bits = ".xor.popc" if kind == "b1" else ""
    opcode = f"wmma.mma{bits}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types}"
    operation = bind(opcode, arch)
    store = bind(f"wmma.store.d.sync.aligned.row.{shape}.global.{wide}", arch)
    assert isinstance(operation, MatrixOperation)
    assert isinstance(store, MatrixAccess)
    results = operation.run(np.ones(32 * warps, np.bool_), registers["a"], registers["b"], registers["c"])
    target = vector(_names(prefix, 1, results))
    size = m * n * BITS[wide] // 8
    base = np.repeat(np.arange(warps, dtype=np.uint64) * np.uint64(size), 32)
    final = np.zeros(warps * size, np.uint8)
    addresses = store.addresses(base, np.uint32(n)).astype(np.int64)
    final[addresses[..., None] + np.arange(store.width)] = store.data(*results)
    lines += [
        f"{opcode} {target}, {groups['a']}, {groups['b']}, {groups['c']};",
        f"mul.wide.u32 %x70, %block, {size}; add.u64 %x70, %x70, %out; mov.u32 %r150, {n};",
        f"wmma.store.d.sync.aligned.row.{shape}.global.{wide} [%x70], {target}, %r150;",
    ]
    expected = final.view(ELEMENT[wide])
    return Trial(
        f"{opcode} [{spread}]",
        module(arch, lines),
        warps,
        32,
        np.concatenate(list(memory.values())),
        np.zeros_like(final),
        expected,
        np.ones(expected.size, np.bool_),
        warps,
    )
