"""Causal flash attention forward in float16 by tensor descriptors: as `attention.py`, without an address or a mask.

A descriptor says where a tensor lies, how long its axes are, and which block is moved at once; from Hopper on it is a
tensor map, and the hardware copies whole blocks to and from shared memory. It fills with zeros behind the last token of
a head and stores nothing there, so that sequences need not be multiples of a block. What remains of masks is the causal
one, which also keeps out these zeros: their columns lie behind every row that counts. The limit is that of
`attention.py`, the tensor cores with one exponential a score beside them.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def attention_descriptors_kernel(
    q_desc, k_desc, v_desc, o_desc,
    seq_len, scale_log2,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    rows = first_row + tl.arange(0, BLOCK_M)
    q = q_desc.load([head, first_row, 0]).reshape(BLOCK_M, DIM)

    highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first_row + BLOCK_M, seq_len), BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = k_desc.load([head, start, 0]).reshape(BLOCK_N, DIM)
        v = v_desc.load([head, start, 0]).reshape(BLOCK_N, DIM)

        scores = tl.dot(q, tl.trans(k)) * scale_log2
        scores = tl.where(rows[:, None] >= cols[None, :], scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(tl.float16), v, acc * rescale[:, None])
        highest = new_highest

    o_desc.store([head, first_row, 0], (acc / total[:, None]).to(tl.float16).reshape(1, BLOCK_M, DIM))


def attention(q, k, v, BLOCK_M=128, BLOCK_N=64):
    """Causal attention of contiguous float16 tensors (batch, heads, seq, dim), dim a power of two from 16 up."""
    batch, heads, seq_len, dim = q.shape
    out = torch.empty_like(q)
    scale_log2 = dim**-0.5 * 1.4426950408889634  # log2(e): the kernel works with powers of two

    def described(x, rows):
        return TensorDescriptor.from_tensor(x.view(batch * heads, seq_len, dim), [1, rows, dim])

    attention_descriptors_kernel[(triton.cdiv(seq_len, BLOCK_M), batch * heads)](
        described(q, BLOCK_M), described(k, BLOCK_N), described(v, BLOCK_N), described(out, BLOCK_M),
        seq_len, scale_log2, DIM=dim, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out
