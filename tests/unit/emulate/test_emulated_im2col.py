"""Copies of columns of pixels: what a convolution reads of a tensor (images, height, width, channels)."""

import dataclasses

import numpy as np
import pytest
from emulator_kit import HOPPER, compiled, launch

from kernel_lsp.compiler.fakes.driver import fake_driver
from kernel_lsp.emulate import tensormap
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.tensormap import Im2col, TensorMap

SOURCE = (
    HOPPER
    + r"""
extern "C" {
__global__ void column(const __grid_constant__ Map map, unsigned char* y, int c, int w, int h, int n, int right,
                       int down, int bytes) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, bytes);
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                     :: "r"(at(tile)), "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(at(&bar)), "h"((short)right),
                     "h"((short)down) : "memory");
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) y[i] = tile[i];
}
__global__ void row(const __grid_constant__ Map map, int* y, int w, int n, int right) {
    __shared__ alignas(128) int tile[24];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, 96);
        asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5], {%6};"
                     :: "r"(at(tile)), "l"(&map), "r"(0), "r"(w), "r"(n), "r"(at(&bar)), "h"((short)right) : "memory");
    }
    __syncthreads();
    wait(&bar, 0);
    if (threadIdx.x < 24) y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void column_out(const __grid_constant__ Map map, const int* x, int w, int h, int n) {
    __shared__ alignas(128) int tile[24];
    if (threadIdx.x < 24) tile[threadIdx.x] = x[threadIdx.x];
    fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
                     "[%0, {%1, %2, %3, %4}], [%5];"
                     :: "l"(&map), "r"(0), "r"(w), "r"(h), "r"(n), "r"(at(tile)) : "memory");
        commit();
        wait_read<0>();
    }
}
}
"""
)


def ptx() -> str:
    return compiled(SOURCE, "sm_90a")


def pixels_of(tensor: np.ndarray, memory: GlobalMemory, box: Im2col, steps=(1, 1), swizzle: int = 0) -> TensorMap:
    """An im2col map of a copy of `tensor`, (images, height, width, channels), in `memory`."""
    buffer = memory.allocate("tensor", tensor)
    strides, rank = tuple(reversed(tensor.strides[:-1])), tensor.ndim
    shape = tuple(reversed(tensor.shape))
    kind = {4: 3, 2: 1}[tensor.itemsize]
    made = TensorMap(kind, buffer.address, shape, strides, (1,) * rank, (1, *steps, 1), swizzle, im2col=box)
    assert made.fault() is None
    assert tensormap.decode(made.encode()) == made
    return made


