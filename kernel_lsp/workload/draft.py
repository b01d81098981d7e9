"""A first workload, drafted from what a kernel file says of itself: for its author to read, mend and agree to.

A signature tells types, and names tell a little more. What a kernel computes it does not tell: where the name is not
that of a well-known function, the draft's reference raises. The judge refuses a draft until its first line is removed.
"""

import ast
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of, pick_kernel
from kernel_lsp.source.host_launches import HostLaunch, find_host_launches
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
_TYPEDEF = re.compile(r"\btypedef\s+([\w: ]+?)\s+(\w+)\s*;")
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([\w: ]+?)\s*;")
_EXTERN_SHARED = re.compile(r"\bextern\s+__shared__")

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

    `role` is `input`, `output`, `extent` (a size), `number` or `constant`; `shape` are the names of a tensor's extents;
    an input that is `mutated` is written, too.
    """

    name: str
    role: str
    dtype: str = "torch.float32"
    value: str = ""
    shape: tuple[str, ...] = ()
    mutated: bool = False

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

    @property
    def returned(self) -> tuple[str, ...]:
        """What is written."""
        return tuple(a.name for a in self.arguments if a.role == "output" or a.mutated)


def draft_for(source: SourceFile, name: str | None = None) -> str:
    """The text of a workload for a kernel file, seen from the kernel of a name or else from its first.

    Raises:
        SourceError: there is no such kernel, or it is CUDA text in a Python file.
    """
    kernels = find_kernels(source.text, source.path)
    if not kernels and name is None:
        raise SourceError("There is no kernel to draft a workload for.", source.path, cure="Name another file.")
    kernel = pick_kernel(kernels, name) if name else kernels[0]
    if language_of(source.path, source.text) is Language.TORCH:
        cure = f"Write {source.path.stem}_problem.py beside it, with Model, get_inputs and get_init_inputs."
        raise SourceError("No workload can be drafted for CUDA text in a Python file.", source.path, cure=cure)
    return draft_workload(source, kernel)


def draft_workload(source: SourceFile, kernel: Kernel) -> str:
    """The text of a workload for a kernel file, seen from one of its kernels.

    It is a complete workload by its form, and marked as a draft. A Triton file with one public function is called
    through that, any other kernel by a launch that is guessed from its text.
    """
    wrapper = _wrapper(source.text) if kernel.language is Language.TRITON else None
    if wrapper is not None:
        return _draft(source, kernel, _plan(kernel.name, [_of_wrapper(*a) for a in _parameters(wrapper)]), None)
    body = source.text.encode()[kernel.span.start : kernel.span.end].decode()
    if kernel.language is Language.TRITON:
        plan = _plan(kernel.name, [_of_triton(parameter) for parameter in kernel.parameters])
        launch = _triton_launch(kernel, plan)
    else:
        aliases = _aliases(source.text)
        plan = _plan(kernel.name, [_of_cuda(parameter, aliases, body) for parameter in kernel.parameters])
        launch = _cuda_launch(kernel, plan, body, _written_launch(source.text, kernel))
    return _draft(source, kernel, plan, [*_sizes(plan), *_outputs(plan), *launch])


def _draft(source: SourceFile, kernel: Kernel, plan: _Plan, launch: Sequence[str] | None) -> str:
    names = ", ".join(a.name for a in plan.given)
    extents = plan.cases
    small = ", ".join(f"{name}={7 + 6 * i}" for i, name in enumerate(extents))
    large = ", ".join(f"{name}={_large(plan)}" for name in extents)
    mutated = "".join(f'"{a.name}", ' for a in plan.arguments if a.mutated).rstrip(" ")
    contract = f"CONTRACT = dict(mutates=({mutated}))\n" if mutated else ""
    made = [f"{a.name} = {_made(a)}" for a in plan.given if a.is_tensor]
    back = ", ".join(a.value if a.role == "number" else a.name for a in plan.given)
    head = (
        f"{DRAFT}, made from the signature of {kernel.name}. Read it, mend it, then remove this line.\n"
        f'"""How {source.path.name} is called and what it must compute.\n\n'
        "The sizes, the values and the launch are guesses; `reference` says what is right, and every verdict rests on "
        'it.\n"""\n\nimport torch\n\n'
        f"CASES = [\n    dict({small}),\n    dict({large}),\n]\n{contract}"
    )
    parts = [
        head,
        _function(f"inputs({', '.join(extents)})", [*made, f"return {back}"]),
        _function(f"reference({names})", [_reference(kernel, plan, source)]),
    ]
    if launch is not None:
        back = ", ".join(plan.returned) or next((a.name for a in plan.of("input")), "None")
        parts.append(_function(f"launch({', '.join(filter(None, ('module', names)))})", [*launch, f"return {back}"]))
    return "\n\n".join(parts)


def _function(head: str, lines: Sequence[str]) -> str:
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in lines)


def _large(plan: _Plan) -> int:
    """The size of each extent of a large case: whatever product of them a tensor has, it stays within reason."""
    if len(plan.cases) == 1:
        return 1 << 20
    ranks = {len(a.shape) for a in plan.arguments if a.is_tensor}
    product = {name.lower() for name in plan.cases} == set("mnk")
    return 1024 if len(plan.cases) == 2 or (product and max(ranks) == 2) else 256 if len(plan.cases) == 3 else 64


