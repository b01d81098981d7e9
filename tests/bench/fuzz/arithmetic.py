"""Instances of everything `kernel_lsp.emulate.arithmetic` binds that exists on sm_90."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernel_lsp.emulate.arithmetic import bind
from kernel_lsp.emulate.arithmetic.opcode import TYPES, Type, decode
from tests.bench.fuzz import values
from tests.bench.fuzz.instance import REGISTERS, Array, Instance

_WHOLE = "{u16,u32,u64,s16,s32,s64}"
_WIDE = "{u32,u64,s32,s64}"
_EIGHT = "{u8,u16,u32,u64,s8,s16,s32,s64}"
_ORDER = "{eq,ne,lt,le,gt,ge}"
_FLOAT_ORDER = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}"
_BOOLEAN = "{.and,.or,.xor,}"
_HALVES = "{f16,f16x2,bf16,bf16x2}"
_ROUND = "{.rn,.rz,.rm,.rp}"

# Patterns of opcodes; their sources; their result where it is not of the first type's size. T, U: the first and the
# second type; W: an integer of twice the first's size; q: the predicate of a Boolean operation, where there is one.
_FORMS: tuple[tuple[str, str, str], ...] = (
    (f"{{add,sub,mul.lo,mul.hi,div,rem,min,max}}.{_WHOLE}", "T T", ""),
    ("{add,sub}.sat.s32", "T T", ""),
    ("mul.wide.{u16,u32,s16,s32}", "T T", "W"),
    (f"{{mad.lo,mad.hi,sad}}.{_WHOLE}", "T T T", ""),
    ("mad.wide.{u16,u32,s16,s32}", "T T W", "W"),
    ("{mad,mad24}.hi.sat.s32", "T T T", ""),
    ("mul24.{lo,hi}.{u32,s32}", "T T", ""),
    ("mad24.{lo,hi}.{u32,s32}", "T T T", ""),
    ("{neg,abs}.{s16,s32,s64}", "T", ""),
    ("{add,min,max}.{u16x2,s16x2}", "T T", ""),
    ("{min,max}.relu.{s16x2,s32}", "T T", ""),
    ("dp4a.{u32,s32}.{u32,s32}", "T U T", ""),
    ("dp2a.{lo,hi}.{u32,s32}.{u32,s32}", "T U T", ""),
    ("{and,or,xor}.{b16,b32,b64,pred}", "T T", ""),
    ("{not}.{b16,b32,b64,pred}", "T", ""),
    ("{cnot,mov}.{b16,b32,b64}", "T", ""),
    ("lop3.b32", "T T T lut", ""),
    ("lop3.{or,and}.b32", "T T T lut pred", "b32 pred"),
    ("shl.{b16,b32,b64}", "T n", ""),
    ("shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "T n", ""),
    ("shf.{l,r}.{wrap,clamp}.b32", "T T n", ""),
    (f"bfe.{_WIDE}", "T byte byte", ""),
    ("bfi.{b32,b64}", "T T byte byte", ""),
    (f"bfind{{.shiftamt,}}.{_WIDE}", "T", "b32"),
    ("{clz,popc}.{b32,b64}", "T", "b32"),
    ("brev.{b32,b64}", "T", ""),
    ("prmt.b32{.f4e,.b4e,.rc8,.ecl,.ecr,.rc16,}", "T T T", ""),
    ("fns.b32", "T n s32", ""),
    ("szext.{clamp,wrap}.{u32,s32}", "T n", ""),
    ("bmsk.{clamp,wrap}.b32", "n n", ""),
    (f"setp.{{eq,ne}}{_BOOLEAN}.{{b16,b32,b64}}", "T T q", "pred pred"),
    (f"setp.{{eq,ne,lt,le,gt,ge,lo,ls,hi,hs}}{_BOOLEAN}.{{u16,u32,u64}}", "T T q", "pred pred"),
    (f"setp.{_ORDER}{_BOOLEAN}.{{s16,s32,s64}}", "T T q", "pred pred"),
    (f"setp.{_FLOAT_ORDER}{_BOOLEAN}{{.ftz,}}.{{f32,f16x2}}", "T T q", "pred pred"),
    (f"setp.{_FLOAT_ORDER}{_BOOLEAN}.{{f64,bf16x2}}", "T T q", "pred pred"),
    (f"setp.{_FLOAT_ORDER}{_BOOLEAN}{{.ftz,}}.f16", "T T q", "pred"),
    (f"setp.{_FLOAT_ORDER}{_BOOLEAN}.bf16", "T T q", "pred"),
    (f"set.{{eq,ne}}{_BOOLEAN}.{{u32,s32,f32}}.{{b16,b32,b64}}", "U U q", ""),
    (f"set.{{eq,ne,lt,le,gt,ge,lo,ls,hi,hs}}{_BOOLEAN}.{{u32,s32,f32}}.{{u16,u32,u64}}", "U U q", ""),
    (f"set.{_ORDER}{_BOOLEAN}.{{u32,s32,f32}}.{{s16,s32,s64}}", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}{{.ftz,}}.{{u32,s32,f32}}.f32", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}.{{u32,s32,f32}}.f64", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}{{.ftz,}}.{{f16,u16,s16,u32,s32}}.f16", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}.{{bf16,u16,s16,u32,s32}}.bf16", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}{{.ftz,}}.f16x2.f16x2", "U U q", ""),
    (f"set.{_FLOAT_ORDER}{_BOOLEAN}.bf16x2.bf16x2", "U U q", ""),
    ("selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "T T pred", ""),
    ("slct.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.s32", "T T U", ""),
    ("slct{.ftz,}.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.f32", "T T U", ""),
    ("{add,sub,mul}{.rn,.rz,.rm,.rp,}{.ftz,}{.sat,}.f32", "T T", ""),
    ("{add,sub,mul}{.rn,.rz,.rm,.rp,}.f64", "T T", ""),
    (f"{{fma,mad}}{_ROUND}{{.ftz,}}{{.sat,}}.f32", "T T T", ""),
    (f"{{fma,mad}}{_ROUND}.f64", "T T T", ""),
    ("{add,sub,mul}{.rn,}{.ftz,}{.sat,}.{f16,f16x2}", "T T", ""),
    ("{add,sub,mul}{.rn,}.{bf16,bf16x2}", "T T", ""),
    ("fma.rn{.ftz,}{.sat,.relu,}.{f16,f16x2}", "T T T", ""),
    ("fma.rn{.relu,}.{bf16,bf16x2}", "T T T", ""),
    (f"div{_ROUND}{{.ftz,}}.f32", "T T", ""),
    (f"div{_ROUND}.f64", "T T", ""),
    (f"{{rcp,sqrt}}{_ROUND}{{.ftz,}}.f32", "T", ""),
    (f"{{rcp,sqrt}}{_ROUND}.f64", "T", ""),
    ("{min,max}{.ftz,}{.NaN,}{.xorsign.abs,}.{f32,f16,f16x2}", "T T", ""),
    ("{min,max}{.NaN,}{.xorsign.abs,}.{bf16,bf16x2}", "T T", ""),
    ("{min,max}.f64", "T T", ""),
    ("{neg,abs}{.ftz,}.{f32,f16,f16x2}", "T", ""),
    ("{neg,abs}.{f64,bf16,bf16x2}", "T", ""),
    ("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}", "T", "pred"),
    ("copysign.{f32,f64}", "T T", ""),
    ("div.{approx,full}{.ftz,}.f32", "T T", ""),
    ("{rcp,sqrt,rsqrt,sin,cos,lg2,ex2}.approx{.ftz,}.f32", "T", ""),
    ("tanh.approx.{f32,f16,f16x2,bf16,bf16x2}", "T", ""),
    ("ex2.approx.{f16,f16x2}", "T", ""),
    ("ex2.approx.ftz.{bf16,bf16x2}", "T", ""),
    ("{rcp,rsqrt}.approx.ftz.f64", "T", ""),
    (f"cvt.{_EIGHT}.{_EIGHT}", "U", ""),
    (f"cvt.sat.{_EIGHT}.{_EIGHT}", "U", ""),
    (f"cvt.{{rni,rzi,rmi,rpi}}{{.ftz,}}{{.sat,}}.{_EIGHT}.f32", "U", ""),
    (f"cvt.{{rni,rzi,rmi,rpi}}{{.sat,}}.{_EIGHT}.{{f64,f16}}", "U", ""),
    (f"cvt.{{rni,rzi,rmi,rpi}}.{_WHOLE}.bf16", "U", ""),
    (f"cvt{_ROUND}{{.sat,}}.{{f16,f32,f64}}.{_EIGHT}", "U", ""),
    (f"cvt{_ROUND}.bf16.{_WHOLE}", "U", ""),
    ("cvt{.rni,.rzi,.rmi,.rpi,}{.ftz,}{.sat,}.f32.f32", "U", ""),
    ("cvt{.rni,.rzi,.rmi,.rpi,}{.sat,}.{f64.f64,f16.f16}", "U", ""),
    ("cvt{.rni,.rzi,.rmi,.rpi,}.bf16.bf16", "U", ""),
    ("cvt{.ftz,}{.sat,}.{f64.f32,f32.f16}", "U", ""),
    ("cvt{.sat,}.f64.f16", "U", ""),
    ("cvt.{f32,f64}.bf16", "U", ""),
    (f"cvt{_ROUND}{{.ftz,}}{{.sat,}}.f32.f64", "U", ""),
    (f"cvt{_ROUND}{{.sat,}}.f16.f64", "U", ""),
    (f"cvt{_ROUND}{{.ftz,}}{{.sat,}}.f16.f32", "U", ""),
    (f"cvt{_ROUND}.bf16.{{f16,f32,f64}}", "U", ""),
    (f"cvt{_ROUND}.f16.bf16", "U", ""),
    ("cvt.{rn,rz}{.relu,}{.satfinite,}.{f16,bf16}.f32", "U", ""),
    ("cvt.{rn,rz}{.relu,}{.satfinite,}.{f16x2,bf16x2}.f32", "U U", ""),
    ("cvt.rna{.satfinite,}.tf32.f32", "U", ""),
    ("cvt.{rn,rz}{.relu,}.tf32.f32", "U", ""),
    ("cvt.rn.satfinite{.relu,}.{e4m3x2,e5m2x2}.f32", "U U", ""),
    ("cvt.rn.satfinite{.relu,}.{e4m3x2,e5m2x2}.f16x2", "U", ""),
    ("cvt.rn{.relu,}.f16x2.{e4m3x2,e5m2x2}", "U", ""),
    ("cvt.pack.sat.{u16,s16}.s32", "s32 s32", "b32"),
    ("cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32", "s32 s32 b32", "b32"),
)


@dataclass(frozen=True)
class Shape:
    """An opcode with the types of its sources and the registers of its results."""

    opcode: str
    sources: tuple[str, ...]
    results: tuple[str, ...]


def generate(rng: np.random.Generator, count: int) -> Iterator[Instance]:
    """Every opcode once with all operands in registers, then random ones in which some are constants."""
    known = shapes()
    chained = list(_chains())
    yield from (_instance(rng, shape, constants=False) for shape in known)
    yield from (_chain(rng, opcode) for opcode in chained)
    families: dict[str, list[Shape]] = {}
    for shape in known:
        families.setdefault(shape.opcode.split(".")[0], []).append(shape)
    names = sorted(families)
    for _ in range(max(0, count - len(known) - len(chained))):
        # Half of the rest evenly over the instructions' names, half over the opcodes: `setp` has many, `fma` few.
        pool = families[names[rng.integers(len(names))]] if rng.random() < 0.5 else known
        yield _instance(rng, pool[rng.integers(len(pool))], constants=True)


def shapes() -> list[Shape]:
    """All opcodes of the table, each with its operands."""
    found: dict[str, Shape] = {}
    for pattern, sources, results in _FORMS:
        for opcode in expand(pattern):
            decoded = decode(opcode)
            assert decoded is not None, opcode
            first, second = decoded.types[0], decoded.types[-1]
            if opcode.startswith("cvt.sat") and _keeps_range(first, second):
                continue
            names = {"T": first.name, "U": second.name, "W": f"{first.kind}{2 * first.bits}"}
            boolean = any(flag in ("and", "or", "xor") for flag in decoded.flags)
            kinds = [names.get(word, word) for word in sources.split() if word != "q" or boolean]
            kinds = ["pred" if kind == "q" else kind for kind in kinds]
            words = results.split() or ["T"]
            registers = [_register(names.get(word, word)) for word in words]
            found[opcode] = Shape(opcode, tuple(kinds), tuple(registers))
    return list(found.values())


def _keeps_range(target: Type, source: Type) -> bool:
    """Whether every integer of one type fits the other: the assembler refuses to saturate such conversions."""
    if target.kind == "f" or source.kind == "f":
        return False
    return (
        target.bits >= source.bits if target.kind == source.kind else source.kind == "u" and target.bits > source.bits
    )


def expand(pattern: str) -> list[str]:
    """All texts of a pattern in which `{a,b,}` stands for a, b or nothing."""
    parts = re.split(r"\{([^}]*)\}", pattern)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _register(kind: str) -> str:
    if kind in REGISTERS:
        return kind
    found = TYPES[kind]
    return "pred" if found.kind == "p" else f"b{max(found.bits, 16)}"


def _instance(rng: np.random.Generator, shape: Shape, *, constants: bool) -> Instance:
    kinds = ["b32" if kind == "lut" else kind for kind in shape.sources]
    raw = values.operands(rng, kinds)
    texts: list[str] = []
    sources: list[Array] = []
    taken: list[Array] = []
    for index, (kind, x) in enumerate(zip(shape.sources, raw, strict=True)):
        x = x & np.uint32(255) if kind == "lut" else x
        constant = kind == "lut" or (constants and index > 0 and _may_be_constant(kind) and rng.random() < 0.25)
        if constant:
            taken.append(np.array(x[0]))
            texts.append(values.literal(x[0], TYPES.get(kind, TYPES["u32"])))
        else:
            texts.append(f"{{a{len(sources)}}}")
            sources.append(x)
            taken.append(x)
    operation = bind(shape.opcode)
    assert operation is not None, shape.opcode
    if not taken[-1].ndim and operation.by_constant is not None:
        operation = operation.by_constant
    run = operation.run
    results = shape.results
    target = decode(shape.opcode)
    assert target is not None
    narrow = target.name == "cvt" and target.type.kind in "us" and target.type.bits < 32 and "pack" not in target.flags
    widened = narrow and "bf16" not in shape.opcode and rng.random() < 0.5
    if widened:
        results = ("b32",)
    joined = "|".join(f"{{d{i}}}" for i in range(len(results)))

    def expected() -> tuple[Array, ...]:
        found = run(*taken)
        found = found if isinstance(found, tuple) else (found,)
        if widened:
            return (_extended(found[0], signed=operation.extends_sign),)
        return found[: len(results)]

    text = f"{shape.opcode} {joined}, {', '.join(texts)};"
    return Instance(shape.opcode, text, tuple(sources), results, expected)


def _extended(x: Array, *, signed: bool) -> Array:
    return x.view(np.int16).astype(np.int32).view(np.uint32) if signed else x.astype(np.uint32)


def _may_be_constant(kind: str) -> bool:
    return kind in ("n", "byte") or (
        kind in TYPES and (TYPES[kind].kind in "usb" or kind in ("f32", "f64")) and "x2" not in kind
    )


def _chains() -> Iterator[str]:
    """Opcodes with a carry in, out or both, whose flag is set and read by an addition before and after."""
    for base in ("add", "sub"):
        for kind in ("u32", "s32", "u64", "s64"):
            yield from (f"{base}.cc.{kind}", f"{base}c.{kind}", f"{base}c.cc.{kind}")
    for part in ("lo", "hi"):
        for kind in ("u32", "s32", "u64", "s64"):
            yield from (f"mad.{part}.cc.{kind}", f"madc.{part}.{kind}", f"madc.{part}.cc.{kind}")


def _chain(rng: np.random.Generator, opcode: str) -> Instance:
    operation, decoded = bind(opcode), decode(opcode)
    assert operation is not None, opcode
    assert decoded is not None
    kinds = [decoded.type.name] * (3 if decoded.name.startswith("mad") else 2)
    sources = values.operands(rng, kinds)
    lines = [".reg .b32 t;"]
    family = "sub" if decoded.name.startswith("sub") else "add"
    if operation.reads_carry:
        carry = values.operand(rng, "carry")
        before = "sub.cc.u32 t, 0, {a%d};" if family == "sub" else "add.cc.u32 t, {a%d}, -1;"
        lines.append(before % len(sources))
        sources.append(carry)
    arguments = ", ".join(f"{{a{i}}}" for i in range(len(kinds)))
    lines.append(f"{opcode} {{d0}}, {arguments};")
    results = [_register(decoded.type.name)]
    if operation.writes_carry:
        lines.append(f"{family}c.u32 t, 0, 0;\n    and.b32 {{d1}}, t, 1;")
        results.append("b32")

    def expected() -> tuple[Array, ...]:
        carry = [sources[-1].astype(bool)] if operation.reads_carry else []
        found = operation.run(*sources[: len(kinds)], *carry)
        return (found[0], found[1].astype(np.uint32)) if isinstance(found, tuple) else (found,)

    return Instance(opcode, "\n    ".join(lines), tuple(sources), tuple(results), expected)
