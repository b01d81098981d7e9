"""What the host code of a candidate reaches for beyond its kernels: a tripwire that says so by name.

Host code of a candidate runs in the process that times it. A kernel needs little of Python and C++ there: it makes
tensors, computes sizes and launches. What goes further is an objection, unless the user's own text does the same. This
cannot find everything that is hidden well enough; the judge's other checks do not rest on it.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import inline_sources, is_problem
from kernel_lsp.source.python import NestedTooDeepError, python_ast


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words(
    "__future__ abc collections contextlib dataclasses enum functools itertools math numbers textwrap torch triton "
    "typing"
)
_PARTS_OF_TORCH = _words(
    "classes distributed fx futures hub jit library multiprocessing overrides package profiler serialization testing "
    "utils"
)
_PARTS_OF_TRITON = _words("backends build compile_module_from_src")
_MODULES_WITHIN = _words(
    "amp autograd backends compiler cuda extra fft functional init knobs language libdevice linalg modules nn parallel "
    "parameter random runtime sparse special testing tools"
)
"""What modules of torch and triton are called."""
_FOREIGN = (sys.stdlib_module_names | {"np", "numpy"}) - _words("chunk copy math random select signal trace")
"""Modules that those of torch and triton import, but for what these call so themselves."""
_EXTENSIONS = "torch.utils.cpp_extension"
_BUILDS_EXTENSIONS = (f"{_EXTENSIONS}.load", f"{_EXTENSIONS}.load_inline")
_BUILD_VARIABLES = ("MAX_JOBS", "TORCH_CUDA_ARCH_LIST")
_SETTINGS_OF_TORCH = _words("manual_seed manual_seed_all seed seed_all use_deterministic_algorithms")
_FILES_OF_TORCH = _words("load save from_file load_library")
_BUILTINS = _words("breakpoint compile delattr eval exec globals locals open setattr vars")
_ANYWHERE = _words(
    "TypedDict attrgetter builtins chdir ctypes f_back f_builtins f_code f_globals f_locals gc get_type_hints "
    "gi_frame importlib inspect io make_dataclass methodcaller modules os pathlib redirect_stderr redirect_stdout "
    "singledispatch singledispatchmethod subprocess sys tb_frame threading update_wrapper wraps"
)
_OWN = ("self", "cls", "ctx")
_DUNDERS = _words("__all__ __call__ __doc__ __getitem__ __init__ __len__ __name__ __version__")
_DEFINED = _DUNDERS | _words(
    "__author__ __constants__ __contains__ __enter__ __eq__ __exit__ __hash__ __iter__ __next__ __post_init__ __repr__ "
    "__slots__ __str__"
)

_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
_HEADERS = re.compile(
    r"""(?x) (?: cuda | cublas | cooperative_groups | cub/ | curand | thrust/ | cute/ | cutlass/ | mma\.h | torch/
    | ATen/ | c10/ | pybind11/ | nv/ ) .* | algorithm | array | assert\.h | bit | cassert | cfloat | cinttypes
    | climits | cmath | complex | cstddef | cstdint | cstdio | cstdlib | cstring | device_launch_parameters\.h
    | float\.h | functional | initializer_list | inttypes\.h | iomanip | iostream | limits | limits\.h | map | math\.h
    | math_constants\.h | memory | new | numbers | numeric | optional | set | sstream | stdexcept | stddef\.h
    | stdint\.h | stdio\.h | stdlib\.h | string | string\.h | string_view | tuple | type_traits | unordered_map
    | unordered_set | utility | vector | vector_functions\.h | vector_types\.h"""
)
_HOST_WORDS = re.compile(
    r"""(?x)\b(?: (?<!\.)(?<!->)(?<!\bat::)(?<!\btorch::) clone3?
    | constructor | cudaCtxResetPersistingL2Cache | cudaDeviceReset | cudaDeviceSetCacheConfig
    | cudaDeviceSetLimit | cudaThreadExchangeStreamCaptureMode | cuCtxSetLimit | destructor | dlopen | dlsym | dlvsym
    | execv\w* | _?_?_exit | exit | fopen | fork | getenv | ifstream | ifunc | init_array | kill | mmap | mprotect
    | mseal | ofstream | open | popen | prctl | pthread_\w+ | ptrace | setenv | sigaction | signal
    | Py(?:Err|Eval|Import|Interpreter|Module|Object|Run|Sys|Thread)\w*_\w+
    | py(?:bind11)?\s*::\s*(?:eval|exec|module_?\s*::\s*import)
    | std\s*::\s*(?:async|jthread|thread) | syscall | system | vfork )\b(?=\s*[(){};,<\s])
    | \bkernel_lsp\b(?=\s*::)"""
)


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that host code has no business with.

    Attributes:
        line: of the file it stands in, from 1.
        what: what the code does, as the rest of a sentence: "imports `gc`".
    """

    line: int
    what: str


