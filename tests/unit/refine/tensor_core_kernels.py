"""Kernels whose warps multiply tiles by tensor cores, each with a workload, for the rewrite to warpgroups."""

_PRODUCT = """
import torch

CASES = {cases}
CONTRACT = dict(contiguous=True, aligned=16, listed_sizes=True)
TOLERANCE = dict(atol=2e-2, rtol=2e-2)


def inputs(m, n, k):
    a = torch.randn(m, k, device="cuda", dtype=torch.{kind})
    return a, torch.randn({b}, device="cuda", dtype=torch.{kind})


def reference(a, b):
    return (a.float() @ b.float(){turn}){cast}


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[{columns_of}]
    c = torch.empty(m, n, device=a.device, dtype=torch.{result})
    module.product[((n + {columns} - 1) // {columns}, (m + {rows} - 1) // {rows}), {block}](a, b, c, m, n, k)
    return c
"""
WHOLE = "[dict(m=128, n=32, k=192), dict(m=256, n=64, k=64)]"
SMALL = "[dict(m=128, n=128, k=96), dict(m=256, n=128, k=32)]"


def workload(
    rows: int,
    columns: int,
    block: int | str,
    *,
    linear: bool = False,
    kind: str = "float16",
    result: str = "float32",
    cases: str = SMALL,
) -> str:
    """A workload of `product` whose blocks compute tiles of these sizes; of `a @ b.T` for `linear`."""
    return _PRODUCT.format(
        rows=rows,
        columns=columns,
        block=block,
        b="n, k" if linear else "k, n",
        turn=".T" if linear else "",
        columns_of=0 if linear else 1,
        kind=kind,
        result=result,
        cast="" if result == "float32" else f".to(torch.{result})",
        cases=cases,
    )


# `wmma` with padded tiles and loads of single elements, which know bounds; four warps of 32 x 32.
WMMA = """
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int BM = 64, BN = 64, BK = 32;
constexpr int PAD = 8;  // against bank conflicts

// C = A B.
extern "C" __global__ void product(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int m,
                                   int n, int k) {
    __shared__ half a_tile[BM][BK + PAD];
    __shared__ half b_tile[BK][BN + PAD];
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    const int block_row = blockIdx.y * BM, block_column = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            wmma::fill_fragment(sums[i][j], 0.0f);
        }
    }

    for (int k0 = 0; k0 < k; k0 += BK) {
        // Neighbouring threads load neighbours.
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
            const int row = block_row + i / BK, at = k0 + i % BK;
            a_tile[i / BK][i % BK] = row < m && at < k ? a[row * k + at] : __float2half(0.0f);
        }
        for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
            const int at = k0 + i / BN, column = block_column + i % BN;
            b_tile[i / BN][i % BN] = at < k && column < n ? b[at * n + column] : __float2half(0.0f);
        }
        __syncthreads();

        // Each warp multiplies its part.
        for (int kk = 0; kk < BK; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_part[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_part[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(a_part[i], &a_tile[warp_row + 16 * i][kk], BK + PAD);
                wmma::load_matrix_sync(b_part[i], &b_tile[kk][warp_column + 16 * i], BN + PAD);
            }
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < 2; j++) {
                    wmma::mma_sync(sums[i][j], a_part[i], b_part[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }

    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            const int row = block_row + warp_row + 16 * i, column = block_column + warp_column + 16 * j;
            if (row < m && column < n) {
                wmma::store_matrix_sync(&c[row * n + column], sums[i][j], n, wmma::mem_row_major);
            }
        }
    }
}
"""

