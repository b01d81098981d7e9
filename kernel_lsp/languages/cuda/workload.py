"""Drafts calls of CUDA kernels from their parameters and from the launches in the file's host code."""

import keyword
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda_classes import find_classes
from kernel_lsp.source.host_launches import HostLaunch, constant_of, find_host_launches
from kernel_lsp.source.kernel import Kernel, Parameter
from kernel_lsp.source.template_arguments import instance_of
from kernel_lsp.source.text import behind_brackets, between_commas
from kernel_lsp.workload.array_indices import indices_of
from kernel_lsp.workload.element_formula import formula_of
from kernel_lsp.workload.flat_index import FlatIndex, flat_index, row_length
from kernel_lsp.workload.language import PRODUCT, Argument, Drafted, DraftedCall, WorkloadPart, value_of

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
_PER_ELEMENT = re.compile(r"blockIdx\s*\.\s*x\s*\*\s*blockDim\s*\.\s*x|blockDim\s*\.\s*x\s*\*\s*blockIdx\s*\.\s*x")
_TWO_DIMENSIONAL = re.compile(r"\b(?:blockIdx|threadIdx)\s*\.\s*y\b")
_BLOCK, _TILE = 256, 16
_MATRIX = 2  # extents
_CONSTANT = re.compile(r"[\d\s()+\-*/]+")  # a number of blocks that depends on no size
_TYPEDEF = re.compile(r"\btypedef\s+([\w: ]+?)\s+(\w+)\s*;")
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([\w: ]+?)\s*;")
_WITHOUT_A_MACRO = re.compile(  # a macro, and what stands there without it
    r"#\s*ifdef\s+(\w+)((?:(?!#\s*(?:if|else|endif)).)*)(?:#\s*else\b((?:(?!#\s*(?:if|else|endif)).)*))?#\s*endif",
    re.DOTALL,
)
_ASSIGNED = re.compile(  # after an element, cast or not
    r"[\s)]*(?:\[\w+\][\s)]*)?(?:\.\w+\s*)?(?:=(?!=)|[-+*/%|&^]=|<<=|>>=|\+\+|--)"
)
_RESULT = re.compile(r"(?i)(?:[dgp]_)?(?:out\w*|dst\w*|dest\w*|res(?:ult)?s?)")
_NUMBER = re.compile(
    r"(?:std::)?(?:bool|char|short|int|long|float|double|s?size_t|ptrdiff_t|u?int(?:_fast|_least)?\d+_t|uint|uchar|ushort"
    r"|ulong)|(?:__)?half2?|(?:__)?nv_bfloat16[2]?|c10::Half|c10::BFloat16|at::Half|at::BFloat16|bfloat16|float16|bf16"
    r"|scalar_t|float(?:_t|X)"
)
_WIDENED = re.compile(  # a pointer to several numbers at once, made of one to single ones
    r"(?:reinterpret_cast\s*<\s*(?:const\s+)?|\(\s*(?:const\s+)?)(?:u?int|float|double|half|__half|short|u?char)[248]\w*"
    r"\s*(?:const\s*)?\*"
)
# Blocks of a constant size, and rows of blocks that are not counted in threads.
_OWN_BLOCK = re.compile(
    r"\bblockIdx\s*\.\s*x\s*\*\s*[A-Z_][A-Z_0-9]*\s*\+\s*threadIdx\s*\.\s*x"
    r"|=\s*blockIdx\s*\.\s*y\s*;"
)
_ROUNDED_DOWN = re.compile(r"(?<!\w)\(*([A-Za-z_]\w*)\s*/\s*(\d+)\)*\s*(?=[,)]|\Z)")
_EXTERN_SHARED = re.compile(r"\bextern\s+__shared__")