def objections(candidate: Candidate, baseline: Candidate, workload: SourceFile) -> tuple[Objection, ...]:
    """What the candidate's Python does that neither the baseline nor the workload does, in order.

    That is the kernel file of a candidate in Python, with the C++ that it gives to `load_inline`, and the candidate's
    launch. An answer to a KernelBench problem may build extensions. A text that does not parse has none: whoever
    executes it says what is wrong.
    """
    own = [file for file in (baseline.kernel, baseline.launch, workload) if file is not None]
    builds = is_problem(workload.text)
    usual = {found.what for file in own if file.path.suffix == ".py" for found in _of_file(file.text, builds=builds)}
    files = [candidate.kernel] if candidate.language is not Language.CUDA else []
    files += [candidate.launch] if candidate.launch is not None else []
    return tuple(found for file in files for found in _of_file(file.text, builds=builds) if found.what not in usual)


def host_objections(candidate: Sequence[str], baseline: SourceFile) -> tuple[Objection, ...]:
    """What the C++ host code of torch extensions, text by text, does that the baseline's does not, in order."""
    usual = {found.what for found in _cpp(baseline.text)}
    return tuple(found for text in candidate for found in _cpp(text) if found.what not in usual)


def _of_file(text: str, *, builds: bool) -> tuple[Objection, ...]:
    data, found = text.encode(), list(_python(text, builds=builds))
    for source in inline_sources(text):
        above = data.count(b"\n", 0, source.span.start)
        found += [Objection(above + objection.line, objection.what) for objection in _cpp(source.text)]
    return tuple(sorted(found, key=lambda objection: objection.line))


def _python(text: str, *, builds: bool) -> tuple[Objection, ...]:
    try:
        tree = python_ast(text)
    except NestedTooDeepError as error:
        return (Objection(error.lineno or 1, "it is nested too deep to be read"),)
    except SyntaxError:
        return ()
    imported = dict(_bindings(tree))
    aliases = _aliases(tree, imported)
    builders = _extension_builders(tree, imported) | _build_variables(tree) if builds else set[int]()
    plain = _used_plainly(tree) | aliases
    found = [
        Objection(node.lineno, what)
        for node in ast.walk(tree)
        if isinstance(node, (ast.stmt, ast.expr)) and id(node) not in builders
        for what in (*_of(node, imported), *_of_binding(node), *(() if id(node) in plain else _handed(node, imported)))
    ]
    methods = {id(part) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body}
    found += [
        Objection(argument.lineno, f"calls what is no object of its own `{argument.arg}`")
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for argument in _posing(node, is_method=id(node) in methods)
    ]
    return tuple(sorted(found, key=lambda objection: objection.line))


