"""Bulk copies and copies of tensors' boxes bring the right bytes to the right places."""

from dataclasses import replace

import numpy as np
import pytest
from emulator_kit import HOPPER, compiled, launch, line_of

from kernel_lsp.emulate import tensormap
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.tensormap import TensorMap

SOURCE = (
    HOPPER
    + r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" {
__global__ void doubled(const float* x, float* y, int n) {
    __shared__ alignas(128) float tile[2][256];
    __shared__ u64 bar;
    if (threadIdx.x == 0) { init(&bar, 1); fence(); }
    __syncthreads();
    int first = blockIdx.x * 256;
    if (threadIdx.x == 0) {
        expect(&bar, 1024);
        load(tile[0], x + first, 1024, &bar);
    }
    wait(&bar, 0);
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[1][i] = 2 * tile[0][i];
    fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(y + first, tile[1], 1024);
        commit();
        wait_read<0>();
    }
}
// Each thread of a warp brings a row.
__global__ void rows(const int* x, int* y) {
    __shared__ alignas(128) int tile[32][8];
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 32);
    __syncthreads();
    expect(&bar, 32);
    load(tile[threadIdx.x], x + threadIdx.x * 8, 32, &bar);
    wait(&bar, 0);
    for (int k = 0; k < 8; ++k) y[k * 32 + threadIdx.x] = tile[threadIdx.x][k];
}
// What lies in shared memory after a box has come, byte for byte.
__global__ void box(const __grid_constant__ Map map, unsigned char* y, int x0, int y0, int bytes) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, bytes);
        load_box(tile, &map, x0, y0, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) y[i] = tile[i];
}
__global__ void box_over_marks(const __grid_constant__ Map map, unsigned char* y, int arriving, int bytes) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ u64 bar;
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) tile[i] = 0xAB;
    fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, arriving);
        load_box(tile, &map, 0, 0, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) y[i] = tile[i];
}
__global__ void box_out(const __grid_constant__ Map map, const unsigned char* x, int x0, int y0, int bytes) {
    extern __shared__ __align__(1024) unsigned char tile[];
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) tile[i] = x[i];
    fence();
    __syncthreads();
    if (threadIdx.x == 0) { store_box(&map, x0, y0, tile); commit(); wait_read<0>(); }
}
__global__ void box_added(const __grid_constant__ Map map, const float* x, int bytes) {
    extern __shared__ __align__(1024) unsigned char tile[];
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) ((float*)tile)[i] = x[i];
    fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];"
                     :: "l"(&map), "r"(24), "r"(10), "r"(at(tile)) : "memory");
        commit();
        wait_read<0>();
    }
}
#define REDUCED(NAME, T, OPERATION)                                                                                 \
    __global__ void NAME(T* y, const T* x) {                                                                        \
        __shared__ alignas(128) T tile[64];                                                                         \
        tile[threadIdx.x] = x[threadIdx.x];                                                                         \
        fence();                                                                                                    \
        __syncthreads();                                                                                            \
        if (threadIdx.x == 0) {                                                                                     \
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." OPERATION " [%0], [%1], %2;"         \
                         :: "l"(y), "r"(at(tile)), "r"(int(64 * sizeof(T))) : "memory");                            \
            commit();                                                                                               \
            wait_read<0>();                                                                                         \
        }                                                                                                           \
    }
REDUCED(added, float, "add.f32")
REDUCED(added_halves, unsigned short, "add.noftz.f16")
REDUCED(least, int, "min.s32")
REDUCED(joined, unsigned, "or.b32")
#define BOX_OF(N, COORDINATES, ...)                                                                                 \
    __global__ void box##N(const __grid_constant__ Map map, int* y, int count) {                                    \
        __shared__ alignas(128) int tile[512];                                                                      \
        __shared__ u64 bar;                                                                                         \
        if (threadIdx.x == 0) {                                                                                     \
            init(&bar, 1);                                                                                          \
            expect(&bar, 4 * count);                                                                                \
            asm volatile("cp.async.bulk.tensor." #N "d.shared::cta.global.tile.mbarrier::complete_tx::bytes "       \
                         "[%0], [%1, " COORDINATES "], [%2];"                                                       \
                         :: "r"(at(tile)), "l"(&map), "r"(at(&bar)), __VA_ARGS__ : "memory");                       \
        }                                                                                                           \
        __syncthreads();                                                                                            \
        wait(&bar, 0);                                                                                              \
        for (int i = threadIdx.x; i < count; i += blockDim.x) y[i] = tile[i];                                       \
    }
BOX_OF(1, "{%3}", "r"(4))
BOX_OF(3, "{%3, %4, %5}", "r"(4), "r"(-1), "r"(2))
BOX_OF(4, "{%3, %4, %5, %6}", "r"(0), "r"(1), "r"(0), "r"(1))
BOX_OF(5, "{%3, %4, %5, %6, %7}", "r"(4), "r"(0), "r"(1), "r"(0), "r"(-1))
__global__ void __cluster_dims__(2) to_all(const int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ u64 bar;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 256); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    cluster.sync();
    if (threadIdx.x == 0)  // each block brings one half of the tile to both
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], 128, [%2], %3;"
                     :: "r"(at(tile) + 128 * cluster.block_rank()), "l"(x + 32 * cluster.block_rank()), "r"(at(&bar)),
                        "h"((unsigned short)3) : "memory");
    wait(&bar, 0);
    y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
    cluster.sync();
}
__device__ __forceinline__ void body(const int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, 512);
        load(tile, x, 256, &bar);
    }
    __syncthreads();
    wait(&bar, 0);  // for more than comes
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void in_a_body(const int* x, int* y) { body(x, y); }
__global__ void past_the_end(const int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, 256);
        load(tile, x + 4, 256, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void crooked(const int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        load(tile, x + 1, 128, &bar);
    }
    y[threadIdx.x] = 0;
}
__global__ void of_unwritten(const int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, 256);
        load(tile, x, 256, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];  // unknown
}
}
"""
)


def ptx():
    return compiled(SOURCE, "sm_90a")


def outermost(done) -> set[tuple[str, int]]:
    """The findings' kinds and the lines in the kernels, not in helpers."""
    return {(f.kind.value, f.location.chain[-1].line) for f in done.findings if f.location}


