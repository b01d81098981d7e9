"""Columns of pixels: a thread loads them one after the other by an im2col map, or stores them, and the others help it.

Tensors have one to three spatial dimensions; columns begin anywhere in the bounding box, which may lie in part outside
of the tensor, go on through rows, planes and images, and may end behind the last one.
"""

from dataclasses import dataclass

import numpy as np

from kernel_lsp.emulate.tensormap import Im2col
from tests.bench.pipelines.pipeline import (
    ENTRY,
    PRELUDE,
    TYPES,
    Buffer,
    Layout,
    Map,
    Pipeline,
    parameters,
    random_bytes,
)
from tests.bench.pipelines.tiling import PIECE_BYTES, SWIZZLES

_THREADS = 64
_MOST_BYTES = 8192  # of a column


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is drawn of columns.

    Attributes:
        map: of the tensor.
        nbytes: of its buffer.
        stores: whether columns go out.
        places: of each column, from the channel to the image.
        offsets: of each column, in each spatial dimension; none of those that go out.
    """

    map: Map
    nbytes: int
    stores: bool
    places: tuple[tuple[int, ...], ...]
    offsets: tuple[tuple[int, ...], ...]


def random_columns(seed: int) -> Pipeline:
    """Draw a pipeline."""
    chance = np.random.default_rng([seed, 3])
    kind = str(chance.choice(list(TYPES)))
    plan, layout = _plan(chance, kind), Layout()
    box = plan.map.im2col
    assert box is not None
    size = TYPES[kind].size
    moved, span = box.pixels * box.channels * size, box.pixels * (SWIZZLES[plan.map.swizzle] or box.channels * size)
    buffers = tuple(
        Buffer(random_bytes(chance, kind, -(-count // 16) * 16 // size), kind)
        for count in (plan.nbytes, span * len(plan.places))
    )
    tile, barrier = layout.take(span), layout.take(8, 8)
    lines = _out(span) if plan.stores else _in(moved, span)
    text = f"""{PRELUDE}{_copy(plan)}
__device__ const int places[][{len(plan.map.shape)}] = {_array(plan.places)};
__device__ const int aside[][3] = {_array([(*each, 0, 0, 0)[:3] for each in plan.offsets])};

