"""Rewrites the text of a CUDA file so that it computes in float64, its host code for PyTorch included.

Text is read token by token, since macros, host code and templates take part, which no grammar parses together. Names of
narrow types and of their functions are replaced, and definitions that are needed come before the first line; a
directive keeps the lines' numbers. A text that depends on the bits or the size of a narrow number is
refused.
"""

import re
from collections.abc import Iterator

from kernel_lsp.errors import KernelLspError
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.outline import code_only, comments_and_strings
from kernel_lsp.source.text import Lines, Span

_NAME = re.compile(r"\w+")
_SUFFIXED = _NAME.findall(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv exp exp10 "
    "exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 "
    "logb lrint lround modf nan nearbyint nextafter norm3d norm4d normcdf normcdfinv pow rcbrt remainder rint rnorm3d "
    "round rsqrt scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc"
)
_FAST = _NAME.findall("cos exp exp10 log log10 log2 pow sin sincos tan tanh")
_OF_HALF = _NAME.findall("ceil cos exp exp10 exp2 floor log log10 log2 rint rsqrt sin sqrt tanh trunc")
_ROUNDED = (("__f", ("add", "sub", "mul", "div", "sqrt", "rcp")), ("__h", ("add", "sub", "mul", "div")))
_ROUNDINGS = ("rn", "rz", "ru", "rd")
_INTEGERS = ("int", "uint", "ll", "ull", "short", "ushort", "char", "uchar")
_RENAMED = {
    **dict.fromkeys(("float", "__half", "__nv_bfloat16", "nv_bfloat16"), "double"),
    **dict.fromkeys(("__half2", "half2", "__nv_bfloat162", "nv_bfloat162"), "double2"),
    **{f"{word}float{n}": f"{word}double{n}" for word in ("", "make_") for n in (1, 2, 3)},
    **{f"{word}float4": f"{word}lifted4" for word in ("", "make_")},
    **dict.fromkeys(("make_half2", "make_bfloat162", "__halves2half2", "__halves2bfloat162"), "make_double2"),
    **dict.fromkeys(("__floats2half2_rn", "__floats2bfloat162_rn"), "make_double2"),
    **dict.fromkeys(("__half22float2", "__bfloat1622float2", "__float22half2_rn", "__float22bfloat162_rn"), "double2"),
    **dict.fromkeys(("__half2float", "__bfloat162float", "__float2half", "__float2bfloat16"), "double"),
    **dict.fromkeys(("__double2half", "__double2bfloat16"), "double"),
    **{f"__float2{kind}_{way}": "double" for kind in ("half", "bfloat16") for way in _ROUNDINGS},
    **{f"__{n}2{kind}_{way}": "double" for n in _INTEGERS for kind in ("half", "bfloat16") for way in _ROUNDINGS},
    **{
        f"__{kind}2{n}_{way}": f"__double2{n}_{way}"
        for kind in ("float", "half", "bfloat16")
        for n in _INTEGERS[:4]
        for way in _ROUNDINGS
    },
    **{f"__{n}2float_{way}": "double" for n in _INTEGERS[:4] for way in _ROUNDINGS},
    **{f"{name}f": name for name in _SUFFIXED},
    **{f"__{name}f": name for name in _FAST},
    **{f"h{name}": name for name in _OF_HALF},
    **{f"{start}{name}_{way}": f"__d{name}_{way}" for start, names in _ROUNDED for name in names for way in _ROUNDINGS},
    **{f"__fmaf_{way}": f"__fma_{way}" for way in _ROUNDINGS},
    "__frsqrt_rn": "rsqrt",
    **dict.fromkeys(("kFloat", "kFloat32", "kHalf", "kFloat16", "kBFloat16"), "kDouble"),
}
_TWO, _PAIRS = "double a, double b", "double2 a, double2 b"
_HELPERS = {
    "__fdividef": ("double", _TWO, "a / b"),
    "__saturatef": ("double", "double a", "a > 0.0 ? (a < 1.0 ? a : 1.0) : 0.0"),
    "hrcp": ("double", "double a", "1.0 / a"),
    "__habs": ("double", "double a", "fabs(a)"),
    "__hneg": ("double", "double a", "-a"),
    "__hfma": ("double", f"{_TWO}, double c", "fma(a, b, c)"),
    "__hmax": ("double", _TWO, "fmax(a, b)"),
    "__hmin": ("double", _TWO, "fmin(a, b)"),
    "__hisnan": ("bool", "double a", "a != a"),
    **{
        f"__h{name}": ("double", _TWO, f"a {sign} b")
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))
    },
    **{
        f"__h{name}": ("bool", _TWO, f"a {sign} b")
        for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="))
    },
    **{
        f"__h{name}2": ("double2", _PAIRS, f"make_double2(a.x {sign} b.x, a.y {sign} b.y)")
        for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))
    },
    "__hfma2": ("double2", f"{_PAIRS}, double2 c", "make_double2(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y))"),
    "__hmax2": ("double2", _PAIRS, "make_double2(fmax(a.x, b.x), fmax(a.y, b.y))"),
    "__hmin2": ("double2", _PAIRS, "make_double2(fmin(a.x, b.x), fmin(a.y, b.y))"),
    **{
        f"__{end}2{kind}": ("double", "double2 a", f"a.{part}")
        for end, part in (("low", "x"), ("high", "y"))
        for kind in ("float", "half", "bfloat16")
    },
    **dict.fromkeys(
        ("__half2half2", "__float2half2_rn", "__bfloat162bfloat162", "__float2bfloat162_rn"),
        ("double2", "double a", "make_double2(a, a)"),
    ),
}
"""Functions without one of the same meaning for doubles: type of the result, parameters, value."""
_FOUR = (
    "struct alignas(16) lifted4 { double x, y, z, w; }; static __host__ __device__ __forceinline__ lifted4 "
    "make_lifted4(double x, double y, double z, double w) { lifted4 made = {x, y, z, w}; return made; }"
)
_LOADS = ("__ldg", "__ldcg", "__ldca", "__ldcs", "__ldlu", "__ldcv")
_STORES = ("__stwb", "__stcg", "__stcs", "__stwt")
_SCALARS = re.compile(
    rb"\b(?:(?:c10|at|torch)\s*::\s*(?P<type>Half|BFloat16)|ScalarType\s*::\s*(?P<tag>Float|Half|BFloat16))\b"
)
_WORD = re.compile(rb"[A-Za-z_]\w*")
_LITERAL = re.compile(
    rb"(?<![\w.])(?:0[xX][\da-fA-F.']+[pP][-+]?\d+|(?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][-+]?\d+)?)(?P<suffix>[fF])\b"
)
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)
_DISPATCHED = re.compile(rb"\bAT_DISPATCH\w*\s*\((?:[\w\s:]+,)*")  # which types a switch has: each once
_IS_VARIABLE = re.compile(
    rb"\b(?:int|unsigned|auto|long|short|bool|float|double|size_t|u?int\d+_t)\s+(?:const\s+)?half\b"
)
_IN_BITS = re.compile(
    rb"\b(?:__float_as_u?int|__u?int_as_float(?!\s*\(\s*(?:0[xX])?[\da-fA-F]+[uU]?\s*\))|__(?:half|bfloat16)_as_u?short"
    rb"|__u?short_as_(?:half|bfloat16)|__half_raw|__nv_fp[468]\w*|wmma|mma_sync|tf32|__nv_cvt_\w+)\b"
)
_IN_ASSEMBLY = re.compile(rb"\.(?:b?f16(?:x2)?|[tb]?f32(?:x2)?|e[45]m[23])\b|^\"[=+]f\"$")
_DYNAMIC = re.compile(rb"\bextern\s+(?:__align__\s*\([^)]*\)\s*)?__shared__")
_Edit = tuple[int, int, bytes]


