"""Pipelines that multiply: a producer fills stages of A and B by tensor maps, warpgroups multiply them with `wgmma`.

Operands lie along K or along M and N, with any swizzle or none; A may come from registers. Depths, widths, stages,
signs and what is in flight when a stage is freed are drawn. Sums are stored as the registers hold them, or through
shared memory as boxes.
"""

from dataclasses import dataclass

import numpy as np

from tests.bench.pipelines.pipeline import (
    ENTRY,
    MOST_SHARED,
    PRELUDE,
    TYPES,
    WARP,
    Array,
    Buffer,
    Layout,
    Map,
    Pipeline,
    parameters,
)
from tests.bench.pipelines.tiling import SWIZZLES, box_copy, box_store

_GROUP = 128  # threads of a warpgroup
_MOST_GROUPS = 2  # with them, 40 registers for the producer's warps leave 232 for the others
_ROWS = 64  # of a warpgroup's product
_FORMS = (
    *(("f16", "f16", sums) for sums in ("f32", "f32", "f16")),
    *(("bf16", "bf16", "f32"),) * 3,
    *(("tf32", "tf32", "f32"),) * 2,
    *((a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")),
    *((a, b, sums) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for sums in ("f32", "f16")),
)
_FORM_SHARES = (*(2,) * 8, *(1,) * 4, *(0.5,) * 8)
_SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f32": 4, "s32": 4}
_MAP_TYPES = {"tf32": "f32", "s8": "u8", "e4m3": "u8", "e5m2": "u8"}
_STEP_BYTES = 32  # of K, in one instruction
_STARTS = {"f32": "1.5f * i", "f16": "0x3e00be00u", "s32": "i % 2 ? 0x7fffff00u : 0x80000100u"}
_MODES = {0: 0, 32: 3, 64: 2, 128: 1}  # bytes of the swizzle -> its number in a descriptor


@dataclass(frozen=True, slots=True)
class _Operand:
    """How A or B is brought: its type, the rows of a block and how it lies.

    Attributes:
        kind: of the elements.
        rows: in M or N, of a block.
        width: of the swizzle.
        along_rows: whether neighbours in M or N lie side by side, not those in K.
        depth: elements of K in a stage.
    """

    kind: str
    rows: int
    width: int
    along_rows: bool
    depth: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return _SIZES[self.kind]

    @property
    def line(self) -> int:
        """Bytes of a row of a box."""
        return self.width or 16

    @property
    def nbytes(self) -> int:
        """Bytes of a stage."""
        return self.rows * self.depth * self.size

    @property
    def box(self) -> tuple[int, int]:
        """The box, the innermost dimension first."""
        return self.line // self.size, self.depth if self.along_rows else self.rows

    @property
    def boxes(self) -> int:
        """How many of them make a stage."""
        return self.nbytes // (self.line * self.box[1])

    def copies(self, number: int, place: str, row: str) -> list[str]:
        """The copies of a stage to `place`, for the map of this number, in CUDA."""
        made: list[str] = []
        for box in range(self.boxes):
            inner = box * self.box[0]
            at = f"{row} + {inner}, k * {self.depth}" if self.along_rows else f"k * {self.depth} + {inner}, {row}"
            made.append(f"copy_box({place} + {box * self.line * self.box[1]}, &m{number}, &full[stage], {at});")
        return made

    def descriptor(self, place: str, step: int, group: str) -> str:
        """The descriptor of one instruction's part of a stage, in CUDA; `group` is the number of its 64 rows."""
        depth = _STEP_BYTES // self.size
        if self.along_rows:
            block = self.depth * self.line
            start = f"{step * depth * self.line} + {group} * {_ROWS * self.size // self.line * block}"
            leading, stride = (block, 8 * self.line) if self.width else (8 * self.line, block)
        elif self.width:
            box, inner = divmod(step * _STEP_BYTES, self.width)
            start = f"{box * self.width * self.rows + inner} + {group} * {_ROWS * self.width}"
            leading, stride = 16, 8 * self.width
        else:
            start = f"{step * _STEP_BYTES * self.rows} + {group} * {_ROWS * 16}"
            leading, stride = 16 * self.rows, 128
        return f"describe({place} + {start}, {leading}, {stride}, {_MODES[self.width]})"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is drawn of a multiplying pipeline.

    Attributes:
        a, b: the operands.
        sums: type of the sums.
        groups: warpgroups that multiply, each 64 rows.
        stages: of the ring.
        rounds: stages that a product takes.
        in_registers: whether A is loaded by its threads.
        signs: 1 or -1, of A and B.
        saturate: whether integer sums stop at their limits.
        behind: products in flight when a stage is freed.
        boxed: whether sums go through shared memory.
        resized: whether warps trade registers.
        started: whether sums begin with a number of their own, near the limits of integers.
        grid: blocks, one below the other.
    """

    a: _Operand
    b: _Operand
    sums: str
    groups: int
    stages: int
    rounds: int
    in_registers: bool
    signs: tuple[int, int]
    saturate: bool
    behind: int
    boxed: bool
    resized: bool
    started: bool
    grid: int

    @property
    def registers(self) -> int:
        """Registers of a thread that hold sums."""
        return self.b.rows // 2 // (2 if self.sums == "f16" else 1)

    @property
    def steps(self) -> int:
        """Instructions of a stage."""
        return self.a.depth * self.a.size // _STEP_BYTES

    @property
    def family(self) -> str:
        """The types."""
        return f"{self.a.kind} x {self.b.kind} -> {self.sums}"


def random_product(seed: int) -> Pipeline:
    """Draw a pipeline."""
    chance = np.random.default_rng([seed, 2])
    plan = _plan(chance)
    depth = max(16 // plan.a.size, plan.rounds * plan.a.depth - int(chance.choice([0, 0, 16, 32])) // plan.a.size)
    maps, buffers = list[Map](), list[Buffer]()
    for operand, rows in ((plan.a, plan.a.rows * plan.grid), (plan.b, plan.b.rows)):
        rows = max(8, rows - int(chance.choice([0, 0, 1, 5])))
        inner, outer = (rows, depth) if operand.along_rows else (depth, rows)
        stride = -(-inner * operand.size // 16) * 16 + 16 * int(chance.choice([0, 0, 1]))
        kind = TYPES[_MAP_TYPES.get(operand.kind, operand.kind)]
        mode = SWIZZLES.index(operand.width)
        made = Map(len(buffers), 0, kind.number, (inner, outer), (stride,), operand.box, (1, 1), mode)
        maps.append(made)
        buffers.append(Buffer(random_factors(chance, operand.kind, stride * outer // operand.size), operand.kind))
    if plan.in_registers:
        words = plan.rounds * plan.steps * plan.groups * _GROUP * plan.grid * 4
        buffers.append(Buffer(random_factors(chance, plan.a.kind, words * 4 // plan.a.size), plan.a.kind))
    size, rows = _SIZES[plan.sums], _ROWS * plan.groups * plan.grid
    buffers.append(Buffer(np.full(rows * plan.b.rows * size, 0xA5, np.uint8), plan.sums))
    if plan.boxed:
        clipped = rows - int(chance.choice([0, 0, 3]))
        kind = TYPES["s32" if plan.sums == "s32" else plan.sums].number
        shape, box = (plan.b.rows, clipped), (plan.b.rows, _ROWS)
        maps.append(Map(len(buffers) - 1, 0, kind, shape, (plan.b.rows * size,), box, (1, 1), 0))
    text, shared = _text(plan, tuple(maps), tuple(buffers))
    threads = (plan.groups + 1) * _GROUP
    return Pipeline(
        seed, plan.family, _words(plan, depth), text, plan.grid, threads, shared, tuple(buffers), tuple(maps)
    )


def random_factors(chance: np.random.Generator, kind: str, count: int) -> Array:
    """So many elements of a type, as bytes: any integers; floats of sizes that sums round, and some zeros."""
    if kind in ("s8", "u8"):
        return chance.integers(0, 256, count, np.uint8)
    if kind in ("e4m3", "e5m2"):  # neither NaN nor infinity, and no sum that is one
        most = 0x5F if kind == "e4m3" else 0x47
        return chance.integers(0, most + 1, count, np.uint8) | chance.integers(0, 2, count, np.uint8) << 7
    values = chance.standard_normal(count) * np.exp2(chance.integers(-8, 3, count))
    values *= chance.random(count) < 0.95
    if kind == "f16":
        return values.astype(np.float16).view(np.uint8)
    bits = values.astype(np.float32).view(np.uint32)
    return (bits >> 16).astype(np.uint16).view(np.uint8) if kind == "bf16" else bits.view(np.uint8)


def _plan(chance: np.random.Generator) -> _Plan:
    shares = np.array(_FORM_SHARES)
    kind_a, kind_b, sums = _FORMS[int(chance.choice(len(_FORMS), p=shares / shares.sum()))]
    size, whole = _SIZES[kind_a], sums == "s32"
    groups, in_registers = int(chance.integers(1, _MOST_GROUPS + 1)), bool(chance.random() < 0.25)
    turned = [size == 2 and chance.random() < 0.3 for _ in "ab"]
    widths = [int(chance.choice(SWIZZLES)) for _ in "ab"]
    # The stage holds whole rows of both swizzles, and whole instructions.
    row = max([_STEP_BYTES, *(w for w, t in zip(widths, turned, strict=True) if not t)])
    depth = row * int(chance.integers(1, 3)) // size
    n = int(chance.choice([8, 16, 24, 32, 48, 64, 96, 128]))
    if whole and n % 16:
        n = n + 8 if n > 8 else n
    if turned[1]:
        n = -(-n * size // max(widths[1], 16)) * max(widths[1], 16) // size
    boxed, stages = bool(chance.random() < 0.5), int(chance.integers(1, 5))
    signed = bool(chance.random() < 0.3) and not whole
    a = _Operand(kind_a, _ROWS * groups, widths[0], bool(turned[0]), depth)
    b = _Operand(kind_b, n, widths[1], bool(turned[1]), depth)
    sums_bytes = a.rows * b.rows * _SIZES[sums] if boxed else 0
    stages = min(stages, (MOST_SHARED - sums_bytes) // (a.nbytes + b.nbytes))
    return _Plan(
        a=a,
        b=b,
        sums=sums,
        groups=groups,
        stages=stages,
        rounds=int(chance.integers(1, 6)),
        in_registers=in_registers,
        signs=(int(chance.choice([1, -1])), int(chance.choice([1, -1]))) if signed else (1, 1),
        saturate=whole and bool(chance.random() < 0.5),
        behind=int(chance.integers(0, 2)) if stages > 1 and not in_registers else 0,
        boxed=boxed,
        resized=groups == _MOST_GROUPS and bool(chance.random() < 0.5),
        started=bool(chance.random() < 0.3),
        grid=int(chance.integers(1, 3)),
    )


def _words(plan: _Plan, depth: int) -> str:
    """What a pipeline does, in a line."""
    lie = [f"{'MN' if each.along_rows else 'K'}-major swizzle {each.width}" for each in (plan.a, plan.b)]
    lie[0] = "in registers" if plan.in_registers else lie[0]
    more = [
        *(["negative"] if -1 in plan.signs else []),
        *(["saturated"] if plan.saturate else []),
        *(["one product behind"] if plan.behind else []),
        *(["sums as boxes"] if plan.boxed else []),
        *(["setmaxnreg"] if plan.resized else []),
        *(["sums begun"] if plan.started else []),
    ]
    return (
        f"{plan.a.rows}x{plan.b.rows}x{depth}, {plan.stages} stages of {plan.a.depth}, A {lie[0]}, B {lie[1]}"
        + "".join(f", {word}" for word in more)
    )


def _text(plan: _Plan, maps: tuple[Map, ...], buffers: tuple[Buffer, ...]) -> tuple[str, int]:
    """The kernel, and its bytes of shared memory."""
    layout = Layout()
    a_stage, b_stage = (-(-operand.nbytes // 1024) * 1024 for operand in (plan.a, plan.b))
    places = [layout.take(nbytes * plan.stages) for nbytes in (a_stage, b_stage)]
    size = _SIZES[plan.sums]
    tile = layout.take(_ROWS * plan.groups * plan.b.rows * size if plan.boxed else 0)
    barriers = layout.take(16 * plan.stages, 8)
    register = "uint32_t" if plan.sums != "f32" else "float"
    dealt = (
        ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 160;") if plan.resized else ("",) * 2
    )
    fewer, more = (f'asm volatile("{text}");' if text else "" for text in dealt)
    text = f"""{PRELUDE}{box_copy(2)}{box_store(2) if plan.boxed else ""}{_multiply(plan)}
constexpr int STAGES = {plan.stages}, ROUNDS = {plan.rounds}, CONSUMERS = {plan.groups * _GROUP}, N = {plan.b.rows};
constexpr int A_STAGE = {a_stage}, B_STAGE = {b_stage}, A_BYTES = {plan.a.nbytes}, B_BYTES = {plan.b.nbytes};

extern "C" __global__ void __launch_bounds__(CONSUMERS + {_GROUP}, 1) {ENTRY}({parameters(maps, buffers)}) {{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *a = shared + {places[0]}, *b = shared + {places[1]}, *tile = shared + {tile};
    uint64_t *full = reinterpret_cast<uint64_t*>(shared + {barriers}), *empty = full + STAGES;
    if (threadIdx.x == 0) {{
        for (int s = 0; s < STAGES; s++) {{
            init_barrier(&full[s], 1);
            init_barrier(&empty[s], CONSUMERS);
        }}
        fence_init();
    }}
    __syncthreads();
    const int thread = threadIdx.x, group = thread / {_GROUP};
    int stage = 0;
    if (thread >= CONSUMERS) {{
        {fewer}
        if (thread / {WARP} == CONSUMERS / {WARP} && elected()) {{
            int parity = 1;
            for (int k = 0; k < ROUNDS; k++) {{
                wait(&empty[stage], parity);
{_fill(plan)}
                if (++stage == STAGES) {{
                    stage = 0;
                    parity ^= 1;
                }}
            }}
        }}
        return;
    }}
    {more}
    int parity = 0;
    {register} d[{plan.registers}] = {{}};
    {f"for (int i = 0; i < {plan.registers}; i++) d[i] = {_STARTS[plan.sums]};" if plan.started else ""}
    for (int k = 0; k < ROUNDS; k++) {{
        wait(&full[stage], parity);
{_drain(plan)}
        if (++stage == STAGES) {{
            stage = 0;
            parity ^= 1;
        }}
    }}
    wait_products<0>();
{_results(plan, register)}
}}
"""
    return text, layout.end


def _fill(plan: _Plan) -> str:
    """What the producer does in a round: announce the bytes and start the copies."""
    lines = [] if plan.in_registers else plan.a.copies(0, "a + stage * A_STAGE", f"blockIdx.x * {plan.a.rows}")
    lines += plan.b.copies(1, "b + stage * B_STAGE", "0")
    announced = "B_BYTES" if plan.in_registers else "A_BYTES + B_BYTES"
    return "\n".join(" " * 16 + line for line in (f"arrive_expecting(&full[stage], {announced});", *lines))


def _drain(plan: _Plan) -> str:
    """What the consumers do in a round: multiply, wait, and free a stage."""
    lines: list[str] = []
    if plan.in_registers:
        lines += [
            "const uint32_t* words = reinterpret_cast<const uint32_t*>(b2);",
            f"uint32_t fragments[{4 * plan.steps}];",
            f"for (int i = 0; i < {4 * plan.steps}; i++)",
            f"    fragments[i] = words[((blockIdx.x * ROUNDS + k) * {4 * plan.steps} + i) * CONSUMERS + thread];",
        ]
    lines.append("fence_products();")
    for step in range(plan.steps):
        left = (
            f"fragments + {4 * step}" if plan.in_registers else plan.a.descriptor("a + stage * A_STAGE", step, "group")
        )
        right = plan.b.descriptor("b + stage * B_STAGE", step, "0")
        keeps = "1" if step or plan.started else "k > 0"
        lines.append(f"multiply(d, {left}, {right}, {keeps});")
    lines.append("commit_products();")
    lines.append(f"wait_products<{plan.behind}>();")
    if plan.behind:
        lines.append("if (k > 0) arrive(&empty[(stage + STAGES - 1) % STAGES]);")
    else:
        lines.append("arrive(&empty[stage]);")
    return "\n".join(" " * 8 + line for line in lines)


def _results(plan: _Plan, register: str) -> str:
    """How the sums are stored."""
    out = f"b{3 if plan.in_registers else 2}"
    if not plan.boxed:
        return (
            f"    for (int i = 0; i < {plan.registers}; i++)\n"
            f"        reinterpret_cast<{register}*>({out})"
            f"[(blockIdx.x * {plan.registers} + i) * CONSUMERS + thread] = d[i];"
        )
    row = f"group * {_ROWS} + thread % {_GROUP} / {WARP} * 16 + thread % {WARP} / 4"
    if plan.sums == "f16":
        where = "((row + i % 2 * 8) * N + i / 2 * 8 + thread % 4 * 2) / 2"
    else:
        where = "(row + i / 2 % 2 * 8) * N + i / 4 * 8 + thread % 4 * 2 + i % 2"
    mine = _ROWS * plan.b.rows * _SIZES[plan.sums]
    return f"""    const int row = {row};
    for (int i = 0; i < {plan.registers}; i++)
        reinterpret_cast<{register}*>(tile)[{where}] = d[i];
    fence_async();
    asm volatile("bar.sync %0, {_GROUP};" ::"r"(1 + group) : "memory");
    if (thread % {_GROUP} == 0) {{
        store_box(&m2, tile + group * {mine}, 0, blockIdx.x * {_ROWS * plan.groups} + group * {_ROWS});
        commit_stores();
        wait_stores();
    }}"""


def _resized(change: str, plan: _Plan) -> str:
    """`setmaxnreg` in CUDA, if the warps trade registers."""
    return f'asm volatile("setmaxnreg.{change};");' if plan.resized else ""


def _multiply(plan: _Plan) -> str:
    """`multiply` in CUDA: one instruction of a warpgroup, whose sums begin anew where `keeps` is 0."""
    count, depth = plan.registers, _STEP_BYTES // plan.a.size
    kinds = ".".join((plan.sums, plan.a.kind, plan.b.kind))
    d = "{" + ", ".join(f"%{number}" for number in range(count)) + "}"
    sums = ", ".join(f'"+{"f" if plan.sums == "f32" else "r"}"(d[{number}])' for number in range(count))
    if plan.in_registers:
        kind, left = "const uint32_t*", "{" + ", ".join(f"%{count + number}" for number in range(4)) + "}"
        operands, after = ", ".join(f'"r"(a[{number}])' for number in range(4)), count + 4
    else:
        kind, left, operands, after = "uint64_t", f"%{count}", '"l"(a)', count + 1
    flags = [] if plan.sums == "s32" else [*plan.signs]
    if plan.a.size == 2:
        flags += ([] if plan.in_registers else [int(plan.a.along_rows)]) + [int(plan.b.along_rows)]
    register = "float" if plan.sums == "f32" else "uint32_t"
    limit = ".satfinite" if plan.saturate else ""
    return f"""
__device__ inline void multiply({register} (&d)[{count}], {kind} a, uint64_t b, int keeps) {{
    asm volatile(
        "{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{after + 1}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{plan.b.rows}k{depth}.{kinds}{limit} {d}, {left}, %{after}, "
        "keep{"".join(f", {flag}" for flag in flags)};\\n}}"
        : {sums}
        : {operands}, "l"(b), "r"(keeps));
}}
"""