class _Cuda:
    def draft(self, source: SourceFile, kernel: Kernel) -> Drafted:
        body = source.text.encode()[kernel.span.start : kernel.span.end].decode()
        written = _written_launch(source.text, kernel)
        aliases = _aliases(source.text) | _instance(kernel, written)
        templates = {text.partition("=")[0].split()[-1] for text in kernel.template_parameters}
        arguments = [_of_cuda(parameter, aliases, body, templates) for parameter in kernel.parameters]
        arguments = _indexed(arguments, body)
        extents = [argument.name for argument in arguments if argument.role == "extent"]
        flat = _flat(arguments, extents, body)
        length = (flat.extent or "n",) if flat is not None else _square(arguments, extents, body)
        if flat is None:
            arguments = [_holding(one, body) for one in arguments]
        if length:
            arguments = [replace(one, shape=length, index=None) if one.is_tensor else one for one in arguments]
        unbounded = flat is not None and not flat.extent
        size = constant_of(source.text, flat.fixed) if flat is not None and flat.fixed else None
        multiples = _whole_blocks(kernel, written)
        if not length and len(extents) <= _MATRIX:
            multiples = dict.fromkeys(_unguarded(extents, body), _threads(kernel, written)) | multiples
        return Drafted(
            arguments,
            lambda plan: [
                *([] if size else _asked(kernel, flat, extents, body, written, _is_told(kernel, plan, written))),
                *_cuda_launch(kernel, plan, source.text, body, written),
            ],
            shaped=bool(length),
            shape=length,
            row_length=row_length(extents, body),
            multiples={"n": _threads(kernel, written)} if unbounded else multiples,
            known={"n": size} if size else {},
            formula=lambda plan: _formula(plan, body),
        )


def _flat(arguments: Sequence[Argument], extents: Sequence[str], body: str) -> FlatIndex | None:
    """Return what bounds the elements of a kernel that has one for each thread; None for any other."""
    arrays = [argument.name for argument in arguments if argument.is_tensor]
    flat = flat_index(arrays, extents, body.partition("{")[2])
    return None if flat is not None and "n" in {one.name for one in arguments} - {flat.extent} else flat


def _holding(argument: Argument, body: str) -> Argument:
    """Return an array of whole numbers that tell where others are read or written as what has to be asked for."""
    if argument.role != "input" or "int" not in argument.dtype:
        return argument
    element = rf"\b{argument.name}\s*\["
    assigned = re.findall(rf"\b(\w+)\s*=[^;=]*{element}", body)
    places = [element, *(rf"\b{name}\b" for name in assigned)]
    if not any(re.search(rf"(?:\w\s*\[[^\];]*|(?:<|>=)\s*){place}", body.partition("{")[2]) for place in places):
        return argument
    return Argument(argument.name, "open", value=f"Say what `{argument.name}` holds: whole numbers below what?")


def _unguarded(extents: Sequence[str], body: str) -> list[str]:
    """Return the sizes that no index is compared with: what is moved in whole blocks has to be made of these.

    A comparison that is off by one counts: with whole blocks nothing would show it.
    """
    return [one for one in extents if not re.search(rf"(?:<=?|(?<!-)>=?|%|\bmin\s*\([^;]*)\s*\(?\s*{one}\b", body)]


def _square(arguments: Sequence[Argument], extents: Sequence[str], body: str) -> tuple[str, ...]:
    """Return the extents of arrays that all are square matrices of the kernel's only size; else none."""
    names = [argument.name for argument in arguments if argument.is_tensor]
    if len(extents) != 1 or not names:
        return ()
    of_rows = rf"[^;\[\]]*(?:\*\s*{extents[0]}\b|\b{extents[0]}\s*\*)[^;\[\]]*\+"
    if _TWO_DIMENSIONAL.search(body) is None:  # a thread has a row or a column of some of them
        found = _PER_ELEMENT.search(body) and re.search(rf"\[{of_rows}", body)
        return (extents[0], extents[0]) if found else ()
    return (extents[0], extents[0]) if all(re.search(rf"\b{name}\s*\[{of_rows}", body) for name in names) else ()


