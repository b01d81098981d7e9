"""SwiGLU activation `silu(gate) * up` in bfloat16, the two halves of a gated feed-forward layer, as one pass.

Every output takes two reads and one write of 2 bytes each and about ten operations, one of them an exponential, in
float32. At 6 bytes an element the memory is the limit on a current GPU: the least time is `6 * numel` bytes over the
bandwidth. Wide vector accesses and enough independent loads in flight are what is left to arrange.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _swiglu_kernel(gate_ptr, up_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_ptr + offsets, y.to(tl.bfloat16), mask=mask)


def swiglu(gate, up):
    """`silu(gate) * up` of two contiguous bfloat16 tensors of one shape."""
    y = torch.empty_like(gate)
    n = gate.numel()
    _swiglu_kernel[(triton.cdiv(n, 1024),)](gate, up, y, n, BLOCK=1024, num_warps=4)
    return y
