"""Pipelines that copy: a producer fills a ring of stages by tensor maps, consumers carry them to other memory.

Tiles are boxes in one to five dimensions, of any type that a map copies as it is, with and without a swizzle, at places
that lie in part or wholly outside of the tensor. Behind a box there may be plain bytes. Consumers store from threads,
or by bulk copies out of a tile of their own or the stage itself, as bytes, as boxes, or as reductions. Some pipelines
are of two blocks that get their tiles by multicast. On demand, a pipeline has a fault that ends it with an illegal
instruction.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tests.bench.pipelines.pipeline import (
    ALIGN,
    ENTRY,
    MOST_SHARED,
    PRELUDE,
    TYPES,
    WARP,
    Buffer,
    Layout,
    Map,
    Pipeline,
    parameters,
    random_bytes,
)
from tests.bench.pipelines.tiling import (
    PIECE_BYTES,
    SWIZZLES,
    Tiling,
    box_copy,
    box_store,
    random_tiling,
    tiling_like,
)

_KEY = 0x5A5AA5A5
LOADED_ASKEW, STORED_ASKEW, STORED_BEFORE = FAULTS = (
    "loaded between pieces",
    "stored between pieces",
    "stored before the tensor",
)
"""What ends a pipeline with an illegal instruction."""
_WAYS = ("threads", "bulk", "boxes", "in place", "in place as boxes", "reduced", "reduced as boxes")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is drawn of a copying pipeline.

    Attributes:
        kind: of the elements.
        way: how consumers store, one of `_WAYS`.
        stages: of the ring.
        consumers: threads.
        by_warp: whether one thread of each warp frees a stage, not all.
        line: plain bytes that follow a box.
        apart: whether the bytes of box and line are announced one after the other.
        cluster: blocks that share their tiles.
        grid: blocks.
        reduction: the operation of reductions.
    """

    kind: str
    way: str
    stages: int
    consumers: int
    by_warp: bool
    line: int
    apart: bool
    cluster: int
    grid: int
    reduction: str

    @property
    def alone(self) -> bool:
        """Whether one consumer stores out of the stage."""
        return self.way.startswith("in place")

    @property
    def as_boxes(self) -> bool:
        """Whether stores go by a tensor map."""
        return self.way.endswith("boxes")

    @property
    def arrivals(self) -> int:
        """Those that free a stage."""
        return 1 if self.alone else self.cluster * (self.consumers // WARP if self.by_warp else self.consumers)


def random_copies(seed: int, narrow: bool = False, fault: str = "") -> Pipeline:
    """Draw a pipeline; with `narrow` of boxes whose rows are shorter than their swizzle; with a fault of `FAULTS`."""
    chance = np.random.default_rng([seed, 1])
    plan = _plan(chance)
    while fault in (STORED_ASKEW, STORED_BEFORE) and not plan.as_boxes:
        plan = _plan(chance)
    source = random_tiling(chance, plan.kind, 0, narrow)
    tiles = prod(source.tiles)
    target = tiling_like(chance, plan.kind, 2, source, narrow) if plan.as_boxes else None
    if fault == LOADED_ASKEW:
        source = _askew(chance, plan.kind, source)
    elif target and fault:
        target = _askew(chance, plan.kind, target) if fault == STORED_ASKEW else _before(chance, target)
    source = replace(source, span=max(source.span, target.span if target else 0))
    maps = (source.map, target.map) if target else (source.map,)
    piece = source.span + plan.line
    plan = replace(plan, stages=min(plan.stages, MOST_SHARED // _stage_bytes(piece) - 1))
    out = target.nbytes if target else tiles * plan.cluster * piece
    size = TYPES[plan.kind].size
    contents = (-(-source.nbytes // 16) * 16, max(tiles * plan.line, 16), -(-out // 16) * 16)
    kinds = (plan.kind, plan.kind, plan.kind)
    buffers = [Buffer(random_bytes(chance, k, n // size), k) for k, n in zip(kinds, contents, strict=True)]
    if target and plan.line:
        buffers.append(Buffer(random_bytes(chance, plan.kind, tiles * plan.line // size), plan.kind))
    text, shared = _text(plan, source, target, maps, tuple(buffers))
    box = "x".join(map(str, source.map.box))
    words = (
        f"{plan.kind}, {len(source.counts)}d, box {box}, steps {'x'.join(map(str, source.map.steps))}, "
        f"swizzle {SWIZZLES[source.map.swizzle]}, {plan.stages} stages, {plan.consumers} consumers, {plan.way}"
        f"{f' by {plan.reduction}' if plan.reduction else ''}{f', {plan.line} bytes more' if plan.line else ''}"
        f"{', multicast' if plan.cluster > 1 else ''}{f', {fault}' if fault else ''}"
    )
    grid, threads = plan.grid * plan.cluster, plan.consumers + WARP
    return Pipeline(seed, "copies", words, text, grid, threads, shared, tuple(buffers), maps)


def _askew(chance: np.random.Generator, kind: str, tiling: Tiling) -> Tiling:
    """The same boxes, which begin within 16 bytes."""
    first, *rest = tiling.origin
    return replace(tiling, origin=(first + int(chance.integers(1, PIECE_BYTES // TYPES[kind].size)), *rest))


def _before(chance: np.random.Generator, tiling: Tiling) -> Tiling:
    """The same boxes, of which the first begins before the tensor in one dimension, at a multiple of 16 bytes."""
    origin, dimension = list(tiling.origin), int(chance.integers(len(tiling.origin)))
    origin[dimension] = -tiling.counts[0] if dimension == 0 else -int(chance.integers(1, 4))
    return replace(tiling, origin=tuple(origin))


def _stage_bytes(piece: int) -> int:
    """Bytes from stage to stage."""
    return -(-piece // ALIGN) * ALIGN


def _plan(chance: np.random.Generator) -> _Plan:
    way = str(chance.choice(_WAYS))
    kinds = [name for name, kind in TYPES.items() if kind.reductions or not way.startswith("reduced")]
    kind = str(chance.choice(kinds))
    cluster = 2 if way in ("threads", "bulk", "reduced") and chance.random() < 0.35 else 1
    return _Plan(
        kind=kind,
        way=way,
        stages=int(chance.integers(1, 5)),
        consumers=WARP * int(chance.integers(1, 5)),
        by_warp=bool(chance.random() < 0.5),
        line=16 * int(chance.integers(1, 40)) if chance.random() < 0.4 else 0,
        apart=bool(chance.random() < 0.3),
        cluster=cluster,
        grid=int(chance.integers(1, 4)),
        reduction=str(chance.choice(TYPES[kind].reductions)) if way.startswith("reduced") else "",
    )


def _text(
    plan: _Plan, source: Tiling, target: Tiling | None, maps: tuple[Map, ...], buffers: tuple[Buffer, ...]
) -> tuple[str, int]:
    """The kernel, and its bytes of shared memory."""
    layout, piece = Layout(), source.span + plan.line
    stage = _stage_bytes(piece)
    ring, tile = layout.take(stage * plan.stages), layout.take(piece)
    barriers = layout.take(16 * plan.stages, 8)
    helpers = box_copy(len(source.counts), plan.cluster > 1)
    if target:
        helpers += box_store(len(source.counts), plan.reduction)
    if plan.way == "reduced" or (plan.reduction and plan.line):
        helpers += _reduce_line(plan)
    attribute = f"__cluster_dims__({plan.cluster}) " if plan.cluster > 1 else ""
    text = f"""{PRELUDE}{helpers}
constexpr int STAGES = {plan.stages}, CONSUMERS = {plan.consumers}, TILES = {prod(source.tiles)}, STAGE = {stage};
constexpr int BOX = {prod(source.counts) * TYPES[plan.kind].size}, SPAN = {source.span}, LINE = {plan.line};
constexpr int PIECE = SPAN + LINE, CLUSTER = {plan.cluster};

extern "C" __global__ void {attribute}{ENTRY}({parameters(maps, buffers)}) {{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *ring = shared + {ring}, *tile = shared + {tile};
    uint64_t *full = reinterpret_cast<uint64_t*>(shared + {barriers}), *empty = full + STAGES;
    const int rank = {"cluster_rank()" if plan.cluster > 1 else "0"};
    for (int i = threadIdx.x; i < STAGE / 4 * STAGES; i += blockDim.x) reinterpret_cast<uint32_t*>(ring)[i] = i;
    fence_async();
    if (threadIdx.x == 0) {{
        for (int s = 0; s < STAGES; s++) {{
            init_barrier(&full[s], 1);
            init_barrier(&empty[s], {plan.arrivals});
        }}
        fence_init();
    }}
    {"cluster_sync()" if plan.cluster > 1 else "__syncthreads()"};
    const int first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    int stage = 0;
    if (threadIdx.x >= CONSUMERS) {{
        if (elected()) {{
            int parity = 1, turn = 0;
            for (int t = first; t < TILES; t += step, turn ^= 1) {{
                wait{"_cluster" if plan.cluster > 1 else ""}(&empty[stage], parity);
{_fill(plan, source)}
                if (++stage == STAGES) {{
                    stage = 0;
                    parity ^= 1;
                }}
            }}
        }}
    }} else {{
        int parity = 0;
        for (int t = first; t < TILES; t += step) {{
            wait{"_cluster" if plan.cluster > 1 else ""}(&full[stage], parity);
            unsigned char* filled = ring + stage * STAGE;
            const int place = t * CLUSTER + rank;
{_drain(plan, target)}
            if (++stage == STAGES) {{
                stage = 0;
                parity ^= 1;
            }}
        }}
        if (threadIdx.x == 0) wait_stores();
    }}
    {"__syncwarp(), cluster_sync();" if plan.cluster > 1 else ""}
}}
"""
    return text, layout.end


def _fill(plan: _Plan, source: Tiling) -> str:
    """What the producer does for a tile: announce its bytes and start its copies."""
    copies = [(f"copy_box(ring + stage * STAGE, &m0, &full[stage], {source.places('t')})", "BOX")]
    if plan.line:
        copies.append(("copy_line(ring + stage * STAGE + SPAN, b1 + t * LINE, LINE, &full[stage])", "LINE"))
    lines: list[str] = []
    if not plan.apart:
        lines.append(f"arrive_expecting(&full[stage], {' + '.join(nbytes for _, nbytes in copies)});")
    for number, (copy, nbytes) in enumerate(copies):
        if plan.apart:
            lines.append(f"expect(&full[stage], {nbytes});")
        shared = plan.cluster > 1 and number == 0  # plain bytes are brought by each block for itself
        lines.append(f"if (turn == rank) {copy};" if shared else f"{copy};")
    if plan.apart:
        lines.append("arrive(&full[stage]);")
    return "\n".join(" " * 16 + line for line in lines)


def _drain(plan: _Plan, target: Tiling | None) -> str:
    """What the consumers do with a tile, and how they free its stage."""
    free = ["arrive(&empty[stage]);"]
    if plan.cluster > 1:
        free = [f"arrive_at(&empty[stage], {rank});" for rank in range(plan.cluster)]
    if plan.by_warp:
        free = ["__syncwarp();", f"if (threadIdx.x % {WARP} == 0) {{ {' '.join(free)} }}"]
    stored = f"store_box(&m1, FROM, {target.places('t')});" if target else "STORE(b2 + place * PIECE, FROM, PIECE);"
    if target and plan.line:
        stored += " STORE(b3 + t * LINE, FROM + SPAN, LINE);"
    stored = stored.replace("STORE", "reduce_line" if plan.reduction else "store_line")
    if plan.alone:
        lines = [
            "if (threadIdx.x == 0) {",
            f"    {stored.replace('FROM', 'filled')}",
            "    commit_stores();",
            "    wait_stores_read();",
            "    arrive(&empty[stage]);",
            "}",
        ]
    else:
        key = 0 if plan.reduction else _KEY
        to = "b2 + place * PIECE" if plan.way == "threads" else "tile"
        moved = [
            "for (int i = threadIdx.x; i < PIECE / 4; i += CONSUMERS)",
            f"    reinterpret_cast<uint32_t*>({to})[i] = reinterpret_cast<uint32_t*>(filled)[i] ^ {key}u;",
        ]
        if plan.way == "threads":
            lines = [*moved, *free]
        else:
            together = 'asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");'
            lines = ["if (threadIdx.x == 0) wait_stores_read();", together, *moved, *free, "fence_async();", together]
            lines += ["if (threadIdx.x == 0) {", f"    {stored.replace('FROM', 'tile')}", "    commit_stores();", "}"]
    return "\n".join(" " * 12 + line for line in lines)


def _reduce_line(plan: _Plan) -> str:
    """`reduce_line` in CUDA, of the elements of a plan."""
    rounded = ".noftz" if plan.reduction == "add" and plan.kind in ("f16", "bf16") else ""
    bits = {"and", "or", "xor"} & {plan.reduction}
    kind = f"b{TYPES[plan.kind].size * 8}" if bits else plan.kind
    opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{plan.reduction}{rounded}.{kind}"
    return (
        "__device__ inline void reduce_line(void* to, const void* from, int bytes) {\n"
        f'    asm volatile("{opcode} [%0], [%1], %2;" ::"l"(to), "r"(at(from)), "r"(bytes) : "memory");\n}}\n'
    )
