"""A first workload, drafted from what a kernel file says of itself: for its author to read, mend and agree to.

A signature tells types, and names tell a little more. What a kernel computes it does not tell: where the name is not
that of a well-known function, the draft's reference raises. The judge refuses a draft until its first line is removed.
"""

import ast
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, Language, Parameter
from kernel_lsp.source.python import python_ast
from kernel_lsp.workload.spec import DRAFT

_DTYPES = (
    (r"bfloat16", "torch.bfloat16"),
    (r"\b(__)?half2?\b|float16", "torch.float16"),
    (r"\bdouble", "torch.float64"),
    (r"\bfloat", "torch.float32"),
    (r"\b(unsigned char|uint8_t|u?char)\b", "torch.uint8"),
    (r"\b(signed char|int8_t)\b", "torch.int8"),
    (r"\b(long|int64_t|size_t|ssize_t|uint64_t)\b", "torch.int64"),
    (r"\bbool\b", "torch.bool"),
    (r"\b(u?int|unsigned|int32_t|uint32_t)", "torch.int32"),
)
_INTEGER = re.compile(r"\b(?:int|unsigned|long|short|size_t|ssize_t|u?int\d+_t)\b")
_ROWS = re.compile(r"(?i)^n?_?(rows?|m|batch|b|tokens?|height|h)(_\w+)?$")
_EXTENT = re.compile(r"(?i)n_|num|.*(rows|cols|size|len|elements|dim|hidden|vocab|heads|seq)$|^[bmnkhd]$")
_OUTPUT = re.compile(r"(?i)^(out\w*|y\w*|dst\w*|res\w*|o|c|z|ret\w*|hist\w*)$")
_TOTAL = re.compile(r"(?i)n|size|numel|len|length|count|total|n_?elements?|num_?elements?")
_OF_A_ROW = re.compile(r"(?i)(weight|bias|gamma|beta)s?(_ptr)?")
_PRODUCT = re.compile(r"(?i)gemm|mat_?mul")
_SMALL = re.compile(r"(?i)eps|.*epsilon$")
_PER_ELEMENT = re.compile(r"blockIdx\s*\.\s*x\s*\*\s*blockDim\s*\.\s*x|blockDim\s*\.\s*x\s*\*\s*blockIdx\s*\.\s*x")
_TWO_DIMENSIONAL = re.compile(r"\b(?:blockIdx|threadIdx)\s*\.\s*y\b")
_BLOCK, _TILE = 256, 16

# What well-known names mean, first match first; {0}, {1} and {2} are the tensors read, {s} the first float.
_KNOWN = (
    (r"rms_?norm", "{0} * {0}.pow(2).mean(-1, keepdim=True).add({s}).rsqrt() * {1}", 2),
    (r"layer_?norm", "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], {1}, {2}, {s})", 3),
    (r"log_?softmax", "torch.log_softmax({0}, dim=-1)", 1),
    (r"softmax", "torch.softmax({0}, dim=-1)", 1),
    (r"s?axpy", "{s} * {0} + {1}", 2),
    (r"swiglu|silu_?(and_)?mul", "torch.nn.functional.silu({0}) * {1}", 2),
    (r"bias_?gelu", "torch.nn.functional.gelu({0} + {1})", 2),
    (r"gelu", "torch.nn.functional.gelu({0})", 1),
    (r"silu|swish", "torch.nn.functional.silu({0})", 1),
    (r"relu", "torch.relu({0})", 1),
    (r"transpose", "{0}.t().contiguous()", 1),
    (_PRODUCT.pattern, "{0} @ {1}", 2),
    (r"add", "{0} + {1}", 2),
    (r"mul", "{0} * {1}", 2),
    (r"copy", "{0}.clone()", 1),
)


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument as the draft sees it.

    `role` is `input`, `output`, `extent` (a size), `number` or `constant`; `shape` are the names of a tensor's extents.
    """

    name: str
    role: str
    dtype: str = "torch.float32"
    value: str = ""
    shape: tuple[str, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return self.role in ("input", "output")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is called and with what; `shape` are the extents that the work has."""

    arguments: tuple[_Argument, ...]
    shape: tuple[str, ...]

    def of(self, *roles: str) -> tuple[_Argument, ...]:
        return tuple(a for a in self.arguments if a.role in roles)

    @property
    def given(self) -> tuple[_Argument, ...]:
        """What `inputs` makes: tensors that are read, numbers, and sizes that no tensor has."""
        carried = {name for a in self.of("input") for name in a.shape}
        return tuple(a for a in self.of("input", "number", "extent") if a.role != "extent" or a.name not in carried)

    @property
    def cases(self) -> tuple[str, ...]:
        """The sizes that there are, the work's own first."""
        names = [*self.shape, *(n for a in self.arguments for n in a.shape), *(a.name for a in self.of("extent"))]
        return tuple(dict.fromkeys(names))