def _aliases(tree: ast.Module, imported: dict[str, str]) -> set[int]:
    """Take names that stand for a module by a plain assignment for imported; the modules assigned so, by `id`."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (dotted := _module(node.value, imported)):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if len(names) == len(node.targets):
                imported |= dict.fromkeys(names, dotted)
                found.add(id(node.value))
    return found


def _module(node: ast.expr, imported: Mapping[str, str]) -> str | None:
    """The dotted name of a module that an expression stands for, as far as names tell."""
    if isinstance(node, ast.Name):
        path = imported.get(node.id, "").split(".")
    elif isinstance(node, ast.Attribute):
        start, path = _path(node, imported)
        path = path if start in imported else [""]
    else:
        return None
    is_module = path[0] in _MODULES and (
        len(path) == 1 or (path[0] in ("torch", "triton") and path[-1] in _MODULES_WITHIN)
    )
    return ".".join(path) if is_module else None


def _used_plainly(tree: ast.Module) -> set[int]:
    """Expressions, by `id`, that something is taken from or that are called."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(id(node.value))
        elif isinstance(node, ast.Call):
            found.add(id(node.func))
    return found


def _handed(node: ast.AST, imported: Mapping[str, str]) -> Iterator[str]:
    """What is handed round, so that nobody sees what is taken from it."""
    if isinstance(node, ast.Name) and node.id in ("getattr", "type") and isinstance(node.ctx, ast.Load):
        yield f"hands round `{node.id}`"
    elif (
        isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Load)
        and (dotted := _module(node, imported))
    ):
        yield f"hands round `{dotted}`"


def _of_binding(node: ast.AST) -> Iterator[str]:
    """What a candidate gives a meaning to that others rely on."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _of_definition(node.name)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield from _of_definition(node.id)
        if node.id in _OWN:
            yield f"calls what is no object of its own `{node.id}`"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (f"calls what is no object of its own `{a.asname}`" for a in node.names if a.asname in _OWN)
    elif isinstance(node, ast.ClassDef) and any(keyword.arg in ("metaclass", None) for keyword in node.keywords):
        yield "chooses a metaclass"
    elif isinstance(node, ast.Call) and _makes_a_class(node):
        yield "makes a class with `type`"


def _makes_a_class(call: ast.Call) -> bool:
    of_type = isinstance(call.func, ast.Name) and call.func.id == "type"
    return of_type and (len(call.args) != 1 or isinstance(call.args[0], ast.Starred))


def _of_definition(name: str) -> Iterator[str]:
    if name.startswith("__") and name.endswith("__") and name not in _DEFINED:
        yield f"defines `{name}`"


def _posing(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, *, is_method: bool) -> list[ast.arg]:
    """Parameters called as a method's own object that are none."""
    arguments = node.args
    first, *rest = [*arguments.posonlyargs, *arguments.args] or [None]
    defaults = len(arguments.defaults) == 1 + len(rest)
    own = [] if is_method and not defaults else [first]
    every = (*own, *rest, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return [argument for argument in every if argument is not None and argument.arg in _OWN]


def _extension_builders(tree: ast.Module, imported: Mapping[str, str]) -> set[int]:
    """Imports and attributes, by `id`, that lead to `torch.utils.cpp_extension.load_inline` and nowhere else."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and all(alias.name == _EXTENSIONS for alias in node.names):
            found.add(id(node))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if names <= {_EXTENSIONS, *_BUILDS_EXTENSIONS}:
                found.add(id(node))
        elif isinstance(node, ast.Attribute) and ".".join(_path(node, imported)[1]) in _BUILDS_EXTENSIONS:
            part: ast.expr = node
            while isinstance(part, ast.Attribute):
                found.add(id(part))
                part = part.value
    return found


def _build_variables(tree: ast.Module) -> set[int]:
    """Imports and attributes, by `id`, of an `os` that only sets variables for torch's build of extensions."""
    found: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[
                    ast.Subscript(value=ast.Attribute(value=ast.Name(id="os") as name, attr="environ"), slice=key)
                ],
                value=ast.Constant(),
            ):
                parts: list[ast.expr] = [name]
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id="os") as name, attr="environ"), attr="setdefault"
                ) as function,
                args=[key, ast.Constant()],
                keywords=[],
            ):
                parts = [name, function]
            case _:
                continue
        if isinstance(key, ast.Constant) and key.value in _BUILD_VARIABLES:
            found |= {id(part) for part in parts}
    if any(isinstance(node, ast.Name) and node.id == "os" and id(node) not in found for node in ast.walk(tree)):
        return set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            others = [alias for alias in node.names if alias.name != "os" or alias.asname]
            if not any(tuple(_of_module(alias.name)) for alias in others):
                found.add(id(node))
    return found


