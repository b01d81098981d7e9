"""One step of the conjugate gradient method for the five-point Laplacian of a grid: solution, residual and direction.

Limited by memory bandwidth, and by its launches on small grids (see `conjugate_gradient.cu`). No value comes back to
the host: what is summed stays on the GPU for the kernels that follow.
"""

import torch

CASES = [
    dict(height=13, width=37),
    dict(height=4096, width=4096),
    dict(height=512, width=512),
    dict(height=1999, width=3001),
]
CONTRACT = dict(contiguous=True, aligned=16)


def inputs(height, width):
    return tuple(torch.randn(height, width, device="cuda") for _ in range(3))


def reference(x, r, p):
    q = 4 * p
    q[:, 1:] -= p[:, :-1]
    q[:, :-1] -= p[:, 1:]
    q[1:] -= p[:-1]
    q[:-1] -= p[1:]
    rr = (r * r).sum()
    alpha = rr / (p * q).sum()
    x, r = x + alpha * p, r - alpha * q
    return x, r, r + (r * r).sum() / rr * p


def launch(module, x, r, p):
    THREADS = 256  # as in conjugate_gradient.cu
    n = p.numel()
    blocks = (n + THREADS - 1) // THREADS
    few = min(blocks, 1024)
    q, x_new, r_new, p_new = (torch.empty_like(p) for _ in range(4))
    partial, rr, pq, rr_new = (torch.empty(count, device=p.device) for count in (few, 1, 1, 1))

    def dot(a, b, out):
        module.dot[(few,), (THREADS,)](a, b, partial, n)
        module.total[(1,), (THREADS,)](partial, out, few)

    module.laplacian[(blocks,), (THREADS,)](p, q, *p.shape)
    dot(r, r, rr)
    dot(p, q, pq)
    module.advance[(blocks,), (THREADS,)](x, r, p, q, rr, pq, x_new, r_new, n)
    dot(r_new, r_new, rr_new)
    module.turn[(blocks,), (THREADS,)](r_new, p, rr_new, rr, p_new, n)
    return x_new, r_new, p_new