def _is_told(kernel: Kernel, plan: DraftedCall, written: HostLaunch | None) -> bool:
    """Return True if a launch in the file tells the grid and the block for arrays of one or two extents."""
    known = written is not None and written.block and _grid(written, kernel, plan, math.prod(written.block))
    return bool(known) and len(plan.cases) == len(set(plan.shape))


def _asked(
    kernel: Kernel, flat: FlatIndex | None, extents: Sequence[str], body: str, written: HostLaunch | None, told: bool
) -> list[str]:
    """Return a question in place of a launch that neither the kernel's text nor one in the file tells."""
    code = body.partition("{")[2]
    if flat is not None and flat.fixed:
        question = f"{kernel.name} stops at {flat.fixed}, which is no parameter: say how many elements there are."
    elif flat is None and not extents and not PRODUCT.search(kernel.name) and code.strip("} \n"):
        question = f"No parameter of {kernel.name} says how many elements there are: say the sizes, grid and block."
    elif _WIDENED.search(code):
        question = f"Threads of {kernel.name} move several elements at once: say the sizes, the grid and the block."
    elif told and extents and _CONSTANT.fullmatch(written.grid if written else ""):
        blocks = f"{written.grid if written else ''} blocks"
        question = f"The file launches {kernel.name} with {blocks} whatever the sizes: say these and the grid."
    elif told:
        return []
    elif _OWN_BLOCK.search(code):
        question = f"{kernel.name} is written for blocks of one size or shape: say the grid and the block."
    elif _TWO_DIMENSIONAL.search(code) and extents and not _is_bounded(extents, code):
        question = f"Nothing in {kernel.name} bounds its indices: say the sizes, the grid and the block."
    else:
        return []
    return [f"raise NotImplementedError({question!r})"]


def _is_bounded(extents: Sequence[str], code: str) -> bool:
    names = "|".join(map(re.escape, extents))
    return re.search(rf"(?:<|>=|%)\s*\(?\s*(?:{names})\b|\bmin\s*\(", code) is not None


def _instance(kernel: Kernel, written: HostLaunch | None) -> dict[str, str]:
    """Return what a launch in the file says that the parameters of a template are."""
    given = written.arguments if written is not None else ()
    names = [text.partition("=")[0].split()[-1] for text in kernel.template_parameters]
    return {name: value for name, value in zip(names, given, strict=False) if value is not None}


def _formula(plan: DraftedCall, body: str) -> str:
    """Return the formula of a kernel that computes in floating point, element by element; empty for any other."""
    written, read = plan.of("output"), plan.of("input")
    if len(written) != 1 or any(one.mutated or "float" not in one.dtype for one in (*written, *read)):
        return ""
    indices = {one.name: one.index for one in read if one.index is not None}
    inputs, numbers = ([one.name for one in plan.of(role)] for role in ("input", "number"))
    return formula_of(body, written[0].name, inputs, numbers, indices, plan.shape)


def _indexed(arguments: Sequence[Argument], body: str) -> list[Argument]:
    """Return the arguments with what their indices tell of tensors that have an element for each row or column."""
    tensors = [argument.name for argument in arguments if argument.is_tensor]
    extents = [argument.name for argument in arguments if argument.role == "extent"]
    found = indices_of(tensors, extents, body.partition("{")[2])
    return [replace(argument, index=found.get(argument.name)) for argument in arguments]


def _aliases(text: str) -> dict[str, str]:
    """Return type alias -> type in a file; of several definitions the first that no missing macro asks for."""
    text = _WITHOUT_A_MACRO.sub(lambda branch: branch[0] if _is_defined(branch[1], text) else branch[3] or "", text)
    found: dict[str, str] = {}
    for kind, name in (*_TYPEDEF.findall(text), *((kind, name) for name, kind in _USING.findall(text))):
        found.setdefault(name, kind.strip())
    return found