class LiftError(KernelLspError):
    """A text that cannot be rewritten to compute in float64; it has no path."""


def lifted_cuda(text: str) -> str:
    """Return a CUDA file's text with every narrow floating-point type widened to float64.

    Raises:
        LiftError: it depends on the bits of a narrow number, or on a size in bytes that the text does not compute.
    """
    data = text.encode()
    code = _INCLUDE.sub(lambda match: blanked(match[0]), code_only(data))
    _refuse(data, code)
    edits = sorted({*_words(code), *_literals(code), *_torch_types(code)}, reverse=True)
    for start, end, new in edits:
        data = data[:start] + new + data[end:]
    return _definitions({match[0].decode() for match in _WORD.finditer(code)}) + data.decode()


def lifted_name(kernel: str) -> str:
    """Return the name under which `lifted_cuda` leaves a template's instance, such as `softmax<double, 256>`."""
    code = kernel.encode()
    for start, end, new in sorted(_words(code), reverse=True):
        code = code[:start] + new + code[end:]
    return code.decode()


def _refuse(data: bytes, code: bytes) -> None:
    """Raise for what cannot be rewritten."""
    found = _IN_BITS.search(code)
    if found is not None:
        raise LiftError(
            f"`{found[0].decode()}` reads or makes the bits of a narrow number", line=_line(data, found.start())
        )
    for span, is_comment in comments_and_strings(data):
        if not is_comment and (named := _IN_ASSEMBLY.search(data[span.start : span.end])):
            raise LiftError(f"assembly works on `{named[0].decode()}`", line=_line(data, span.start))
    found = _DYNAMIC.search(code)
    if found is not None and not re.search(rb"\bsizeof\b", code):
        said = "the size of its dynamic shared memory is not computed with `sizeof`"
        raise LiftError(said, line=_line(data, found.start()))