def draft_workload(source: SourceFile, kernel: Kernel) -> str:
    """The text of a workload for a kernel file, seen from one of its kernels.

    It is a complete workload by its form, and marked as a draft. A Triton file with one public function is called
    through that, any other kernel by a launch that is guessed from its text.
    """
    wrapper = _wrapper(source.text) if kernel.language is Language.TRITON else None
    if wrapper is not None:
        return _draft(source, kernel, _plan(kernel.name, [_of_wrapper(*a) for a in _parameters(wrapper)]), None)
    body = source.text.encode()[kernel.span.start : kernel.span.end].decode()
    describe = _of_triton if kernel.language is Language.TRITON else _of_cuda
    plan = _plan(kernel.name, [describe(parameter) for parameter in kernel.parameters])
    launch = _triton_launch(kernel, plan) if kernel.language is Language.TRITON else _cuda_launch(kernel, plan, body)
    return _draft(source, kernel, plan, [*_sizes(plan), *_outputs(plan), *launch])


def _draft(source: SourceFile, kernel: Kernel, plan: _Plan, launch: Sequence[str] | None) -> str:
    names = ", ".join(a.name for a in plan.given)
    extents = plan.cases
    small = ", ".join(f"{name}={7 + 6 * i}" for i, name in enumerate(extents))
    large = ", ".join(f"{name}={1 << 20 if len(extents) == 1 else 1024}" for name in extents)
    made = [f"{a.name} = {_made(a)}" for a in plan.given if a.is_tensor]
    back = ", ".join(a.value if a.role == "number" else a.name for a in plan.given)
    head = (
        f"{DRAFT}, made from the signature of {kernel.name}. Read it, mend it, then remove this line.\n"
        f'"""How {source.path.name} is called and what it must compute.\n\n'
        "The sizes, the values and the launch are guesses; `reference` says what is right, and every verdict rests on "
        'it.\n"""\n\nimport torch\n\n'
        f"CASES = [\n    dict({small}),\n    dict({large}),\n]\n"
    )
    parts = [
        head,
        _function(f"inputs({', '.join(extents)})", [*made, f"return {back}"]),
        _function(f"reference({names})", [_reference(kernel, plan)]),
    ]
    if launch is not None:
        back = ", ".join(a.name for a in plan.of("output")) or next((a.name for a in plan.of("input")), "None")
        parts.append(_function(f"launch({', '.join(filter(None, ('module', names)))})", [*launch, f"return {back}"]))
    return "\n\n".join(parts)


def _function(head: str, lines: Sequence[str]) -> str:
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in lines)


def _reference(kernel: Kernel, plan: _Plan) -> str:
    tensors = [a.name for a in plan.of("input")]
    number = next((a.name for a in plan.of("number")), "1e-6")
    for pattern, meaning, wants in _KNOWN:
        if re.search(pattern, kernel.name, re.IGNORECASE) and len(tensors) >= wants:
            return f"return {meaning.format(*tensors, s=number)}"
    return 'raise NotImplementedError("A signature does not say what a kernel computes: say it here in PyTorch.")'


def _made(argument: _Argument) -> str:
    size = ", ".join(argument.shape)
    if argument.dtype == "torch.bool":
        return f'torch.rand({size}, device="cuda") < 0.5'
    if "int" in argument.dtype:
        sizes = f"({size},)" if len(argument.shape) == 1 else f"({size})"
        return f'torch.randint(0, 100, {sizes}, device="cuda", dtype={argument.dtype})'
    return f'torch.randn({size}, device="cuda", dtype={argument.dtype})'


def _plan(kernel: str, arguments: Sequence[_Argument]) -> _Plan:
    extents = [a.name for a in arguments if a.role == "extent"]
    by_letter = {name.lower(): name for name in extents}
    if by_letter.keys() >= {"m", "n", "k"}:
        m, n, k = (by_letter[letter] for letter in "mnk")
        return _shaped(arguments, (m, n), [(m, k), (k, n)])
    if _PRODUCT.search(kernel) and not extents:
        return _shaped(arguments, ("m", "n"), [("m", "k"), ("k", "n")])
    if len(extents) >= 2:
        return _shaped(arguments, (extents[0], extents[1]))
    if not extents:
        return _shaped(arguments, ("rows", "cols"))
    if _TOTAL.fullmatch(extents[0]):
        return _shaped(arguments, (extents[0],))
    return _shaped(arguments, (extents[0], "cols") if _ROWS.match(extents[0]) else ("rows", extents[0]))


def _shaped(arguments: Sequence[_Argument], shape: tuple[str, ...], first: Sequence[tuple[str, ...]] = ()) -> _Plan:
    """A plan in which every tensor has `shape`, but those read `first` their own and parameters of a row its length."""
    own = iter(first)
    found: list[_Argument] = []
    for argument in arguments:
        if argument.role == "input":
            given = next(own, shape[-1:] if _OF_A_ROW.fullmatch(argument.name) else shape)
            found.append(replace(argument, shape=given))
        else:
            found.append(replace(argument, shape=shape) if argument.role == "output" else argument)
    return _Plan(tuple(found), shape)


def _sizes(plan: _Plan) -> list[str]:
    """The sizes, read off the tensors: a launch is given what a reference is given, and no more."""
    places = {name: f"{a.name}.shape[{i}]" for a in reversed(plan.of("input")) for i, name in enumerate(a.shape)}
    given = {a.name for a in plan.given}
    return [f"{name} = {places.get(name, '1024')}" for name in plan.cases if name not in given]