@pytest.mark.parametrize(("stride", "pad"), [(1, 1), (2, 1), (1, 0), (2, 2)])
def test_columns_are_those_of_a_convolution(stride: int, pad: int):
    """Each tap of a filter of 3 x 3 reads one column, of all output pixels, from where its offsets lead."""
    images, height, width, channels = 2, 5, 6, 8
    tensor = np.arange(images * height * width * channels, dtype=np.int32).reshape(images, height, width, channels) + 1
    padded = np.pad(tensor, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    down, right = ((extent + 2 * pad - 3) // stride + 1 for extent in (height, width))
    count = images * down * right
    for tap in ((0, 0), (1, 2), (2, 1)):
        memory = GlobalMemory()
        box = Im2col((-pad, -pad), (pad - 2, pad - 2), channels, count)
        made = pixels_of(tensor, memory, box, (stride, stride))
        given = (made.encode(), np.zeros(4 * count * channels, np.uint8), 0, -pad, -pad, 0, tap[1], tap[0])
        done = launch(ptx(), "column", 1, 64, *given, 4 * count * channels, shared=4 * count * channels, memory=memory)
        there = padded[:, tap[0] :, tap[1] :][:, ::stride, ::stride][:, :down, :right]
        np.testing.assert_array_equal(done.arrays[0].view(np.int32).reshape(there.shape), there)
        assert done.findings == ()


def test_a_column_begins_anywhere_takes_some_channels_and_is_swizzled():
    tensor = np.arange(3 * 4 * 5 * 32, dtype=np.int32).reshape(3, 4, 5, 32)
    memory = GlobalMemory()
    made = pixels_of(tensor, memory, Im2col((0, 0), (0, 0), 8, 16), swizzle=1)
    out = np.zeros(512, np.uint8)
    done = launch(ptx(), "column", 1, 64, made.encode(), out, 24, 3, 2, 1, 0, 0, 512, shared=512, memory=memory)
    flat = tensor.reshape(-1, 32)
    first = (1 * 4 + 2) * 5 + 3
    rows = done.arrays[0].view(np.int32).reshape(16, 2, 4).copy()
    rows[4:8], rows[12:16] = rows[4:8, ::-1].copy(), rows[12:16, ::-1].copy()  # where bit 7 of the address is set
    np.testing.assert_array_equal(rows.reshape(16, 8), flat[first : first + 16, 24:32])


def test_rows_of_one_spatial_dimension_go_on_in_the_next_image():
    tensor = np.arange(2 * 5 * 4, dtype=np.int32).reshape(2, 5, 4)
    memory = GlobalMemory()
    made = pixels_of(tensor, memory, Im2col((-1,), (-1,), 4, 6), steps=(1,))
    done = launch(ptx(), "row", 1, 32, made.encode(), np.zeros(24, np.int32), 2, 0, 1, memory=memory)
    padded = np.pad(tensor, ((0, 0), (1, 0), (0, 0)))  # pixels -1 to 3, each with an offset of 1
    column = [*padded[0, 4:6], *padded[1, 1:5]]
    np.testing.assert_array_equal(done.arrays[0].reshape(6, 4), column)


@pytest.mark.parametrize("channels", [4, 3])
def test_a_column_goes_out_by_whole_pieces_of_16_bytes_but_for_what_lies_outside(channels: int):
    tensor = np.zeros((2, 3, 4, 4), np.int32)
    memory = GlobalMemory()
    whole = pixels_of(tensor, memory, Im2col((-1, 0), (0, 0), 4, 6))
    made = dataclasses.replace(whole, shape=(channels, *whole.shape[1:]))
    x = np.arange(1, 25, dtype=np.int32)
    done = launch(ptx(), "column_out", 1, 32, made.encode(), x, 3, 1, 0, memory=memory)
    expected, column = tensor.copy(), x.reshape(6, 4)
    expected[0, 1, 3] = column[0]
    expected[0, 2] = column[2:6]  # its second pixel is left of the tensor
    found = next(b for b in memory.buffers if b.name == "tensor").data.view(np.int32).reshape(tensor.shape)
    np.testing.assert_array_equal(found, expected)
    assert done.findings == ()


def test_a_map_of_another_kind_is_refused():
    tensor = np.zeros((2, 3, 4, 4), np.int32)
    memory = GlobalMemory()
    buffer = memory.allocate("tensor", tensor)
    strides = tuple(reversed(tensor.strides[:-1]))
    tiled = TensorMap(3, buffer.address, (4, 4, 3, 2), strides, (4, 1, 1, 1), (1,) * 4)
    with pytest.raises(NeedsGpu, match="tiled copy by an im2col map"):
        launch(ptx(), "column_out", 1, 32, tiled.encode(), np.zeros(24, np.int32), 0, 0, 0, memory=memory)


def test_channels_narrower_than_their_swizzle_are_not_run():
    memory = GlobalMemory()
    made = pixels_of(np.zeros((2, 3, 4, 4), np.int32), memory, Im2col((0, 0), (0, 0), 4, 6), swizzle=1)
    with pytest.raises(NeedsGpu, match="channels are narrower than its swizzle"):
        launch(ptx(), "column_out", 1, 32, made.encode(), np.zeros(24, np.int32), 0, 0, 0, memory=memory)


def test_the_driver_makes_and_refuses_maps_of_pixels():
    driver = pytest.importorskip("cuda.bindings.driver")
    ok, invalid = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE

    def made(channels: int, swizzle: int, shape=(64, 8, 8, 2)):
        status, found = driver.cuTensorMapEncodeIm2col(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            len(shape),
            4096,
            [driver.cuuint64_t(extent) for extent in shape],
            [driver.cuuint64_t(stride) for stride in (128, 1024, 8192)[: len(shape) - 1]],
            [-1, -1],
            [-1, -1],
            channels,
            32,
            [driver.cuuint32_t(1)] * len(shape),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle(swizzle),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return status, found and b"".join(int(word).to_bytes(8, "little") for word in found.opaque)

    with fake_driver():
        status, data = made(64, 3)
        assert status == ok
        assert tensormap.decode(data).im2col == Im2col((-1, -1), (-1, -1), 64, 32)
        assert made(64, 2)[0] == made(512, 0)[0] == made(4, 0)[0] == made(8, 0, (64, 8))[0] == invalid
