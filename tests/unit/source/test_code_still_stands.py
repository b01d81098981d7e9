"""What was judged still stands in a text, or does not."""

from pathlib import Path

import pytest

from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.unchanged import still_holds

CU = Path("k.cu")
CUDA = """#include <cuda_fp16.h>
#define TILE 32

__device__ float twice(float x) { return 2.0f * x; }

__global__ void first(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}

__global__ void second(float* y) { y[0] = TILE; }
"""
PY = Path("k.py")
PYTHON = '''"""Text."""
import triton
import triton.language as tl

WIDTH = 4

@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    tl.store(x, BLOCK)

def launch(module, x):
    module.kernel[(1,)](x, BLOCK=WIDTH)
    return x
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__global__ void first", "// a note\n\n__global__ void first"),
        ("    if (i < n)", "    if (i<n)  // in range\n   "),
        ("#define TILE 32", "#define   TILE 32\n#define OTHER 1"),
        ("__global__ void second", "__device__ int more() { return 1; }\n__global__ void second"),
        ("y[0] = TILE", "y[0] = TILE + 1"),  # of a kernel that does not matter
    ],
)
def test_cuda_code_stands_wherever_it_was_moved_to(old, new):
    assert old in CUDA
    second = [k for k in find_kernels(CUDA, CU) if k.name == "second"]
    assert still_holds(CUDA.replace(old, new), CUDA, CU, second)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.0f * x", "3.0f * x"),
        ("#define TILE 32", "#define TILE 64"),
        ("if (i < n)", "if (i <= n)"),
        ("#include <cuda_fp16.h>\n", ""),
    ],
)
def test_cuda_code_that_changed_does_not_stand(old, new):
    second = [k for k in find_kernels(CUDA, CU) if k.name == "second"]
    assert not still_holds(CUDA.replace(old, new), CUDA, CU, second)


def test_python_code_stands_whatever_its_comments_and_neighbours():
    assert still_holds("import os\n" + PYTHON.replace("return x", "return x  # done"), PYTHON, PY)
    assert still_holds(PYTHON.replace('"""Text."""', '"""Other."""'), PYTHON, PY)


@pytest.mark.parametrize(("old", "new"), [("WIDTH = 4", "WIDTH = 8"), ("(1,)", "(2,)"), ("return x", "return (")])
def test_python_code_that_changed_does_not_stand(old, new):
    assert not still_holds(PYTHON.replace(old, new), PYTHON, PY)


def test_a_kernel_of_python_that_does_not_matter_may_change():
    kernels = find_kernels(PYTHON, PY)
    assert still_holds(PYTHON.replace("tl.store(x, BLOCK)", "tl.store(x, 0)"), PYTHON, PY, kernels)
