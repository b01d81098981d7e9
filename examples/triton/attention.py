"""Causal flash attention forward in float16: one program per head and block of BLOCK_M queries.

The program keeps its queries, a running row maximum and sum and the float32 output in registers while blocks of BLOCK_N
keys and values pass by, up to the diagonal; the matrix of scores never reaches memory. A head of n tokens and dimension
d takes about 2 * n * n * d FLOP under the causal mask for 8 * n * d compulsory bytes, n / 4 FLOP a byte, so beyond a
few thousand tokens arithmetic is the limit on a current GPU: the tensor cores for the two products, with one
exponential a score on the special function units beside them. Later query blocks have more work than earlier ones.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr,
    seq_len, scale_log2,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * seq_len * DIM
    dims = tl.arange(0, DIM)
    rows = first_row + tl.arange(0, BLOCK_M)
    row_offsets = head + rows[:, None] * DIM + dims[None, :]
    row_mask = rows[:, None] < seq_len
    q = tl.load(q_ptr + row_offsets, mask=row_mask, other=0.0)

    highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first_row + BLOCK_M, seq_len), BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        col_offsets = head + cols[:, None] * DIM + dims[None, :]
        col_mask = cols[:, None] < seq_len
        k = tl.load(k_ptr + col_offsets, mask=col_mask, other=0.0)
        v = tl.load(v_ptr + col_offsets, mask=col_mask, other=0.0)

        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(rows[:, None] >= cols[None, :], scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(tl.float16), v, acc * rescale[:, None])
        highest = new_highest

    tl.store(o_ptr + row_offsets, (acc / total[:, None]).to(tl.float16), mask=row_mask)


def attention(q, k, v):
    """Causal attention of contiguous float16 tensors (batch, heads, seq, dim), dim a power of two from 16 up."""
    batch, heads, seq_len, dim = q.shape
    out = torch.empty_like(q)
    scale_log2 = dim**-0.5 * 1.4426950408889634  # log2(e): the kernel works with powers of two
    attention_kernel[(triton.cdiv(seq_len, 128), batch * heads)](
        q, k, v, out, seq_len, scale_log2, DIM=dim, BLOCK_M=128, BLOCK_N=64, num_warps=4, num_stages=2
    )
    return out
