"""Rotary position embedding of queries and keys, bfloat16, in place: one program rotates all heads of one token.

Element i of a head is paired with element i + dim / 2 (the GPT-NeoX and Llama layout) and the pair is turned by the
angle of the position. Queries and keys are each read once and written once, 4 bytes an element for three operations;
the float32 cosines and sines of a position are shared by its heads. The limit is memory bandwidth on a current GPU.
"""

import triton
import triton.language as tl


@triton.jit
def rotate_heads(x_ptr, cos, sin, n_heads, HALF: tl.constexpr, BLOCK_HEADS: tl.constexpr):
    heads = tl.arange(0, BLOCK_HEADS)[:, None]
    low = x_ptr + heads * (2 * HALF) + tl.arange(0, HALF)[None, :]
    mask = heads < n_heads
    a = tl.load(low, mask=mask).to(tl.float32)
    b = tl.load(low + HALF, mask=mask).to(tl.float32)
    tl.store(low, (a * cos - b * sin).to(tl.bfloat16), mask=mask)
    tl.store(low + HALF, (b * cos + a * sin).to(tl.bfloat16), mask=mask)


@triton.jit
def rotary_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr,
    seq_len, q_heads, k_heads,
    HALF: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    angles = (token % seq_len) * HALF + tl.arange(0, HALF)
    cos = tl.load(cos_ptr + angles)[None, :]
    sin = tl.load(sin_ptr + angles)[None, :]
    rotate_heads(q_ptr + token * q_heads * (2 * HALF), cos, sin, q_heads, HALF, BLOCK_Q)
    rotate_heads(k_ptr + token * k_heads * (2 * HALF), cos, sin, k_heads, HALF, BLOCK_K)


def rotary(q, k, cos, sin):
    """Rotate `q` (batch, seq, q_heads, dim) and `k` (batch, seq, k_heads, dim) in place.

    `cos` and `sin` have the shape (seq, dim / 2); all tensors are contiguous and dim is a power of two.
    """
    batch, seq_len, q_heads, dim = q.shape
    k_heads = k.shape[2]
    rotary_kernel[(batch * seq_len,)](
        q, k, cos, sin, seq_len, q_heads, k_heads,
        HALF=dim // 2,
        BLOCK_Q=triton.next_power_of_2(q_heads),
        BLOCK_K=triton.next_power_of_2(k_heads),
        num_warps=4,
    )  # fmt: skip
    return q, k
