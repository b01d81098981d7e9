"""Kernels of four kinds and any size, and versions of them that do a known share more or less work.

Each kernel does `EXTRA` per mille of its work items twice. A version differs from the baseline in that number alone, so
its time differs by about (1000 + EXTRA) / (1000 + baseline's EXTRA), and its answer not at all.
"""

from dataclasses import dataclass
from pathlib import Path

BASE_EXTRA = 100
"""Work items done twice by the baseline of a comparison, per mille: what a faster version can leave out."""

_ELEMENTWISE = """
extern "C" __global__ void elementwise(const float* x, float* y, long long n) {
    const long long items = n + n * EXTRA / 1000;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < items; i += gridDim.x * 256ll) {
        const long long at = i < n ? i : i - n;
        const float v = x[at];
        y[at] = v / (1.0f + __expf(-v));
    }
}
"""
_REDUCTION = """
extern "C" __global__ void reduction(const float* x, float* y, int rows) {
    const int items = rows + (int)((long long)rows * EXTRA / 1000);
    const int lane = threadIdx.x % 32;
    for (int i = blockIdx.x * 8 + threadIdx.x / 32; i < items; i += gridDim.x * 8) {
        const int row = i < rows ? i : i - rows;
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 256; k += 32) {
            sum += x[row * 256ll + k + lane];
        }
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        }
        if (lane == 0) {
            y[row] = sum;
        }
    }
}
"""
_SOFTMAX = """
__device__ float across(float v, bool largest, float* shared) {
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, step);
        v = largest ? fmaxf(v, other) : v + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = shared[0];
    for (int warp = 1; warp < 8; warp++) {
        v = largest ? fmaxf(v, shared[warp]) : v + shared[warp];
    }
    return v;
}

extern "C" __global__ void softmax(const float* x, float* y, int rows) {
    __shared__ float shared[8];
    const int items = rows + (int)((long long)rows * EXTRA / 1000);
    for (int i = blockIdx.x; i < items; i += gridDim.x) {
        const long long row = i < rows ? i : i - rows;
        float v[4];
        float most = -3.4e38f;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = x[row * 1024 + k * 256 + threadIdx.x];
            most = fmaxf(most, v[k]);
        }
        most = across(most, true, shared);
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = __expf(v[k] - most);
            sum += v[k];
        }
        sum = across(sum, false, shared);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            y[row * 1024 + k * 256 + threadIdx.x] = v[k] / sum;
        }
    }
}
"""
_GEMM = """
// C = A B; 64 x 64 elements a block, 4 x 4 a thread. What is done twice are steps along k, which then count nothing.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int n, int depth, float nothing) {
    __shared__ float left[8][64];
    __shared__ float right[8][64];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const long long row0 = blockIdx.y * 64ll, col0 = blockIdx.x * 64ll;
    const int items = depth / 8 + (int)((long long)depth / 8 * EXTRA / 1000);
    float acc[4][4] = {};
    for (int i = 0; i < items; i++) {
        const int k0 = (i < depth / 8 ? i : i - depth / 8) * 8;
        const float counts = i < depth / 8 ? 1.0f : nothing;
        __syncthreads();
        for (int t = threadIdx.x; t < 512; t += 256) {
            left[t % 8][t / 8] = counts * a[(row0 + t / 8) * depth + k0 + t % 8];
            right[t / 64][t % 64] = b[(k0 + t / 64) * (long long)n + col0 + t % 64];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
            for (int p = 0; p < 4; p++) {
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    acc[p][q] += left[k][ty + 16 * p] * right[k][tx + 16 * q];
                }
            }
        }
    }
#pragma unroll
    for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            c[(row0 + ty + 16 * p) * n + col0 + tx + 16 * q] = acc[p][q];
        }
    }
}
"""
_WORKLOAD = """import torch

CASES = [dict({case})]
CONTRACT = dict(contiguous=True, aligned=16, finite=True)


def inputs({names}):
    return ({inputs},)


def reference({arguments}):
    return {reference}


def launch(module, {arguments}):
    {output}
    {launch}
    return y
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The text of a kernel, and of its workload the parts that differ."""

    text: str
    arguments: str
    inputs: str
    reference: str
    output: str
    launch: str