def _path(node: ast.Attribute, imported: Mapping[str, str]) -> tuple[str, list[str]]:
    """The name that an attribute starts from, empty where that is no name, and the dotted name that it stands for."""
    names, root = [node.attr], node.value
    while isinstance(root, ast.Attribute):
        names.insert(0, root.attr)
        root = root.value
    start = root.id if isinstance(root, ast.Name) else ""
    return start, [*imported.get(start, start).split("."), *names]


def _bindings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that imports bind, with the dotted names they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _of(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (what for alias in node.names for what in _of_module(alias.name))
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            yield f"imports from `{'.' * node.level}{node.module or ''}`"
        else:
            yield from (what for alias in node.names for what in _of_module(f"{node.module}.{alias.name}"))
    elif isinstance(node, ast.Attribute):
        yield from _of_attribute(node, imported)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in _BUILTINS or (node.id.startswith("__") and node.id not in _DUNDERS):
            yield f"uses `{node.id}`"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
        name = node.args[1] if len(node.args) > 1 else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            yield f"uses `{node.func.id}` with a name that is computed"
        else:
            yield from _of_name(name.value)


def _of_module(dotted: str) -> Iterator[str]:
    parts = dotted.split(".")
    if parts[0] not in _MODULES:
        yield f"imports `{parts[0]}`"
    else:
        for end in range(2, len(parts) + 1):
            yield from _of_path(parts[:end])


def _of_attribute(node: ast.Attribute, imported: dict[str, str]) -> Iterator[str]:
    start, path = _path(node, imported)
    if isinstance(node.ctx, (ast.Store, ast.Del)) and start not in _OWN:
        yield f"changes `{'.'.join(path)}`"
    elif start not in _OWN or node.attr.startswith("__") or not isinstance(node.value, ast.Name):
        yield from _of_path(path if start in imported else ["", *path[1:]])


def _of_path(path: list[str]) -> Iterator[str]:
    """Of a dotted name, what its last part is to be blamed for; those before it are attributes of their own."""
    tops = [place for place, name in enumerate(path) if name in ("torch", "triton")]
    path = path[tops[-1] :] if tops else path  # modules of theirs know them too
    last, dotted = path[-1], ".".join(path)
    if path[0] in ("torch", "triton") and last in _FOREIGN:
        yield f"reaches for `{dotted}`"
    if path[0] == "triton" and last in _PARTS_OF_TRITON:
        yield f"uses `{dotted}`"
    if path[0] in _MODULES and path[0] not in ("torch", "triton") and len(path) > 1:
        public = getattr(importlib.import_module(path[0]), "__all__", None)
        if public is not None and path[1] not in (*public, "abc"):
            yield f"reaches for `{'.'.join(path[:2])}`"
    if path[0] == "torch":
        if len(path) == 2 and last in _PARTS_OF_TORCH:
            yield f"uses `{dotted}`"
        if last in _FILES_OF_TORCH:
            yield f"reads or writes files with `{dotted}`"
        if last in _SETTINGS_OF_TORCH or last.startswith("set_"):
            yield f"changes a setting of the whole process with `{dotted}`"
    yield from _of_name(last)


def _of_name(name: str) -> Iterator[str]:
    if name in _ANYWHERE or (name.startswith("_") and name not in _DUNDERS):
        yield f"reaches for `{name}`"


def _cpp(text: str) -> tuple[Objection, ...]:
    code = _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    found = [
        (match.start(), f"includes `<{match[1]}>`")
        for match in _INCLUDE.finditer(code)
        if not _HEADERS.fullmatch(match[1])
    ]
    found += [(match.start(), f"uses `{match.group()}`") for match in _HOST_WORDS.finditer(code)]
    return tuple(Objection(code.count("\n", 0, at) + 1, what) for at, what in sorted(found))
