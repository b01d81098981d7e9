"""Kernels that stage tiles in shared memory, each with a workload, for the rewrite to bulk copies."""

import re

_PRODUCT = """
import torch

CASES = [dict(m=20, n=40, k=44), dict(m=16, n=32, k=96), dict(m=17, n=36, k=37)]
CONTRACT = dict(contiguous=True)
TOLERANCE = dict(atol={error}, rtol={error})


def inputs(m, n, k):
    return torch.randn(m, k, device="cuda"){cast}, torch.randn(k, n, device="cuda"){cast}


def reference(a, b):
    return a @ b


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    module.product[((n + {columns} - 1) // {columns}, (m + {rows} - 1) // {rows}), {block}](a, b, c, m, n, k)
    return c
"""


def product_workload(rows: int, columns: int, block: str, *, half: bool = False) -> str:
    """A workload of `product` whose blocks compute tiles of these sizes."""
    cast, error = (".half()", "2e-2") if half else ("", "1e-3")
    return _PRODUCT.format(rows=rows, columns=columns, block=block, cast=cast, error=error)


PLAIN = """
constexpr int TILE = 16;

// C = A B.
extern "C" __global__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                   int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        // Neighbouring threads load neighbours.
        const int to = k0 + threadIdx.x;
        a_tile[threadIdx.y][threadIdx.x] = row < m && to < k ? a[(size_t)row * k + to] : 0;
        const int from = k0 + threadIdx.y;
        b_tile[threadIdx.y][threadIdx.x] = col < n && from < k ? b[from * n + col] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[(size_t)row * n + col] = sum;
}
"""
PLAIN_WORKLOAD = product_workload(16, 16, "(16, 16)")

# Flat tiles, bounds by `if` and `else`, steps that are counted, names for what threads share.
COUNTED = """
#define TS 16
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    int tx = threadIdx.x, ty = threadIdx.y;
    int row0 = blockIdx.y * TS, col0 = blockIdx.x * TS;
    __shared__ float left[TS * TS], right[TS * TS];
    float sum = 0;
    const int steps = (k + TS - 1) / TS;
    for (int t = 0; t < steps; t++) {
        int at = t * TS;
        if (row0 + ty < m && at + tx < k) {
            left[ty * TS + tx] = a[(row0 + ty) * k + at + tx];
        } else {
            left[ty * TS + tx] = 0;
        }
        if (at + ty < k && col0 + tx < n) right[ty * TS + tx] = b[(at + ty) * n + col0 + tx];
        else right[ty * TS + tx] = 0;
        __syncthreads();
        for (int i = 0; i < TS; ++i) sum += left[ty * TS + i] * right[i * TS + tx];
        __syncthreads();
    }
    if (row0 + ty < m && col0 + tx < n) c[(row0 + ty) * n + col0 + tx] = sum;
}
"""

# One row of tiles of float4, as programs for n bodies have it; the last tile may be cut off.
BODIES = """
#define BLOCK 64
__global__ void attraction(const float4* __restrict__ bodies, float* __restrict__ out, int n) {
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float sum = 0;
    for (int first = 0; first < n; first += blockDim.x) {
        tile[threadIdx.x] = first + threadIdx.x < n ? bodies[first + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int j = 0; j < BLOCK; j++) {
            float4 other = tile[j];
            float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
            sum += other.w * rsqrtf(x * x + y * y + z * z + 1.0f);
        }
        __syncthreads();
    }
    if (i < n) out[i] = sum;
}
"""
BODIES_WORKLOAD = """
import torch

CASES = [dict(n=100), dict(n=256)]
CONTRACT = dict(contiguous=True, aligned=16)
TOLERANCE = dict(atol=1e-3, rtol=1e-3)


def inputs(n):
    return torch.randn(n, 4, device="cuda")


def reference(bodies):
    apart = ((bodies[:, None, :3] - bodies[None, :, :3]) ** 2).sum(-1) + 1
    return (bodies[None, :, 3] * torch.rsqrt(apart)).sum(1)


def launch(module, bodies):
    n = bodies.shape[0]
    out = torch.empty(n, device=bodies.device)
    module.attraction[(n + 63) // 64, 64](bodies, out, n)
    return out
"""

# Half precision, 128 threads, `cp.async` of 16 bytes in loops with rows and columns by division; whole tiles only.
PIPELINED = """
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define BM 32
#define BN 32
#define BK 16
extern "C" __global__ void product(const half* a, const half* b, half* c, int m, int n, int k) {
    __shared__ half left[BM][BK];
    __shared__ half right[BK][BN];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN;
    float sum[8] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK / 8; i += blockDim.x) {
            int r = i / (BK / 8), col = i % (BK / 8) * 8;
            __pipeline_memcpy_async(&left[r][col], &a[(row + r) * k + k0 + col], 16);
        }
        for (int i = threadIdx.x; i < BK * BN / 8; i += blockDim.x) {
            int r = i / (BN / 8), col = i % (BN / 8) * 8;
            __pipeline_memcpy_async(&right[r][col], &b[(k0 + r) * n + column + col], 16);
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int e = 0; e < 8; ++e) {
            int r = threadIdx.x / 32 * 8 + e, col = threadIdx.x % 32;
            for (int i = 0; i < BK; ++i) sum[e] += __half2float(left[r][i]) * __half2float(right[i][col]);
        }
        __syncthreads();
    }
    for (int e = 0; e < 8; ++e) {
        c[(row + threadIdx.x / 32 * 8 + e) * n + column + threadIdx.x % 32] = __float2half(sum[e]);
    }
}
"""