def _line(data: bytes, at: int) -> int:
    return Lines(data).position(at)[0]


def _words(code: bytes) -> Iterator[_Edit]:
    half = not _IS_VARIABLE.search(code)
    dispatched = [Span(match.start(), match.end()) for match in _DISPATCHED.finditer(code)]
    for match in _WORD.finditer(code):
        word = match[0].decode()
        new = f"lifted_{word.strip('_')}" if word in _HELPERS else _RENAMED.get(word)
        if word == "half" and half:
            new = "double"
        if new is None or (word.startswith("k") and any(s.start <= match.start() < s.end for s in dispatched)):
            continue
        yield match.start(), match.end(), new.encode()


def _literals(code: bytes) -> Iterator[_Edit]:
    """Yield the suffixes of literals; a literal without a point or an exponent gets one, so as to stay no integer."""
    for match in _LITERAL.finditer(code):
        whole = match[0][:-1].isdigit()
        yield match.start("suffix"), match.end("suffix"), b".0" if whole else b""


def _torch_types(code: bytes) -> Iterator[_Edit]:
    dispatched = [Span(match.start(), match.end()) for match in _DISPATCHED.finditer(code)]
    for match in _SCALARS.finditer(code):
        if any(span.start <= match.start() < span.end for span in dispatched):
            continue
        if match["type"]:
            yield match.start(), match.end(), b"double"
        else:
            yield match.start("tag"), match.end("tag"), b"Double"


def _definitions(words: set[str]) -> str:
    """Return the definitions that a text of these words needs when rewritten, and the directive after them."""
    inline = "static __device__ __forceinline__"
    found = [_FOUR] if words & {"float4", "make_float4"} else []
    if found:
        loads = [name for name in _LOADS if name in words]
        stores = [name for name in _STORES if name in words]
        found += [f"{inline} lifted4 {name}(const lifted4* from) {{ return *from; }}" for name in loads]
        found += [f"{inline} void {name}(lifted4* to, lifted4 value) {{ *to = value; }}" for name in stores]
    for name in (name for name in _HELPERS if name in words):
        kind, parameters, value = _HELPERS[name]
        found.append(f"{inline} {kind} lifted_{name.strip('_')}({parameters}) {{ return {value}; }}")
    return "\n".join([*found, "#line 1\n"]) if found else ""