# `mma.sync` with `ldmatrix` and `cp.async`, B by its columns, four warps of 32 x 32, result in half precision.
LDMATRIX = """
#include <cuda_fp16.h>

#define BM 64
#define BN 64
#define BK 32

// Copies 16 bytes.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\n" ::"r"(address), "l"(from));
}

__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;\\n" ::: "memory");
}

// Four matrices of 8 x 8.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const half* p) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(p));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__global__ void __launch_bounds__(128) product(const half* a, const half* b, half* c, int m, int n, int k) {
    __shared__ half a_tile[BM][BK + 8], b_tile[BN][BK + 8];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int warp_m = warp >> 1, warp_n = warp & 1;
    const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
    float acc[2][4][4] = {};

    for (int k0 = 0; k0 < k; k0 += BK) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int r = (tid + i * 128) / 4, at = tid % 4 * 8;
            copy_async(&a_tile[r][at], &a[(size_t)(row0 + r) * k + k0 + at]);
            copy_async(&b_tile[r][at], &b[(size_t)(column0 + r) * k + k0 + at]);
        }
        wait_for_copies();
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            unsigned a_frag[2][4], b_frag[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_matrices(a_frag[i], &a_tile[warp_m * 32 + i * 16 + lane % 16][kk + lane / 16 * 8]);
                const int column = warp_n * 32 + i * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(b_frag[i], &b_tile[column][kk + lane / 8 % 2 * 8]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    multiply(acc[i][j], a_frag[i], b_frag[j / 2][j % 2 * 2], b_frag[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = row0 + warp_m * 32 + i * 16 + lane / 4;
            const int column = column0 + warp_n * 32 + j * 8 + lane % 4 * 2;
            if (row < m && column < n) {
                *reinterpret_cast<half2*>(&c[row * n + column]) = __floats2half2_rn(acc[i][j][0], acc[i][j][1]);
            }
            if (row + 8 < m && column < n) {
                *reinterpret_cast<half2*>(&c[(row + 8) * n + column]) = __floats2half2_rn(acc[i][j][2], acc[i][j][3]);
            }
        }
    }
}
"""

# Two stages of bfloat16 by `cp.async`, one barrier a step, 128 x 128 by eight warps of 64 x 32; scaled sums.
STAGES = """
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <mma.h>

using namespace nvcuda;

constexpr int BM = 128, BN = 128, BK = 16, STAGES = 3;

extern "C" __global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k,
                                   float alpha) {
    __shared__ __nv_bfloat16 a_tile[STAGES][BM][BK];
    __shared__ __nv_bfloat16 b_tile[STAGES][BK][BN];
    const int tid = threadIdx.y * 32 + threadIdx.x;
    const int row = blockIdx.y * BM, column = blockIdx.x * BN;
    const int steps = k / BK;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4][2];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) wmma::fill_fragment(acc[i][j], 0.0f);

    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < steps) {
            __pipeline_memcpy_async(&a_tile[s][tid / 2][tid % 2 * 8],
                                    &a[(row + tid / 2) * k + s * BK + tid % 2 * 8], 16);
            __pipeline_memcpy_async(&b_tile[s][tid / 16][tid % 16 * 8],
                                    &b[(s * BK + tid / 16) * n + column + tid % 16 * 8], 16);
        }
        __pipeline_commit();
    }
    for (int t = 0; t < steps; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        const int ahead = t + STAGES - 1;
        if (ahead < steps) {
            const int to = ahead % STAGES;
            __pipeline_memcpy_async(&a_tile[to][tid / 2][tid % 2 * 8],
                                    &a[(row + tid / 2) * k + ahead * BK + tid % 2 * 8], 16);
            __pipeline_memcpy_async(&b_tile[to][tid / 16][tid % 16 * 8],
                                    &b[(ahead * BK + tid / 16) * n + column + tid % 16 * 8], 16);
        }
        __pipeline_commit();

        const int stage = t % STAGES;
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right[2];
        for (int j = 0; j < 2; j++)
            wmma::load_matrix_sync(right[j], &b_tile[stage][0][threadIdx.y % 4 * 32 + j * 16], BN);
        for (int i = 0; i < 4; i++) {
            wmma::load_matrix_sync(left, &a_tile[stage][threadIdx.y / 4 * 64 + i * 16][0], BK);
            for (int j = 0; j < 2; j++) wmma::mma_sync(acc[i][j], left, right[j], acc[i][j]);
        }
    }

    float* out = c + (size_t)row * n + column;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 2; j++) {
            for (int e = 0; e < acc[i][j].num_elements; e++) acc[i][j].x[e] = alpha * acc[i][j].x[e];
            const int at = (threadIdx.y / 4 * 64 + i * 16) * n + threadIdx.y % 4 * 32 + j * 16;
            wmma::store_matrix_sync(out + at, acc[i][j], n, wmma::mem_row_major);
        }
    }
}
"""

