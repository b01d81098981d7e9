"""Types and constants to compile a Triton kernel with where no workload launches it.

A parameter's type is taken from a launch in the file, else from its annotation or default, else from its use in the
kernel, else from its name. Assumed types are reported with the kernel's facts.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.source.triton_calls import Given
from kernel_lsp.source.triton_uses import Uses, element_of

_ADDRESS = re.compile(r"(?i)(^|_)ptrs?(_|$)|pointer|_ptr|ptr_?$")
_REAL = re.compile(
    r"(?i)eps|scale|alpha|beta|gamma|theta|slope|momentum|decay|(^|_)lr($|_)|drop|^p$|prob|temp|cap|thresh"
)
_REAL_CONSTANT = re.compile(r"(?i)eps|scale|alpha|slope|softcap|dropout|thresh|smoothing")
_WHOLE = re.compile(r"^[A-Z]$|(?i:stride|^n_|num_|seqlen|_(?:size|rows|cols|dim|index|idx|len)$)")
_TYPE = re.compile(r"(?i)dtype(?!_?(?:min|max|size|bytes|bits))|_type$|^ty$")
_LIMIT = re.compile(r"(?i)(?:^|_)(?:min|max)(?:_?val(?:ue)?)?$")  # of a type or range: `fp8_dtype_max`, `QMIN`
_SWITCH = re.compile(
    r"^(?:(?:HAS|USE|IS|DO|WITH|STORE|SAVE|ENABLE|APPLY|RETURN|NEED|EVEN|ALLOW|INPLACE)_|(?i:is|has|use)_)"
)
_BLOCK = re.compile(r"(?i)block|tile|^b[a-z]{1,2}$|chunk|^vec|^xblock|^yblock|^rblock")
_STRIDE_ONE = re.compile(r"(?i)^stride_?\w*(?:d|k|col|n)$")
_STAGES, _WARPS, _GROUP, _SPLIT = (
    re.compile(p) for p in (r"(?i)stages|num_buffers", r"(?i)warps", r"(?i)^group", r"(?i)^split|^num_(?:pid|sm)")
)
_TYPES = re.compile(r"\*?k?(?:fp(?:16|32|64)|bf16|fp8e\w+|[iu](?:1|8|16|32|64))")
_ELEMENTS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8e4nv": "fp8e4nv",
    "float8e5": "fp8e5",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "uint8": "u8",
}
"""Types by their names in `triton.language`."""


class From(StrEnum):
    """The source of a parameter's type."""

    LAUNCH = "a launch in the file"
    FILE = "its annotation, default or decorator"
    GUESS = "assumed"


@dataclass(frozen=True, slots=True)
class CompiledParameter:
    """The type or value that a kernel is compiled with for one parameter.

    Attributes:
        name: as it is written.
        type: `*fp32`, `i32`, `constexpr`, `desc` for a tensor descriptor of float16, `tuple` for one of integers,
            `layout` or `shared layout`.
        value: of a constant or number; `tl.float32` for a type; the dimensions of a descriptor or layout, the length
            of a tuple.
        known: the source of the type.
    """

    name: str
    type: str
    value: bool | int | float | str | None
    known: From

    @property
    def text(self) -> str:
        """Return `x: *fp32`, `BLOCK=128` or `at: layout, 2-dimensional`."""
        if self.type == "tuple":
            return f"{self.name}: {self.value} integers"
        if self.type.endswith("layout"):
            return f"{self.name}: {self.type}, {self.value}-dimensional"
        return f"{self.name}={self.value}" if self.type == "constexpr" else f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The assumptions of one attempt to compile a kernel.

    Attributes:
        element: element type of arrays, unless integers are known.
        switches: the value of boolean constants.
        block: the block length of a kernel with one such constant.
        tile: the block length of a kernel with several such constants.
        told: True if boolean constants take the values in the file's launches.
        index: element type of arrays of indices.
    """

    element: str = "fp32"
    switches: bool = True
    block: int = 1024
    tile: int = 64
    told: bool = True
    index: str = "i64"


ATTEMPTS = (
    Attempt(),
    Attempt(switches=False),
    Attempt(index="i32"),
    Attempt(element="fp16"),
    Attempt(tile=16, block=128),
    Attempt(tile=16, block=128, switches=False),
    Attempt(element="fp16", switches=False),
    Attempt(element="fp16", tile=32, switches=False),
    Attempt(element="fp16", switches=False, told=False),
    Attempt(element="i32"),
    Attempt(tile=128),
    Attempt(index="i32", switches=False),
    Attempt(element="bf16"),
    Attempt(element="bf16", switches=False),
)
"""In the order of trial; the first that compiles counts."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One parameter as declared: whether it is a constant, its annotation as Triton reads it, its default."""

    name: str
    constexpr: bool
    annotation: str = ""
    default: bool | int | float | str | None = None
    has_default: bool = False


