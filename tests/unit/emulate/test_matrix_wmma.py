"""wmma: what is loaded, multiplied and stored is the product of the matrices in memory."""

import numpy as np
import pytest

from kernel_lsp.emulate.matrix import MatrixAccess, MatrixOperation, bind

LANES = 64
SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16)}
SHAPES |= {"m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4), "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 128)}
BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
# Registers of a fragment by the ISA's table ("Matrix Fragments for WMMA").
REGISTERS = {
    **{("f16", which, shape): 8 for which in "ab" for shape in SHAPES},
    **{("f16", which, shape): 4 for which in "cd" for shape in SHAPES},
    **{("f32", which, shape): 8 for which in "cd" for shape in SHAPES},
    **{("bf16", which, "m16n16k16"): 4 for which in "ab"},
    ("bf16", "a", "m32n8k16"): 8,
    ("bf16", "b", "m32n8k16"): 2,
    ("bf16", "a", "m8n32k16"): 2,
    ("bf16", "b", "m8n32k16"): 8,
    **{(kind, which, "m16n16k16"): 2 for which in "ab" for kind in ("s8", "u8")},
    **{(kind, "a", "m32n8k16"): 4 for kind in ("s8", "u8")},
    **{(kind, "b", "m32n8k16"): 1 for kind in ("s8", "u8")},
    **{(kind, "a", "m8n32k16"): 1 for kind in ("s8", "u8")},
    **{(kind, "b", "m8n32k16"): 4 for kind in ("s8", "u8")},
    **{("s32", which, shape): 8 for which in "cd" for shape in ("m16n16k16", "m32n8k16", "m8n32k16")},
    **{("s32", which, shape): 2 for which in "cd" for shape in ("m8n8k32", "m8n8k128")},
    **{(kind, which, "m8n8k32"): 1 for which in "ab" for kind in ("s4", "u4")},
    **{("b1", which, "m8n8k128"): 1 for which in "ab"},
    **{("tf32", which, "m16n16k8"): 4 for which in "ab"},
    **{("f64", which, "m8n8k4"): 1 for which in "ab"},
    **{("f64", which, "m8n8k4"): 2 for which in "cd"},
}


def encode(kind: str, x: np.ndarray) -> np.ndarray:
    """Raw elements of whole numbers."""
    match kind:
        case "f64":
            return x.astype(np.float64).view(np.uint64)
        case "f32" | "tf32":
            return x.astype(np.float32).view(np.uint32)
        case "f16":
            return x.astype(np.float16).view(np.uint16)
        case "bf16":
            return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "s32":
            return x.astype(np.int32).view(np.uint32)
        case _:
            return (x & (2 ** BITS[kind] - 1)).astype(np.uint8)


def decode(kind: str, raw: np.ndarray) -> np.ndarray:
    return raw.view({"f64": np.float64, "f32": np.float32, "f16": np.float16, "s32": np.int32}[kind]).astype(np.float64)