def _is_defined(macro: str, text: str) -> bool:
    return re.search(rf"#\s*define\s+{macro}\b", text) is not None


def _is_read_first(name: str, body: str) -> bool:
    """Return True if a pointer's data is used before it is written, judged by plain indexing and atomics."""
    if re.search(rf"\batomic\w+\s*\(\s*&?\s*{name}\b", body):
        return True
    uses = list(re.finditer(rf"\b{name}\s*\[|\*\s*{name}\b", body))
    if not uses and re.search(rf"[(,]\s*{name}\s*[,)]", body):
        return True  # given to a function whole
    if not uses or (_RESULT.fullmatch(name) and re.search(rf"&\s*{name}\b", body)):  # written through its address
        return False
    rest = body[uses[0].end() - uses[0][0].endswith("[") :].partition(";")[0]
    behind = rest[behind_brackets(rest, "[]") :] if rest.startswith("[") else rest
    written = re.match(r"\s*=(?!=)", behind)
    return written is None or re.search(rf"\b{name}\s*\[|\*\s*{name}\b", behind) is not None


def _is_only_read(name: str, body: str) -> bool:
    """Return True if every use of a pointer reads an element: nothing is assigned to one, and no address is taken."""
    uses = list(re.finditer(rf"(?<![.\w])(?<!->){name}\b", body))
    for use in uses:
        before, after = body[: use.start()], body[use.end() :].lstrip()
        if re.search(r"\*\s*\(\s*\Z", before):  # `*(x + i)`
            inner = "(" + body[use.start() :]
            if _ASSIGNED.match(inner[behind_brackets(inner) :]):
                return False
            continue
        if not after.startswith("[") or re.search(r"(?:(?<!&)&|\+\+|--)[\s(]*\Z", before):
            return False
        if _ASSIGNED.match(after[behind_brackets(after, "[]") :]):
            return False
    return bool(uses)


def _is_known(kind: str, templates: Collection[str]) -> bool:
    """Return True for a number or an array of numbers: no structure, and no type of another file."""
    plain = re.sub(
        r"\b(?:const|volatile|unsigned|signed|__restrict(?:__)?|__grid_constant__|typename)\b|[*&]", " ", kind
    )
    words = re.findall(r"[A-Za-z_][\w:]*", plain.partition("[")[0])
    return not words or all(word in templates or _NUMBER.fullmatch(word) for word in words)


def _of_cuda(parameter: Parameter, aliases: Mapping[str, str], body: str, templates: Collection[str]) -> Argument:
    name = _python_name(parameter.name)
    kind = re.sub(r"\w+", lambda word: aliases.get(word[0], word[0]), parameter.type)
    if not _is_known(kind, templates):
        plain = re.sub(r"\s+", " ", re.sub(r"\b(?:const|volatile|__restrict(?:__)?)\b", "", parameter.type)).strip()
        return Argument(name, "open", value=f"Say what `{name}`, {plain}, is.")
    if "*" in kind or "[" in kind:
        constant = re.search(r"\bconst\b", kind.split("*")[0]) is not None
        dtype = next((dtype for pattern, dtype in _DTYPES if re.search(pattern, kind)), "torch.float32")
        code = body.partition("{")[2]
        constant = constant or _is_only_read(parameter.name, code)
        mutated = not constant and _is_read_first(parameter.name, code)
        return Argument(name, "input" if constant or mutated else "output", dtype, mutated=mutated)
    if _INTEGER.search(kind):
        return Argument(name, "extent")
    value = "True" if re.search(r"\bbool\b", kind) else value_of(name)
    return Argument(name, "number", value=value)


def _written_launch(text: str, kernel: Kernel) -> HostLaunch | None:
    """Return the launch of a kernel in the file's host code; None without one."""
    plain = kernel.name.rpartition("::")[2]
    launches = find_host_launches(text)
    return next((one for one in launches if one.kernel.partition("<")[0].rpartition("::")[2] == plain), None)