# `mma.sync` by a macro, from loads of 32 bits; one column of warps, each of 32 rows; single stores.
LOADS = """
#include <cuda_bf16.h>

constexpr int BM = 128, BN = 32, BK = 64;

#define MMA(d, a, b)                                                                     \\
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "                  \\
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"   \\
                 : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3])                \\
                 : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]), \\
                   "f"((d)[0]), "f"((d)[1]), "f"((d)[2]), "f"((d)[3]))

__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    __shared__ __nv_bfloat16 a_tile[BM][BK + 2];
    __shared__ __nv_bfloat16 b_tile[BN][BK + 2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int quad = lane / 4, pair = lane % 4 * 2;
    float d[2][4][4];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++) d[i][j][e] = 0.0f;

    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK / 2; i += 128) {
            const int r = i / (BK / 2), at = i % (BK / 2) * 2;
            *reinterpret_cast<unsigned*>(&a_tile[r][at]) =
                *reinterpret_cast<const unsigned*>(&a[(blockIdx.y * BM + r) * k + k0 + at]);
        }
        for (int i = threadIdx.x; i < BN * BK; i += 128) {
            b_tile[i / BK][i % BK] = b[(blockIdx.x * BN + i / BK) * k + k0 + i % BK];
        }
        __syncthreads();
        for (int kk = 0; kk < BK; kk += 16) {
            unsigned x[2][4], y[4][2];
            for (int i = 0; i < 2; i++) {
                const int r = warp * 32 + i * 16 + quad;
                x[i][0] = *reinterpret_cast<const unsigned*>(&a_tile[r][kk + pair]);
                x[i][1] = *reinterpret_cast<const unsigned*>(&a_tile[r + 8][kk + pair]);
                x[i][2] = *reinterpret_cast<const unsigned*>(&a_tile[r][kk + pair + 8]);
                x[i][3] = *reinterpret_cast<const unsigned*>(&a_tile[r + 8][kk + pair + 8]);
            }
            for (int j = 0; j < 4; j++) {
                y[j][0] = *reinterpret_cast<const unsigned*>(&b_tile[j * 8 + quad][kk + pair]);
                y[j][1] = *reinterpret_cast<const unsigned*>(&b_tile[j * 8 + quad][kk + pair + 8]);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) MMA(d[i][j], x[i], y[j]);
        }
        __syncthreads();
    }

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++) {
                const int row = blockIdx.y * BM + warp * 32 + i * 16 + quad + e / 2 * 8;
                c[row * n + blockIdx.x * BN + j * 8 + pair + e % 2] = d[i][j][e];
            }
}
"""


def _turned(text: str) -> str:
    """`wmma` whose tile of A lies by steps of K, as A does in memory."""
    text = text.replace("a_tile[BM][BK + PAD]", "a_tile[BK][BM + PAD]")
    text = text.replace("i / BK, at = k0 + i % BK", "i % BM, at = k0 + i / BM")
    text = text.replace("a_tile[i / BK][i % BK]", "a_tile[i / BM][i % BM]").replace(
        "a[row * k + at]", "a[at * m + row]"
    )
    text = text.replace("matrix_a, 16, 16, 16, half, wmma::row_major", "matrix_a, 16, 16, 16, half, wmma::col_major")
    return text.replace("&a_tile[warp_row + 16 * i][kk], BK + PAD", "&a_tile[kk][warp_row + 16 * i], BM + PAD")