def _outputs(plan: _Plan) -> list[str]:
    return [f'{a.name} = torch.empty({", ".join(a.shape)}, device="cuda", dtype={a.dtype})' for a in plan.of("output")]


def _of_cuda(parameter: Parameter) -> _Argument:
    name = _python_name(parameter.name)
    if "*" in parameter.type or "[" in parameter.type:
        constant = re.search(r"\bconst\b", parameter.type.split("*")[0]) is not None
        dtype = next((dtype for pattern, dtype in _DTYPES if re.search(pattern, parameter.type)), "torch.float32")
        return _Argument(name, "input" if constant else "output", dtype)
    if _INTEGER.search(parameter.type):
        return _Argument(name, "extent")
    value = "True" if re.search(r"\bbool\b", parameter.type) else _value(name)
    return _Argument(name, "number", value=value)


def _cuda_launch(kernel: Kernel, plan: _Plan, body: str) -> list[str]:
    bound = kernel.launch_bounds[0] if kernel.launch_bounds and kernel.launch_bounds[0].isdigit() else str(_BLOCK)
    lines: list[str] = []
    if _TWO_DIMENSIONAL.search(body) and len(plan.shape) == 2:
        rows, cols = plan.shape
        grid = f"(({cols} + {_TILE - 1}) // {_TILE}, ({rows} + {_TILE - 1}) // {_TILE}), ({_TILE}, {_TILE})"
    elif _PER_ELEMENT.search(body) or len(plan.shape) == 1:
        lines.append(f"block, total = {bound}, {' * '.join(plan.shape)}")
        grid = "((total + block - 1) // block,), (block,)"
    else:
        grid = f"({plan.shape[0]},), ({bound},)"
    name = f".{kernel.name}"
    if kernel.template_parameters or "::" in kernel.name:
        kinds = ["float" if re.match(r"typename|class", p) else bound for p in kernel.template_parameters]
        name = f'["{kernel.name}{"<" + ", ".join(kinds) + ">" if kinds else ""}"]'
    return [*lines, f"module{name}[{grid}]({', '.join(a.name for a in plan.arguments)})"]


def _of_triton(parameter: Parameter) -> _Argument:
    name = parameter.name
    if parameter.constexpr or name.isupper():
        return _Argument(name, "constant", value="1024" if re.search(r"(?i)block|size|tile", name) else "1")
    if re.search(r"(?i)stride", name):
        return _Argument(name, "constant")
    short = re.sub(r"(?i)_?ptrs?$", "", name) or name
    if short == name and re.match(
        r"(?i)n_|num|.*(rows|cols|size|len|elements|dim|hidden|vocab|heads|seq)$|^[bmnkhd]$", name
    ):
        return _Argument(name, "extent")
    if short == name and re.match(r"(?i)scale|alpha|beta|p$|eps", name):
        return _Argument(name, "number", value=_value(name))
    return _Argument(name, "output" if _OUTPUT.match(short) else "input")


def _triton_launch(kernel: Kernel, plan: _Plan) -> list[str]:
    first = next((a for a in plan.of("input")), None)
    width = f"1 << ({plan.shape[-1]} - 1).bit_length()"
    given: list[str] = []
    grid = plan.shape[0]
    for a in plan.arguments:
        if a.role != "constant":
            given.append(a.name)
        elif not a.value:
            given.append(f"{first.name}.stride(0)" if first else "1")
        elif "block" in a.name.lower() and len(plan.shape) == 2:
            given.append(f"{a.name}={width}")
        else:
            grid = f"({plan.shape[0]} + {a.value} - 1) // {a.value}" if "block" in a.name.lower() else grid
            given.append(f"{a.name}={a.value}")
    return [f"module.{kernel.name}[({grid},)]({', '.join(given)})"]


def _wrapper(text: str) -> ast.FunctionDef | None:
    """The only public function that is not a kernel."""
    try:
        nodes = python_ast(text).body
    except SyntaxError:
        return None
    public = [n for n in nodes if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    plain = [n for n in public if not any("jit" in ast.unparse(d) for d in n.decorator_list)]
    return plain[0] if len(plain) == 1 else None


def _parameters(wrapper: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    given = [*wrapper.args.posonlyargs, *wrapper.args.args]
    defaults = [None] * (len(given) - len(wrapper.args.defaults)) + list(wrapper.args.defaults)
    return list(zip(given, defaults, strict=True))


def _of_wrapper(argument: ast.arg, default: ast.expr | None) -> _Argument:
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    if isinstance(default, ast.Constant) and isinstance(default.value, int | float):
        return _Argument(argument.arg, "number", value=repr(default.value))
    if kind in ("int", "float", "bool"):
        return _Argument(argument.arg, "number", value={"int": "1", "bool": "True"}.get(kind, _value(argument.arg)))
    return _Argument(argument.arg, "input")


def _value(name: str) -> str:
    return "1e-6" if _SMALL.match(name) else "1.5"


def _python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name