def _reference(kernel: Kernel, plan: _Plan, source: SourceFile) -> str:
    body = source.text.encode()[kernel.body.start : kernel.body.end].decode()
    tensors = [a.name for a in plan.of("input")]
    number = next((a.name for a in plan.of("number")), "1e-6")
    for pattern, meaning, wants in _KNOWN:
        if re.search(pattern, kernel.name, re.IGNORECASE) and len(tensors) >= wants:
            said = meaning.format(*tensors, s=number)
            if "gelu(" in said and "tanh" in body:
                said = f'{said[:-1]}, approximate="tanh")'
            return f"return {said}"
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


def _aliases(text: str) -> dict[str, str]:
    """What names of types stand for in a file; of several, as in branches of an `#if`, the first."""
    found: dict[str, str] = {}
    for kind, name in (*_TYPEDEF.findall(text), *((kind, name) for name, kind in _USING.findall(text))):
        found.setdefault(name, kind.strip())
    return found


def _is_read_first(name: str, body: str) -> bool:
    """Whether what a pointer shows is used before it is written, as far as plain indexing and atomics tell."""
    if re.search(rf"\batomic\w+\s*\(\s*&?\s*{name}\b", body):
        return True
    uses = list(re.finditer(rf"\b{name}\s*\[|\*\s*{name}\b", body))
    if not uses:
        return False
    rest = body[uses[0].start() :].partition(";")[0]
    written = re.match(rf"(?:{name}\s*\[[^;=]*\]|\*\s*{name})\s*=(?!=)", rest)
    return written is None or re.search(rf"\b{name}\s*\[|\*\s*{name}\b", rest[written.end() :]) is not None


def _of_cuda(parameter: Parameter, aliases: Mapping[str, str], body: str) -> _Argument:
    name = _python_name(parameter.name)
    kind = re.sub(r"\w+", lambda word: aliases.get(word[0], word[0]), parameter.type)
    if "*" in kind or "[" in kind:
        constant = re.search(r"\bconst\b", kind.split("*")[0]) is not None
        dtype = next((dtype for pattern, dtype in _DTYPES if re.search(pattern, kind)), "torch.float32")
        mutated = not constant and _is_read_first(parameter.name, body.partition("{")[2])
        return _Argument(name, "input" if constant or mutated else "output", dtype, mutated=mutated)
    if _INTEGER.search(parameter.type):
        return _Argument(name, "extent")
    value = "True" if re.search(r"\bbool\b", parameter.type) else _value(name)
    return _Argument(name, "number", value=value)


def _written_launch(text: str, kernel: Kernel) -> HostLaunch | None:
    """How host code of the file launches a kernel, if it does."""
    plain = kernel.name.rpartition("::")[2]
    launches = find_host_launches(text)
    return next((one for one in launches if one.kernel.partition("<")[0].rpartition("::")[2] == plain), None)


def _grid(written: str, plan: _Plan, threads: int) -> str | None:
    """The number of blocks as Python says it; None where it is made of more than sizes and the block's."""
    text = re.sub(r"\(\s*(?:int|size_t|unsigned)\s*\)|\bdim3\b|static_cast\s*<[^>]*>", "", written)
    text = re.sub(r"(?i)\b(?:ceil_?div|div_?up|cdiv)\s*\(([^(),]+),([^(),]+)\)", r"-(-(\1) // (\2))", text)
    text = re.sub(
        r"(?<!/)/(?!/)", "//", re.sub(r"(?i)\b(?:block_?size|threads(?:_?per_?block)?)\b", str(threads), text)
    )
    named = set(re.findall(r"[A-Za-z_]\w*", text))
    if not text.strip() or not named <= set(plan.cases) or re.search(r"[^\w\s()+\-*/,]", text):
        return None
    return text.strip()


def _cuda_launch(kernel: Kernel, plan: _Plan, body: str, written: HostLaunch | None) -> list[str]:
    bound = kernel.launch_bounds[0] if kernel.launch_bounds and kernel.launch_bounds[0].isdigit() else str(_BLOCK)
    threads = written.block if written and written.block else None
    bound = str(threads[0] * threads[1] * threads[2]) if threads else bound
    lines: list[str] = []
    if written and (blocks := _grid(written.grid, plan, int(bound))) is not None:
        shape = tuple(extent for extent in threads if extent > 1) or (1,) if threads else (int(bound),)
        grid = f"{blocks}, {shape[0] if len(shape) == 1 else shape}"
    elif _TWO_DIMENSIONAL.search(body) and len(plan.shape) == 2:
        rows, cols = plan.shape
        grid = f"(({cols} + {_TILE - 1}) // {_TILE}, ({rows} + {_TILE - 1}) // {_TILE}), ({_TILE}, {_TILE})"
    elif _PER_ELEMENT.search(body) or len(plan.shape) == 1:
        lines.append(f"block, total = {bound}, {' * '.join(plan.shape)}")
        grid = "((total + block - 1) // block,), (block,)"
    else:
        grid = f"({plan.shape[0]},), ({bound},)"
    if written and written.shared_bytes:
        grid += f", {written.shared_bytes}"
    elif _EXTERN_SHARED.search(body):
        grid += f", 4 * {bound}"
    name = f".{kernel.name}"
    if written and written.instance:
        name = f'["{written.kernel}"]'
    elif kernel.template_parameters or "::" in kernel.name:
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