def mapped(tensor: np.ndarray, box: tuple[int, ...], memory: GlobalMemory, **options) -> tuple[TensorMap, np.ndarray]:
    """The map of a copy of `tensor` in `memory`, whose last dimension is the innermost; and the copy."""
    buffer = memory.allocate("tensor", tensor)
    kind = {1: 0, 2: 1, 4: 3, 8: 5}[tensor.itemsize]
    strides = tuple(reversed(tensor.strides[:-1]))
    steps = options.pop("steps", (1,) * tensor.ndim)
    made = TensorMap(kind, buffer.address, tuple(reversed(tensor.shape)), strides, box, steps, **options)
    assert made.fault() is None
    return made, buffer.data.view(tensor.dtype).reshape(tensor.shape)


def test_tiles_come_and_go():
    x = np.arange(1024, dtype=np.float32)
    done = launch(ptx(), "doubled", 4, 64, x, np.zeros_like(x), 1024)
    np.testing.assert_array_equal(done.arrays[1], 2 * x)
    assert done.findings == ()
    assert done.result.counters.total.bytes_read == x.nbytes


def test_each_thread_of_a_warp_brings_a_row():
    x = np.arange(256, dtype=np.int32).reshape(32, 8)
    done = launch(ptx(), "rows", 1, 32, x, np.zeros((8, 32), np.int32))
    np.testing.assert_array_equal(done.arrays[1], x.T)
    assert done.findings == ()


@pytest.mark.parametrize(("x0", "y0"), [(0, 0), (8, 3), (56, 30), (-8, -3), (200, 0)])
def test_a_box_is_cut_out_and_padded_with_zeros(x0: int, y0: int):
    memory, tensor = GlobalMemory(), np.arange(1, 1 + 40 * 64, dtype=np.int16).reshape(40, 64)
    made, _ = mapped(tensor, (32, 16), memory)
    done = launch(
        ptx(), "box", 1, 64, made.encode(), np.zeros(1024, np.uint8), x0, y0, 1024, shared=1024, memory=memory
    )
    padded = np.zeros((400, 600), np.int16)
    padded[100:140, 100:164] = tensor
    np.testing.assert_array_equal(
        done.arrays[0].view(np.int16).reshape(16, 32), padded[100 + y0 :, 100 + x0 :][:16, :32]
    )
    assert done.findings == ()