def _flat(text: str) -> str:
    """`wmma` whose tiles are arrays without rows, filled by vectors."""
    text = text.replace("a_tile[BM][BK + PAD]", "a_tile[BM * (BK + PAD)]").replace(
        "b_tile[BK][BN + PAD]", "b_tile[BK * BN]"
    )
    text = text.replace("a_tile[i / BK][i % BK]", "a_tile[i / BK * (BK + PAD) + i % BK]")
    text = text.replace("&a_tile[warp_row + 16 * i][kk]", "a_tile + (warp_row + 16 * i) * (BK + PAD) + kk")
    text = text.replace("b_tile[i / BN][i % BN]", "b_tile[i]")
    return text.replace("&b_tile[kk][warp_column + 16 * i], BN + PAD", "&b_tile[kk * BN + warp_column + 16 * i], BN")


def _wide(text: str) -> str:
    """`wmma` with 64 rows and 128 columns for eight warps, so that warpgroups stand beside each other; long steps."""
    text = text.replace("BN = 64, BK = 32", "BN = 128, BK = 64")
    return text.replace("warp / 2 * 32", "warp / 4 * 32").replace("warp % 2 * 32", "warp % 4 * 32")


def _by_macros(text: str) -> str:
    """`ldmatrix` by a macro, for B as it lies by steps of K, with addresses that have names."""
    macro = """
#define LOAD(r0, r1, r2, r3, address)                                                                   \\
    asm volatile("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];"              \\
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)                                               \\
                 : "r"(address))
"""
    text = text.replace("#define BK 32\n", f"#define BK 32\n{macro}").replace(
        "b_tile[BN][BK + 8]", "b_tile[BK][BN + 8]"
    )
    text = text.replace(
        "copy_async(&b_tile[r][at], &b[(size_t)(column0 + r) * k + k0 + at]);",
        "const int depth = (tid + i * 128) / 8, to = tid % 8 * 8;\n"
        "            copy_async(&b_tile[depth][to], b + (size_t)(k0 + depth) * n + column0 + to);",
    )
    return text.replace(
        "                const int column = warp_n * 32 + i * 16 + lane / 16 * 8 + lane % 8;\n"
        "                load_matrices(b_frag[i], &b_tile[column][kk + lane / 8 % 2 * 8]);",
        "                const half* from = &b_tile[kk + lane % 16][warp_n * 32 + i * 16 + lane / 16 * 8];\n"
        "                const unsigned address = __cvta_generic_to_shared(from);\n"
        "                LOAD(b_frag[i][0], b_frag[i][1], b_frag[i][2], b_frag[i][3], address);",
    )


_ODD = "[dict(m=64, n=64, k=72), dict(m=80, n=96, k=40)]"
_ALPHA = {
    "m, n, k)\n    return c": "m, n, k, 1.5)\n    return c",
    "return (a.float() @ b.float())": "return 1.5 * (a.float() @ b.float())",
}


def _scaled(text: str) -> str:
    """A workload that gives the kernel a factor of 1.5."""
    for old, new in _ALPHA.items():
        text = text.replace(old, new)
    return text


def _by_steps(text: str) -> str:
    """A workload whose A is turned in memory."""
    return (
        text.replace("torch.randn(m, k,", "torch.randn(k, m,")
        .replace("(m, k), n", "(k, m), n")
        .replace("a.float()", "a.float().T")
    )


KERNELS = {
    "wmma": (WMMA, workload(64, 64, 128, cases=_ODD)),
    "turned": (_turned(WMMA), _by_steps(workload(64, 64, 128, cases=_ODD))),
    "flat": (_flat(WMMA), workload(64, 64, 128, cases=_ODD)),
    "wide": (_wide(WMMA), workload(64, 128, 256, cases="[dict(m=64, n=128, k=72), dict(m=80, n=160, k=40)]")),
    "ldmatrix": (LDMATRIX, workload(64, 64, 128, linear=True, result="float16")),
    "macros": (_by_macros(LDMATRIX), workload(64, 64, 128, result="float16")),
    "stages": (STAGES, _scaled(workload(128, 128, "(32, 8)", kind="bfloat16"))),
    "loads": (LOADS, workload(128, 32, 128, linear=True, kind="bfloat16", cases=WHOLE)),
}
"""Texts of kernels that the rewrite takes, each with its workload, by name."""
