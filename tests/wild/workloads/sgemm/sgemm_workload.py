"""siboehm's float32 matrix products from naive to tiles of warps: C = alpha A B + beta C, which is changed in place."""

import torch

CASES = [
    {"m": 128, "n": 128, "k": 64},
    {"m": 1024, "n": 1024, "k": 512},
]
CONTRACT = {
    "contiguous": True,
    "aligned": 16,
    "finite": True,
    "mutates": ("c",),
    "multiples": {"m": 128, "n": 128, "k": 32},
}
VERSION = 1
ALPHA, BETA = 0.5, 3.0


def inputs(m, n, k):
    return torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda"), torch.randn(m, n, device="cuda")


def reference(a, b, c):
    return ALPHA * (a @ b) + BETA * c


def launch(module, a, b, c):
    (m, k), n = a.shape, b.shape[1]
    name, grid, block = {
        1: ("sgemm_naive", (-(-m // 32), -(-n // 32)), (32, 32)),
        2: ("sgemm_global_mem_coalesce<32>", (-(-m // 32), -(-n // 32)), 1024),
        3: ("sgemm_shared_mem_block<32>", (-(-m // 32), -(-n // 32)), 1024),
        4: ("sgemm1DBlocktiling<64, 64, 8, 8>", (n // 64, m // 64), 512),
        5: ("sgemm2DBlocktiling<128, 128, 8, 8, 8>", (n // 128, m // 128), 256),
        6: ("sgemmVectorize<128, 128, 8, 8, 8>", (n // 128, m // 128), 256),
        9: ("sgemmAutotuned<128, 128, 16, 8, 8>", (n // 128, m // 128), 256),
        10: ("sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>", (n // 128, m // 128), 128),
    }[VERSION]
    module[name][grid, block](m, n, k, ALPHA, a, b, BETA, c)
    return c