@pytest.mark.parametrize(("swizzle", "row"), [(1, 32), (2, 64), (3, 128)])
def test_a_swizzle_exchanges_pieces_of_16_bytes(swizzle: int, row: int):
    memory, tensor = GlobalMemory(), np.random.default_rng(1).integers(0, 255, (64, 256)).astype(np.uint8)
    made, _ = mapped(tensor, (row, 32), memory, swizzle=swizzle)
    size = 32 * row
    done = launch(ptx(), "box", 1, 64, made.encode(), np.zeros(size, np.uint8), 16, 8, size, shared=size, memory=memory)
    pieces = tensor[8:40, 16 : 16 + row].reshape(32, row // 16, 16)
    expected = np.empty_like(pieces)
    for line in range(32):  # the pattern begins anew after 8 lines of 128 bytes
        for piece in range(row // 16):
            expected[line, piece ^ (line * row // 128 % 8 % (row // 16))] = pieces[line, piece]
    np.testing.assert_array_equal(done.arrays[0].reshape(pieces.shape), expected)


@pytest.mark.parametrize("swizzle", [0, 3])
def test_a_box_goes_out_but_for_what_lies_outside(swizzle: int):
    memory, tensor = GlobalMemory(), np.zeros((40, 64), np.int32)
    made, out = mapped(tensor, (32, 16), memory, swizzle=swizzle)
    box = np.arange(1, 513, dtype=np.int32).reshape(16, 8, 4)
    stored = box.copy()
    if swizzle:
        for line in range(16):
            stored[line, np.arange(8) ^ (line % 8)] = box[line]
    arguments = made.encode(), stored.reshape(-1).view(np.uint8), 40, 30, 2048
    done = launch(ptx(), "box_out", 1, 64, *arguments, shared=2048, memory=memory)
    expected = np.zeros_like(tensor)
    expected[30:40, 40:64] = box.reshape(16, 32)[:10, :24]
    np.testing.assert_array_equal(out, expected)
    assert done.findings == ()


def rows_in_shared_memory(swizzle: int, rows: int, pieces: int) -> np.ndarray:
    """Where the pieces of 16 bytes of rows narrower than their swizzle lie, (rows, pieces), measured on an H200."""
    width = (0, 32, 64, 128)[swizzle] // 16
    line, piece = np.divmod(np.arange(rows)[:, None] * width + np.arange(pieces), 8)
    return line * 8 + (piece ^ line % width)


@pytest.mark.parametrize(("swizzle", "pieces"), [(1, 1), (2, 1), (2, 3), (3, 1), (3, 5), (3, 8)])
def test_rows_narrower_than_their_swizzle_lie_as_far_apart_as_it_is_wide(swizzle: int, pieces: int):
    memory, rows = GlobalMemory(), 20
    tensor = np.random.default_rng(2).integers(0, 255, (rows, 128)).astype(np.uint8)
    made, out = mapped(tensor, (16 * pieces, rows), memory, swizzle=swizzle)
    size = rows * (0, 32, 64, 128)[swizzle]
    box = tensor[:, : 16 * pieces].reshape(rows, pieces, 16)
    arguments = made.encode(), np.zeros(size, np.uint8), box.size, size
    done = launch(ptx(), "box_over_marks", 1, 64, *arguments, shared=size, memory=memory)
    expected, places = np.full((size // 16, 16), 0xAB, np.uint8), rows_in_shared_memory(swizzle, rows, pieces)
    expected[places] = box
    np.testing.assert_array_equal(done.arrays[0].reshape(expected.shape), expected)
    assert done.findings == ()
    expected[places] = box[::-1]
    before = out.copy()
    done = launch(ptx(), "box_out", 1, 64, made.encode(), expected.reshape(-1), 0, 0, size, shared=size, memory=memory)
    np.testing.assert_array_equal(out[:, : 16 * pieces].reshape(box.shape), box[::-1])
    np.testing.assert_array_equal(out[:, 16 * pieces :], before[:, 16 * pieces :])
    assert done.findings == ()


def test_a_box_goes_out_in_pieces_of_16_bytes():
    """An H200 wrote to what follows a row of five integers, as far as the second 16 bytes reach."""
    memory = GlobalMemory()
    buffer = memory.allocate("tensor", np.zeros((4, 12), np.int32))
    made = TensorMap(3, buffer.address, (5, 3), (48,), (8, 4), (1, 1))
    box = np.arange(1, 33, dtype=np.int32).reshape(4, 8)
    done = launch(
        ptx(), "box_out", 1, 64, made.encode(), box.view(np.uint8).reshape(-1), 0, 0, 128, shared=128, memory=memory
    )
    expected = np.zeros((4, 12), np.int32)
    expected[:3, :8] = box[:3]
    np.testing.assert_array_equal(buffer.data.view(np.int32).reshape(4, 12), expected)
    assert done.findings == ()


def test_what_follows_a_row_may_be_past_the_end_of_memory():
    memory = GlobalMemory()
    buffer = memory.allocate("tensor", np.zeros((3 * 8 - 3) * 4, np.uint8))
    made = TensorMap(3, buffer.address, (5, 3), (32,), (8, 3), (1, 1))
    box = np.zeros(96, np.uint8)
    done = launch(ptx(), "box_out", 1, 64, made.encode(), box, 0, 0, 96, shared=96, memory=memory)
    assert [finding.kind.value for finding in done.findings] == ["out-of-bounds"]


@pytest.mark.parametrize(
    ("kernel", "x0", "y0", "kinds"),
    [
        ("box", 3, 0, ["misaligned"]),
        ("box", -4, -2, []),
        ("box_out", 4, 2, []),
        ("box_out", 2, 0, ["misaligned"]),
        ("box_out", 0, -1, ["out-of-bounds"]),
        ("box_out", -4, 0, ["out-of-bounds"]),
        ("box_out", -1, -1, ["misaligned", "out-of-bounds"]),
    ],
)
def test_boxes_at_places_that_end_a_kernel_are_reported(kernel: str, x0: int, y0: int, kinds: list[str]):
    """Such places ended each of 24 kernels on an H200 with CUDA_ERROR_ILLEGAL_INSTRUCTION, and no others did."""
    memory, tensor = GlobalMemory(), np.zeros((8, 32), np.int32)
    made, _ = mapped(tensor, (8, 4), memory)
    arguments = made.encode(), np.zeros(128, np.uint8), x0, y0, 128
    done = launch(ptx(), kernel, 1, 32, *arguments, shared=128, memory=memory)
    assert [finding.kind.value for finding in done.findings] == kinds
    assert all(f"a box at ({x0}, {y0})" in finding.message for finding in done.findings)


def test_a_finding_in_a_kernels_body_elsewhere_names_its_line_and_not_the_call_of_the_body():
    """As in FlashAttention-3, whose kernel calls a main loop of another file; `wait` is but a wrapper there."""
    done = launch(ptx(), "in_a_body", 1, 64, np.zeros(64, np.int32), np.zeros(64, np.int32))
    assert {f.location.line for f in done.findings if f.location} == {line_of(SOURCE, "// for more than comes")}


def test_blocks_add_their_boxes_to_what_is_there():
    """As DeepGEMM's epilogue with accumulation does, by `SM90_TMA_REDUCE_ADD_2D`."""
    memory = GlobalMemory()
    tensor = np.arange(40 * 32, dtype=np.float32).reshape(40, 32)
    buffer = memory.allocate("tensor", tensor)
    made = TensorMap(7, buffer.address, (32, 40), (128,), (16, 8), (1, 1))
    box = np.linspace(-3, 3, 128, dtype=np.float32)
    done = launch(ptx(), "box_added", 3, 64, made.encode(), box, 512, shared=512, memory=memory)
    expected = tensor.copy()
    for _ in range(3):
        expected[10:18, 24:32] += box.reshape(8, 16)[:, :8]
    np.testing.assert_array_equal(buffer.data.view(np.float32).reshape(40, 32), expected)
    assert done.findings == ()


@pytest.mark.parametrize(
    ("kernel", "kind", "operation"),
    [
        ("added", np.float32, np.add),
        ("added_halves", np.float16, np.add),
        ("least", np.int32, np.minimum),
        ("joined", np.uint32, np.bitwise_or),
    ],
)
def test_a_bulk_copy_reduces_by_element(kernel: str, kind: type, operation: np.ufunc):
    rng = np.random.default_rng(7)
    x, y = (rng.integers(0, 1000, 64).astype(kind) for _ in range(2))
    raw = np.uint16 if kind is np.float16 else kind
    done = launch(ptx(), kernel, 2, 64, y.copy().view(raw), x.view(raw))
    np.testing.assert_array_equal(done.arrays[0].view(kind), operation(operation(y, x), x))
    assert done.findings == ()


def test_a_bulk_copy_that_adds_keeps_subnormals():
    smallest = np.full(64, 1, np.uint32).view(np.float32)
    done = launch(ptx(), "added", 2, 64, np.zeros(64, np.float32), smallest)
    np.testing.assert_array_equal(done.arrays[0].view(np.uint32), np.full(64, 2))


def test_boxes_have_one_to_five_dimensions():
    values = np.arange(4000, dtype=np.int32)
    for kernel, shape, box, corner in (
        ("box1", (40,), (16,), (4,)),
        ("box3", (5, 6, 8), (4, 3, 2), (4, -1, 2)),
        ("box4", (4, 3, 4, 8), (4, 2, 3, 2), (0, 1, 0, 1)),
        ("box5", (3, 4, 3, 2, 8), (4, 2, 2, 3, 3), (4, 0, 1, 0, -1)),
    ):
        memory, tensor = GlobalMemory(), values[: np.prod(shape)].reshape(shape)
        made, _ = mapped(tensor, box, memory)
        count = int(np.prod(box))
        done = launch(ptx(), kernel, 1, 32, made.encode(), np.zeros(count, np.int32), count, memory=memory)
        padded = np.pad(tensor, 8)
        inside = tuple(slice(8 + c, 8 + c + b) for c, b in zip(reversed(corner), reversed(box), strict=True))
        np.testing.assert_array_equal(done.arrays[0], padded[inside].reshape(-1), kernel)
        assert done.findings == ()


def test_a_map_of_tf32_rounds_what_comes_in_and_is_refused_for_what_goes_out():
    bits = [0x3F800FFF, 0x3F801000, 0x3F803000, 0x3FFFF000, 0xBF801001, 0x7F800000, 0x7F800001, 0x00001001]
    rounded = [0x3F800000, 0x3F800000, 0x3F804000, 0x40000000, 0xBF802000, 0x7F800000, 0x7F800001, 0x00002000]
    memory, tensor = GlobalMemory(), np.array([bits, bits], np.uint32)
    made, _ = mapped(tensor, (8, 2), memory)
    given = replace(made, kind=tensormap.TF32).encode()
    done = launch(ptx(), "box", 1, 32, given, np.zeros(64, np.uint8), 0, 0, 64, shared=64, memory=memory)
    np.testing.assert_array_equal(done.arrays[0].view(np.uint32), rounded * 2)
    with pytest.raises(NeedsGpu, match="a store by a tensor map of TF32"):
        launch(ptx(), "box_out", 1, 32, given, np.zeros(64, np.uint8), 0, 0, 64, shared=64, memory=memory)


def test_an_element_stride_leaves_out_elements():
    memory, tensor = GlobalMemory(), np.arange(32 * 32, dtype=np.int32).reshape(32, 32)
    made, _ = mapped(tensor, (8, 8), memory, steps=(1, 2))
    done = launch(ptx(), "box", 1, 32, made.encode(), np.zeros(128, np.uint8), 4, 2, 128, shared=128, memory=memory)
    np.testing.assert_array_equal(done.arrays[0].view(np.int32).reshape(4, 8), tensor[2:10:2, 4:12])


def test_a_copy_goes_to_several_blocks_of_a_cluster():
    x = np.arange(64, dtype=np.int32)
    done = launch(ptx(), "to_all", 2, 64, x, np.zeros((2, 64), np.int32))
    np.testing.assert_array_equal(done.arrays[1], np.stack([x, x]))
    assert done.findings == ()


def test_copies_are_checked_for_bounds_alignment_and_unwritten_memory():
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    done = launch(ptx(), "past_the_end", 1, 64, x, y)
    assert [finding.kind.value for finding in done.findings] == ["out-of-bounds"]
    assert "but `a0` has 64 elements" in done.findings[0].message
    assert [f.kind.value for f in launch(ptx(), "crooked", 1, 32, x, y).findings] == ["misaligned"]
    done = launch(ptx(), "of_unwritten", 1, 64, x, y, empty=(0,))
    assert outermost(done) == {("uninitialised", line_of(SOURCE, "// unknown"))}


def test_maps_that_the_driver_refuses_are_refused():
    good = TensorMap(1, 1024, (64, 64), (128,), (64, 8), (1, 1), 3)
    assert good.fault() is None
    assert tensormap.decode(good.encode()) == good
    assert "not a multiple of 16" in (TensorMap(1, 1025, (64, 64), (128,), (64, 8), (1, 1)).fault() or "")
    assert "a stride" in (TensorMap(1, 1024, (63, 64), (126,), (64, 8), (1, 1)).fault() or "")
    assert "more than the 64 of its swizzle" in (TensorMap(1, 1024, (64, 64), (128,), (64, 8), (1, 1), 2).fault() or "")
    with pytest.raises(NeedsGpu, match="not made by cuTensorMapEncodeTiled"):
        tensormap.decode(bytes(128))