class Memory:
    """Bytes, with matrices in them."""

    def __init__(self) -> None:
        self.bytes = np.full(1 << 15, 0xA5, np.uint8)

    def put(self, start: int, raw: np.ndarray, kind: str, layout: str, stride: int) -> None:
        bits = BITS[kind]
        for (row, column), element in np.ndenumerate(raw):
            position = start * 8 + (row * stride + column if layout == "row" else column * stride + row) * bits
            if bits >= 8:
                self.bytes[position // 8 : (position + bits) // 8] = np.atleast_1d(element).view(np.uint8)
            else:
                keep = int(self.bytes[position // 8]) & ~((2**bits - 1) << position % 8)
                self.bytes[position // 8] = keep | int(element) << position % 8

    def get(self, start: int, rows: int, columns: int, kind: str, layout: str, stride: int) -> np.ndarray:
        size = BITS[kind] // 8
        result = np.zeros((rows, columns), f"u{size}")
        for row, column in np.ndindex(rows, columns):
            position = start + (row * stride + column if layout == "row" else column * stride + row) * size
            result[row, column] = self.bytes[position : position + size].view(f"u{size}")[0]
        return result

    def load(self, opcode: str, start: np.ndarray, stride: int) -> tuple[np.ndarray, ...]:
        load = bind(opcode)
        assert isinstance(load, MatrixAccess)
        assert not load.store
        assert load.lanes.all()
        addresses = load.addresses(start, np.uint32(stride))
        assert addresses.shape == (LANES, load.count)
        assert not (addresses % np.uint64(load.width)).any()
        return load.registers(self.bytes[addresses.astype(int)[..., None] + np.arange(load.width)])

    def store(self, opcode: str, start: np.ndarray, stride: int, registers: tuple[np.ndarray, ...]) -> None:
        store = bind(opcode)
        assert isinstance(store, MatrixAccess)
        assert store.store
        addresses = store.addresses(start, np.full(LANES, stride, np.uint32))
        self.bytes[addresses.astype(int)[..., None] + np.arange(store.width)] = store.data(*registers)


TYPES = [
    *((shape, "f16", wide) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for wide in ("f16", "f32")),
    *((shape, "bf16", "f32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16")),
    *((shape, kind, "s32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for kind in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32"),
    ("m8n8k4", "f64", "f64"),
]
NARROW = [("m8n8k32", "s4", "s32"), ("m8n8k32", "u4", "s32"), ("m8n8k128", "b1", "s32")]
CASES = [
    *((*case, layouts) for case in TYPES for layouts in (("row", "col", "row"), ("col", "row", "col"), ("row",) * 3)),
    *((*case, ("row", "col", layout)) for case in NARROW for layout in ("row", "col")),
]


@pytest.mark.parametrize(("shape", "kind", "wide", "layouts"), CASES)
@pytest.mark.parametrize("space", ["", ".shared", ".global"])
def test_products(shape: str, kind: str, wide: str, layouts: tuple[str, str, str], space: str) -> None:
    rng = np.random.default_rng(7)
    m, n, k = SHAPES[shape]
    memory = Memory()
    low, high = {"b1": (0, 2), "u8": (0, 8), "u4": (0, 8)}.get(kind, (-3, 4))
    start_a, start_b, start_c, start_d = (np.repeat(np.uint64([at, at + 4096]), 32) for at in (0, 8192, 16384, 24576))
    wants: list[np.ndarray] = []
    gap = 128 if BITS[kind] < 8 else 16
    strides = [(k if layouts[0] == "row" else m) + gap, (n if layouts[1] == "row" else k) + gap]
    stride_c = (n if layouts[2] == "row" else m) + 16
    for warp in range(2):
        a, b = rng.integers(low, high, (m, k)), rng.integers(low, high, (k, n))
        c = rng.integers(-5, 6, (m, n))
        memory.put(int(start_a[32 * warp]), encode(kind, a), kind, layouts[0], strides[0])
        memory.put(int(start_b[32 * warp]), encode(kind, b), kind, layouts[1], strides[1])
        memory.put(int(start_c[32 * warp]), encode(wide, c), wide, layouts[2], stride_c)
        wants.append(a @ b + c)
    a_registers = memory.load(f"wmma.load.a.sync.aligned.{layouts[0]}.{shape}{space}.{kind}", start_a, strides[0])
    b_registers = memory.load(f"wmma.load.b.sync.aligned.{layouts[1]}.{shape}{space}.{kind}", start_b, strides[1])
    c_registers = memory.load(f"wmma.load.c.sync.aligned.{layouts[2]}.{shape}{space}.{wide}", start_c, stride_c)
    assert len(a_registers) == REGISTERS[kind, "a", shape]
    assert len(b_registers) == REGISTERS[kind, "b", shape]
    assert len(c_registers) == REGISTERS[wide, "c", shape]
    types = f"{wide}.{wide}" if kind == "f16" else f"{wide}.{kind}.{kind}.{wide}"
    bits = ".and.popc" if kind == "b1" else ""
    operation = bind(f"wmma.mma{bits}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types}")
    assert isinstance(operation, MatrixOperation)
    d_registers = operation.run(np.ones(LANES, np.bool_), a_registers, b_registers, c_registers)
    memory.store(f"wmma.store.d.sync.aligned.{layouts[2]}.{shape}{space}.{wide}", start_d, stride_c, d_registers)
    for warp, want in enumerate(wants):
        got = memory.get(int(start_d[32 * warp]), m, n, wide, layouts[2], stride_c)
        np.testing.assert_array_equal(decode(wide, got), want)


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_tf32_products_are_added_four_by_four(arch: int) -> None:
    memory = Memory()
    start = np.repeat(np.uint64([0, 0]), 32)
    memory.put(0, encode("tf32", np.tile([8192, -8192, 0, 0, 1, 0, 0, 0], (16, 1))), "tf32", "row", 8)
    a = memory.load("wmma.load.a.sync.aligned.row.m16n16k8.tf32", start, 8)
    memory.put(0, encode("tf32", np.tile([[8192], [8192], [0], [0], [1], [0], [0], [0]], (1, 16))), "tf32", "col", 8)
    b = memory.load("wmma.load.b.sync.aligned.col.m16n16k8.tf32", start, 8)
    operation = bind("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", arch)
    assert isinstance(operation, MatrixOperation)
    d = operation.run(np.ones(LANES, np.bool_), a, b, (np.zeros(LANES, np.uint32),) * 8)
    # Together with 2**26 the one would be lost.
    assert set(np.stack(d).view(np.float32).ravel().tolist()) == {1.0}


def test_without_a_stride_rows_lie_one_after_the_other() -> None:
    load = bind("wmma.load.c.sync.aligned.row.m16n16k16.f32")
    assert isinstance(load, MatrixAccess)
    address = np.zeros(LANES, np.uint64)
    np.testing.assert_array_equal(load.addresses(address, None), load.addresses(address, np.uint32(16)))


def test_one_element_of_each_type_of_accumulator_lies_under_one_index() -> None:
    """`for (i ...) half_fragment.x[i] = __float2half(float_fragment.x[i])` converts a matrix."""
    addresses = {}
    for kind in ("f16", "f32"):
        load = bind(f"wmma.load.c.sync.aligned.row.m16n16k16.{kind}")
        assert isinstance(load, MatrixAccess)
        size = BITS[kind] // 8
        start = load.addresses(np.zeros(LANES, np.uint64), np.uint32(16))
        addresses[kind] = (start[..., None] // size + np.arange(load.width // size)).reshape(LANES, -1)
    np.testing.assert_array_equal(addresses["f16"], addresses["f32"])


def test_a_float16_product_may_add_to_float32_and_give_float16() -> None:
    registers = (np.full(32, 0x3C003C00, np.uint32),) * 8
    start = (np.full(32, np.float32(2048.5).view(np.uint32)),) * 8
    operation = bind("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32")
    assert isinstance(operation, MatrixOperation)
    d = operation.run(np.ones(32, np.bool_), registers, registers, start)
    assert len(d) == 4
    assert set(np.stack(d).view(np.float16).ravel().tolist()) == {2064.0}