def parameters_of(
    declared: Sequence[Declared], blocks: int, uses: Uses, given: dict[str, Given], attempt: Attempt
) -> list[CompiledParameter]:
    """Return the type or value of each parameter to compile a kernel with.

    Args:
        declared: its parameters, without those that decorators give a value.
        blocks: how many of all its constants are lengths of blocks, see `is_block`.
        uses: how the kernel uses them.
        given: the arguments in a launch.
        attempt: the assumptions.
    """
    found: list[CompiledParameter] = []
    for one in declared:
        told = given.get(one.name)
        if one.constexpr:
            found.append(_constant(one, uses, told, attempt, blocks))
        else:
            found.append(_argument(one, uses, told, attempt))
    return found


def _constant(one: Declared, uses: Uses, told: Given | None, attempt: Attempt, blocks: int) -> CompiledParameter:
    if told is not None and told.value is not None and (attempt.told or not isinstance(told.value, bool)):
        return CompiledParameter(one.name, "constexpr", told.value, From.LAUNCH)
    if one.has_default:
        return CompiledParameter(one.name, "constexpr", one.default, From.FILE)
    for kind, layouts in (("layout", uses.layouts), ("shared layout", uses.shared_layouts)):
        if one.name in layouts:
            return CompiledParameter(one.name, kind, layouts[one.name], From.GUESS)
    return CompiledParameter(one.name, "constexpr", _usual(one.name, uses, told, attempt, blocks), From.GUESS)


def _usual(name: str, uses: Uses, told: Given | None, attempt: Attempt, blocks: int) -> bool | int | float | str | None:
    """Return a usual value of a constant, by its use and its name."""
    numbers = ((_STAGES, 2), (_WARPS, 4), (_GROUP, 8), (_SPLIT, 1))
    compared = uses.compared.get(name, ())
    if compared and (isinstance(compared[0], str) or not is_block(name, uses)):
        return compared[0 if attempt.switches else -1]
    if name in uses.words:
        return uses.words[name]
    if name in uses.types or _TYPE.search(name):
        return "tl." + next(long for long, short in _ELEMENTS.items() if short == attempt.element)
    if is_block(name, uses):
        return attempt.block if blocks == 1 else attempt.tile
    if (told is not None and told.type == "i1") or name in uses.switches or _SWITCH.search(name):
        return attempt.switches
    if (told is not None and told.type == "fp32") or _REAL_CONSTANT.search(name):
        return 0.5
    if _LIMIT.search(name):
        return 127
    return next(
        (value for pattern, value in numbers if pattern.search(name)), 1 if _STRIDE_ONE.search(name) else attempt.tile
    )


def _argument(one: Declared, uses: Uses, told: Given | None, attempt: Attempt) -> CompiledParameter:
    name = one.name
    if _TYPES.fullmatch(one.annotation):
        return CompiledParameter(
            name, one.annotation.replace("*k", "*"), _number(one.annotation, name, told), From.FILE
        )
    if told is not None and _TYPES.fullmatch(told.type) and (name not in uses.pointers or told.type.startswith("*")):
        return CompiledParameter(name, told.type, _number(told.type, name, told), From.LAUNCH)
    if one.has_default and isinstance(one.default, (bool, int, float)):
        kind = "i1" if isinstance(one.default, bool) else "i32" if isinstance(one.default, int) else "fp32"
        return CompiledParameter(name, kind, one.default, From.FILE)
    if name in uses.descriptors and name not in uses.pointers:
        return CompiledParameter(name, "desc", uses.descriptors[name], From.GUESS)
    if name in uses.tuples and name not in uses.pointers:
        return CompiledParameter(name, "tuple", uses.tuples[name], From.GUESS)
    is_array = (told is not None and told.type == "*") or (told is None and bool(_ADDRESS.search(name)))
    if name in uses.pointers or (is_array and name not in uses.whole):
        element = _ELEMENTS.get(uses.elements.get(name, "")) or element_of(name, uses)
        element = attempt.index if element == "i64" else element or attempt.element
        return CompiledParameter(name, f"*{element}", None, From.GUESS)
    real = name not in uses.whole and not _WHOLE.search(name) and (name in uses.real or bool(_REAL.search(name)))
    kind = "fp32" if real else "i32"
    return CompiledParameter(name, kind, _number(kind, name, told), From.GUESS)


def _number(kind: str, name: str, told: Given | None) -> bool | int | float | str | None:
    """Return a value for a number: sizes and strides are multiples of 16, as they usually are; the last stride is 1."""
    if kind.startswith("*"):
        return None
    if told is not None and isinstance(told.value, (bool, int, float)):
        return told.value
    if kind.startswith(("fp", "bf")):
        return 0.5
    return True if kind == "i1" else 64 if kind in ("i8", "u8") else 1024


def is_block(name: str, uses: Uses) -> bool:
    """Return True if a constant is a block length."""
    return name in uses.sizes or (bool(_BLOCK.search(name)) and name not in uses.switches)


def literal(node: object) -> bool | int | float | str | None:
    """Return a default's value if it is a number, string or bool; else None."""
    return node if isinstance(node, (bool, int, float, str)) else None


def is_assigned(function: ast.FunctionDef, name: str) -> bool:
    """Return True if a function binds a name anywhere, though on some paths perhaps after its use."""
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(function))