extern "C" __global__ void {ENTRY}({parameters((plan.map,), buffers)}) {{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char* tile = shared + {tile};
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + {barrier});
    if (threadIdx.x == 0) {{
        init_barrier(full, 1);
        fence_init();
    }}
    __syncthreads();
    for (int t = 0; t < {len(plan.places)}; t++) {{
{lines}
        __syncthreads();
    }}
}}
"""
    words = (
        f"{kind}, {len(box.lower)} spatial dimensions, {box.channels} channels of {box.pixels} pixels, from "
        f"{box.lower} to {box.upper}, steps {plan.map.steps[1:-1]}, swizzle {SWIZZLES[plan.map.swizzle]}, "
        f"{len(plan.places)} {'out' if plan.stores else 'in'}"
    )
    return Pipeline(seed, "columns", words, text, 1, _THREADS, layout.end, buffers, (plan.map,))


def _plan(chance: np.random.Generator, kind: str) -> _Plan:
    size, spatial, stores = TYPES[kind].size, int(chance.integers(1, 4)), bool(chance.random() < 0.25)
    mode = int(chance.integers(0, len(SWIZZLES)))
    inner = SWIZZLES[mode] or PIECE_BYTES * int(chance.integers(1, 17))
    channels, extents = inner // size, [int(chance.integers(2, 9)) for _ in range(spatial)]
    lower, upper, steps = list[int](), list[int](), list[int]()
    for extent in extents:
        lower.append(0 if stores else -int(chance.integers(0, 3)))
        upper.append(0 if stores else int(chance.integers(1 - extent, 2)) if chance.random() < 0.5 else lower[-1])
        steps.append(int(chance.choice([1, 1, 1, 2, 3])))
    pixels = int(chance.integers(1, min(96, _MOST_BYTES // inner) + 1))
    every = channels * int(chance.integers(1, 4))
    shape = (max(1, every - int(chance.choice([0, 0, 3]))), *extents, int(chance.integers(1, 4)))
    strides, row = list[int](), -(-shape[0] * size // PIECE_BYTES) * PIECE_BYTES
    for extent in shape[1:]:
        strides.append(row + PIECE_BYTES * int(chance.choice([0, 0, 1, 3])))
        row = strides[-1] * extent
    box = Im2col(tuple(lower), tuple(upper), channels, pixels)
    ones, offset = (1,) * len(shape), PIECE_BYTES * int(chance.choice([0, 0, 1, 5]))
    number = TYPES[kind].number
    made = Map(0, offset, number, shape, tuple(strides), ones, (1, *steps, 1), mode, im2col=box)
    places, offsets = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for _ in range(int(chance.integers(1, 7))):
        first = channels * int(chance.integers(0, every // channels))
        begin = [
            low + step * int(chance.integers(0, (extent - 1 + high - low) // step + 1))
            for extent, low, high, step in zip(extents, lower, upper, steps, strict=True)
        ]
        places.append((first, *begin, int(chance.integers(0, shape[-1]))))
        offsets.append(() if stores else tuple(int(chance.integers(0, 4)) for _ in extents))
    return _Plan(made, offset + row, stores, tuple(places), tuple(offsets))


def _array(rows: object) -> str:
    """Tuples of integers as an initialiser in CUDA."""
    return repr(rows).replace(",)", ")").translate(str.maketrans("()[]", "{}{}"))


def _in(moved: int, span: int) -> str:
    return f"""        if (threadIdx.x == 0) {{
            arrive_expecting(full, {moved});
            copy_column(tile, &m0, full, places[t], aside[t]);
        }}
        wait(full, t & 1);
        for (int i = threadIdx.x; i < {span // 4}; i += {_THREADS})
            reinterpret_cast<uint32_t*>(b1 + t * {span})[i] = reinterpret_cast<uint32_t*>(tile)[i];"""


def _out(span: int) -> str:
    return f"""        for (int i = threadIdx.x; i < {span // 4}; i += {_THREADS})
            reinterpret_cast<uint32_t*>(tile)[i] = reinterpret_cast<uint32_t*>(b1 + t * {span})[i];
        fence_async();
        __syncthreads();
        if (threadIdx.x == 0) {{
            store_column(&m0, tile, places[t]);
            commit_stores();
            wait_stores();
        }}"""


def _copy(plan: _Plan) -> str:
    """`copy_column` or `store_column`, in CUDA."""
    rank = len(plan.map.shape)
    places = ", ".join(f"%{2 + dimension}" for dimension in range(rank))
    given = ", ".join(f'"r"(at_[{dimension}])' for dimension in range(rank))
    if plan.stores:
        return (
            "__device__ inline void store_column(const TensorMap* map, const void* from, const int* at_) {\n"
            f'    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.im2col_no_offs.bulk_group '
            f'[%0, {{{places}}}], [%1];"\n'
            f'        ::"l"(map), "r"(at(from)), {given} : "memory");\n}}\n'
        )
    aside = ", ".join(f"%{3 + rank + dimension}" for dimension in range(rank - 2))
    offsets = ", ".join(f'"h"(static_cast<uint16_t>(by[{dimension}]))' for dimension in range(rank - 2))
    return (
        "__device__ inline void copy_column(void* to, const TensorMap* map, uint64_t* bar, const int* at_,\n"
        "                                   const int* by) {\n"
        f'    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes '
        f'[%0], [%1, {{{places}}}], [%{2 + rank}], {{{aside}}};"\n'
        f'        ::"r"(at(to)), "l"(map), {given}, "r"(at(bar)), {offsets} : "memory");\n}}\n'
    )