def _whole_blocks(kernel: Kernel, written: HostLaunch | None) -> dict[str, int]:
    """Return what sizes are multiples of, as a launch in the file divides them by the block without rounding up."""
    if written is None:
        return {}
    grid = _of_parameters(kernel, written, written.grid)
    return {name: int(step) for name, step in _ROUNDED_DOWN.findall(grid) if int(step)}


def _of_parameters(kernel: Kernel, written: HostLaunch, expression: str) -> str:
    """Return an expression of a launch in the file, with the kernel's names for what it is given."""
    named = {given: _python_name(one.name) for given, one in zip(written.passed, kernel.parameters, strict=False)}
    text = re.sub(r"[A-Za-z_]\w*", lambda word: named.get(word[0], word[0]), expression)
    return re.sub(r"\(\s*(?:int|size_t|unsigned)\s*\)|\bdim3\b|static_cast\s*<[^>]*>", "", text)


def _grid(written: HostLaunch, kernel: Kernel, plan: DraftedCall, threads: int) -> str | None:
    """Return the number of blocks as a Python expression; None if it depends on more than sizes and the block."""
    return _expression(_of_parameters(kernel, written, written.grid), plan, threads)


def _expression(text: str, plan: DraftedCall, threads: int) -> str | None:
    text = re.sub(
        r"(?i)\b(?:ceil_?div|div_?up|cdiv)\s*\(([^(),]+),([^(),]+)\)",
        r"-(-(\1) // (\2))",
        text,
    )
    text = re.sub(
        r"(?<!/)/(?!/)", "//", re.sub(r"(?i)\b(?:block_?size|threads(?:_?per_?block)?)\b", str(threads), text)
    )
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    if not text.strip() or not used <= set(plan.cases) or re.search(r"[^\w\s()+\-*/,]|\w\s*\(", text):
        return None
    extents = [_stripped(part) for part in between_commas(_stripped(text))]
    return extents[0] if len(extents) == 1 else f"({', '.join(extents)})"


def _stripped(text: str) -> str:
    """Return an expression without brackets around the whole."""
    text = text.strip()
    return _stripped(text[1:-1]) if text.startswith("(") and behind_brackets(text) == len(text) else text


def _threads(kernel: Kernel, written: HostLaunch | None) -> int:
    """Return the threads of a block: those of a launch in the file, else of its launch bounds, else a usual number."""
    if written is not None and written.block:
        return math.prod(written.block)
    bounds = kernel.launch_bounds
    return int(bounds[0]) if bounds and bounds[0].isdigit() else _BLOCK


def _cuda_launch(kernel: Kernel, plan: DraftedCall, text: str, body: str, written: HostLaunch | None) -> list[str]:
    threads = written.block if written and written.block else None
    bound = str(_threads(kernel, written))
    lines: list[str] = []
    if written and (blocks := _grid(written, kernel, plan, int(bound))) is not None:
        shape = tuple(extent for extent in threads if extent > 1) or (1,) if threads else (int(bound),)
        said = _of_parameters(kernel, written, written.threads)
        computed = _expression(said, plan, int(bound)) if threads is None else None
        grid = f"{blocks}, {computed or (shape[0] if len(shape) == 1 else shape)}"
    elif written and (len(plan.shape) > _MATRIX or (_TWO_DIMENSIONAL.search(body) and len(plan.shape) < _MATRIX)):
        question = f"The file launches {kernel.name} with {written.grid} blocks: say the grid and the block."
        lines.append(f"raise NotImplementedError({question!r})")
        grid = "..., ..."
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
        instance = instance_of(kernel, written.arguments if written else (), 0, find_classes(text))
        name = f'["{instance[0] if instance and kernel.template_parameters else kernel.name}"]'
    return [*lines, f"module{name}[{grid}]({', '.join(a.name for a in plan.arguments)})"]


def _python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


PART: WorkloadPart = _Cuda()