def of_whole_tiles(workload: str) -> str:
    """A workload whose sizes are multiples of the tiles'."""
    text = re.sub(r"CASES = .*", "CASES = [dict(m=32, n=32, k=64), dict(m=32, n=64, k=16)]", workload)
    return text.replace("contiguous=True", "contiguous=True, aligned=16, listed_sizes=True")


PIPELINED_WORKLOAD = of_whole_tiles(product_workload(32, 32, "128", half=True))

# The left tile is turned, which threads have to do; vectors for the right one.
TURNED = """
extern "C" __global__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                   int m, int n, int k) {
    __shared__ float left[16][17];
    __shared__ float right[16][16];
    const int tid = threadIdx.x, row0 = blockIdx.y * 16, column0 = blockIdx.x * 16;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = tid; i < 256; i += 64) left[i % 16][i / 16] = a[(row0 + i / 16) * k + k0 + i % 16];
        // Four at once.
        reinterpret_cast<float4*>(&right[tid / 4][0])[tid % 4] =
            *reinterpret_cast<const float4*>(&b[(k0 + tid / 4) * n + column0 + tid % 4 * 4]);
        __syncthreads();
        for (int e = 0; e < 4; ++e) {
            for (int i = 0; i < 16; ++i) sum[e] += left[i][tid / 16 * 4 + e] * right[i][tid % 16];
        }
        __syncthreads();
    }
    for (int e = 0; e < 4; ++e) c[(row0 + tid / 16 * 4 + e) * n + column0 + tid % 16] = sum[e];
}
"""
TURNED_WORKLOAD = of_whole_tiles(product_workload(16, 16, "64"))

# Two stages, filled by a lambda; bounds along k are those of whole tiles.
DOUBLE = """
#include <cuda_pipeline.h>
constexpr int T = 16, THREADS = 64;

extern "C" __global__ void product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                   int m, int n, int k) {
    __shared__ float left[2][T][T];
    __shared__ float right[2][T][T + 4];
    const int row = blockIdx.y * T, column = blockIdx.x * T;
    float sum[4] = {};
    auto load = [&](int stage, int k0) {
        const int r = threadIdx.x / 4, at = threadIdx.x % 4 * 4;
        __pipeline_memcpy_async(&left[stage][r][at], &a[(row + r) * k + k0 + at], 16);
        __pipeline_memcpy_async(&right[stage][r][at], &b[(k0 + r) * n + column + at], 16);
    };
    load(0, 0);
    __pipeline_commit();
    for (int t = 0; t < k / T; ++t) {
        if (t + 1 < k / T) {
            load((t + 1) % 2, (t + 1) * T);
        }
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int e = 0; e < 4; ++e) {
            const int r = threadIdx.x / T * 4 + e;
            for (int i = 0; i < T; ++i) sum[e] += left[t % 2][r][i] * right[t % 2][i][threadIdx.x % T];
        }
        __syncthreads();
    }
    for (int e = 0; e < 4; ++e) c[(row + threadIdx.x / T * 4 + e) * n + column + threadIdx.x % T] = sum[e];
}
"""

# Three stages, a single barrier a step, `cp.async` in functions, a loop that fills all stages but one first.
ROUND = """
#include <cuda_fp16.h>
#define STAGES 3
#define BK 16
__device__ void bring(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ void close() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void await() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

__global__ void product(const half* a, const half* b, half* c, int m, int n, int k) {
    __shared__ half left[STAGES][32][BK];
    __shared__ half right[STAGES][BK][32];
    const int row = blockIdx.y * 32, column = blockIdx.x * 32, tid = threadIdx.x;
    const int steps = k / BK;
    float sum[16] = {};
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < steps) {
            bring(&left[s][tid / 2][tid % 2 * 8], a + (row + tid / 2) * k + s * BK + tid % 2 * 8);
            bring(&right[s][tid / 4][tid % 4 * 8], b + (s * BK + tid / 4) * n + column + tid % 4 * 8);
        }
        close();
    }
    for (int t = 0; t < steps; ++t) {
        await<STAGES - 2>();
        __syncthreads();
        const int ahead = t + STAGES - 1;
        if (ahead < steps) {
#pragma unroll
            for (int i = tid; i < 64; i += 64) {
                bring(&left[ahead % STAGES][i / 2][i % 2 * 8], a + (row + i / 2) * k + ahead * BK + i % 2 * 8);
            }
            bring(&right[ahead % STAGES][tid / 4][tid % 4 * 8], b + (ahead * BK + tid / 4) * n + column + tid % 4 * 8);
        }
        close();
        const int s = t % STAGES;
        for (int e = 0; e < 16; ++e) {
            for (int i = 0; i < BK; ++i) {
                sum[e] += __half2float(left[s][tid / 32 * 16 + e][i]) * __half2float(right[s][i][tid % 32]);
            }
        }
    }
    for (int e = 0; e < 16; ++e) c[(row + tid / 32 * 16 + e) * n + column + tid % 32] = __float2half(sum[e]);
}
"""

KERNELS = {
    "plain": (PLAIN, PLAIN_WORKLOAD),
    "counted": (COUNTED, PLAIN_WORKLOAD),
    "bodies": (BODIES, BODIES_WORKLOAD),
    "pipelined": (PIPELINED, PIPELINED_WORKLOAD),
    "turned": (TURNED, TURNED_WORKLOAD),
}
"""Texts of kernels that the rewrite takes, each with its workload, by name."""
GROUPED = {
    "double": (DOUBLE, of_whole_tiles(product_workload(16, 16, "64"))),
    "round": (ROUND, of_whole_tiles(product_workload(32, 32, "64", half=True))),
}
"""Those that have stages of their own."""