_ROWS = 'torch.randn(rows, cols, device="cuda")'
_KINDS = {
    "elementwise": _Kind(
        _ELEMENTWISE,
        "x",
        'torch.randn(n, device="cuda")',
        "x * torch.sigmoid(x)",
        "y = torch.empty_like(x)",
        "module.elementwise[min((x.numel() + 255) // 256, 4224), 256](x, y, x.numel())",
    ),
    "reduction": _Kind(
        _REDUCTION,
        "x",
        _ROWS,
        "x.sum(dim=1)",
        'y = torch.empty(x.shape[0], device="cuda")',
        "module.reduction[min((x.shape[0] + 7) // 8, 4224), 256](x, y, x.shape[0])",
    ),
    "softmax": _Kind(
        _SOFTMAX,
        "x",
        _ROWS,
        "torch.softmax(x, dim=1)",
        "y = torch.empty_like(x)",
        "module.softmax[min(x.shape[0], 4224), 256](x, y, x.shape[0])",
    ),
    "gemm": _Kind(
        _GEMM,
        "a, b",
        'torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")',
        "a @ b",
        'y = torch.empty(a.shape[0], b.shape[1], device="cuda")',
        "module.gemm[(b.shape[1] // 64, a.shape[0] // 64), 256](a, b, y, b.shape[1], b.shape[0], 0.0)",
    ),
}
KINDS = tuple(_KINDS)
"""What `write` and `text` know."""


def text(kind: str, extra: int = 0, comment: str = "") -> str:
    """A version of a kernel that does `extra` per mille of its items twice; a `comment` makes it another text."""
    return f"// {kind} {comment}\n\nconstexpr int EXTRA = {extra};\n{_KINDS[kind].text}"


def slower_by(share: float) -> int:
    """The `extra` of a version whose work is (1 + share) times that of one with `BASE_EXTRA`."""
    return round((1000 + BASE_EXTRA) * (1 + share)) - 1000


def case(kind: str, elements: int, depth: int = 256) -> dict[str, int]:
    """The parameters of a workload with so many elements: of its input, or of its output where that is a GEMM's.

    Args:
        kind: one of `KINDS`.
        elements: a power of two, 4,096 at least.
        depth: of a GEMM, the length of the sums; a multiple of 8.
    """
    bits = elements.bit_length() - 1
    if kind == "elementwise":
        return {"n": elements}
    if kind == "gemm":
        return {"m": 1 << bits // 2, "n": 1 << (bits - bits // 2), "k": depth}
    cols = 256 if kind == "reduction" else 1024
    return {"rows": elements // cols, "cols": cols}


def write(folder: Path, kind: str, elements: int, extra: int = 0, depth: int = 256) -> Path:
    """Write a kernel with its workload into a new folder below `folder`; the path of the kernel. See `case`."""
    home = folder / f"{kind}_{elements}_{extra}_{depth}"
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{kind}_workload.py").write_text(workload(kind, elements, depth))
    (home / f"{kind}.cu").write_text(text(kind, extra))
    return home / f"{kind}.cu"


def workload(kind: str, elements: int, depth: int = 256) -> str:
    """The text of a workload; see `case`."""
    parts, parameters = _KINDS[kind], case(kind, elements, depth)
    return _WORKLOAD.format(
        case=", ".join(f"{name}={value}" for name, value in parameters.items()),
        names=", ".join(parameters),
        inputs=parts.inputs,
        arguments=parts.arguments,
        reference=parts.reference,
        output=parts.output,
        launch=parts.launch,
    )
