"""One smoothing step of a nine-point stencil over a 2D grid whose border is kept.

Limited by memory bandwidth: 8 bytes of compulsory traffic a point, if the neighbours' loads hit a cache (see
`stencil2d.cu`).
"""

import torch

CASES = [
    dict(height=17, width=35),
    dict(height=4096, width=8192),
    dict(height=1024, width=1024),
    dict(height=3001, width=4099),
]
CONTRACT = dict(contiguous=True, aligned=16)
CENTER, EDGE, CORNER = 0.25, 0.125, 0.0625


def inputs(height, width):
    return (torch.randn(height, width, device="cuda"),)


def reference(u):
    edges = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    corners = u[:-2, :-2] + u[:-2, 2:] + u[2:, :-2] + u[2:, 2:]
    out = u.clone()
    out[1:-1, 1:-1] = CENTER * u[1:-1, 1:-1] + EDGE * edges + CORNER * corners
    return out


def launch(module, u):
    height, width = u.shape
    out = torch.empty_like(u)
    block = (16, 16)
    grid = ((width + block[0] - 1) // block[0], (height + block[1] - 1) // block[1])
    module["stencil::nine_point"][grid, block](u, out, height, width, CENTER, EDGE, CORNER)
    return out
