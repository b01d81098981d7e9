import pytest
from rewrite_support import ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.pad_shared import rewrite

TRANSPOSE = """
#include <cuda_fp16.h>
__global__ void transpose(const {element}* in, {element}* out, int rows, int cols) {{
    __shared__ {element} tile[32][{width}];
    const int tx = threadIdx.x;
    int x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + threadIdx.y;
    if (x < cols && y < rows) tile[threadIdx.y][tx] = in[y * cols + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    if (x < rows && y < cols) out[y * rows + x] = {read};
}}
"""


@pytest.mark.parametrize(("element", "width"), [("float", 33), ("__half", 34)])
def test_a_tile_read_by_columns_is_padded(element: str, width: int) -> None:
    source = TRANSPOSE.format(element=element, width=32, read="tile[tx][threadIdx.y]")
    (candidate,) = rewritten(rewrite, source)
    assert f"tile[32][32 + {width - 32}];" in candidate.kernel.text
    size = {"float": 4, "__half": 2}[element]
    assert f"[{32 * width * size}]" in ptx(candidate.kernel.text)
    assert f"[{32 * 32 * size}]" in ptx(source)


@pytest.mark.parametrize(
    ("width", "read"),
    [
        ("32", "tile[threadIdx.y][tx]"),
        ("33", "tile[tx][threadIdx.y]"),
        ("32 + 1", "tile[tx][threadIdx.y]"),
        ("32", "tile[tx][threadIdx.y] + (&tile[0][0])[7]"),
        ("32", "tile[tx][threadIdx.y] + *tile[3]"),
    ],
)
def test_near_misses_are_left_alone(width: str, read: str) -> None:
    source = TRANSPOSE.format(element="float", width=width, read=read)
    ptx(source)
    assert rewritten(rewrite, source) == []
