"""The parts of Triton that host code may use, and the ways to have it compile another text than a file shows.

Triton finds a kernel's text by `inspect.getsourcelines`, takes away the indentation that all lines have, and begins at
the first line that is a `def` (triton/runtime/jit.py). It evaluates names and calls in that text while it compiles, so
that another text would run code of the interpreter that nobody has read.
"""

import ast
import re
from collections.abc import Iterator

from kernel_lsp.source.static_check.findings import Violation, words
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import Names

_NOTHING = frozenset[str]()
_PARTS = {
    "JITFunction": _NOTHING,
    "compiler": words(
        "ASTSource CompilationError CompileTimeAssertionFailure CompiledKernel UnsupportedLanguageConstruct compile "
        "compiler errors"
    ),
    "compiler.ASTSource": _NOTHING,
    "compiler.CompiledKernel": _NOTHING,
    "compiler.compiler": words("ASTSource CompiledKernel compile triton_key"),
    "compiler.compiler.ASTSource": _NOTHING,
    "compiler.compiler.CompiledKernel": _NOTHING,
    "runtime": words(
        "Autotuner Config Heuristics InterpreterError JITFunction KernelInterface MockTensor OutOfResources "
        "TensorWrapper autotune autotuner driver errors heuristics jit reinterpret"
    ),
    "runtime.JITFunction": _NOTHING,
    "runtime.autotuner": words("Autotuner Config Heuristics OutOfResources autotune heuristics"),
    "runtime.driver": words("active driver"),
    "runtime.driver.active": words(
        "clear_cache get_active_torch_device get_benchmarker get_current_device get_current_stream get_current_target "
        "get_empty_cache_for_benchmark map_python_to_cpp_type utils"
    ),
    "runtime.driver.active.utils": words("get_device_properties"),
    "runtime.jit": words("JITFunction KernelInterface MockTensor TensorWrapper constexpr_function jit reinterpret"),
    "runtime.jit.JITFunction": _NOTHING,
    "tools": words("experimental_descriptor mxfp ragged_tma tensor_descriptor"),
}
"""Parts of Triton that compile, launch and keep files -> their members that are allowed."""
_DRIVER = ("triton", "runtime", "driver")
_ELSEWHERE = words(
    "backends build compile_module_from_src get_cache_manager get_dump_manager get_override_manager interpreter "
    "profiler set_gpu_clock"
)
"""Names that are refused wherever they stand."""
_DERIVED_FROM = words("Autotuner Config Heuristics KernelInterface")
_A_FUNCTION = re.compile(r"^([ \t]*)def\s+\w+\s*\(", re.MULTILINE)


def violation_to_triton(path: tuple[str, ...]) -> str | None:
    """Return the violation of using a member of Triton, as the rest of a sentence; None if its part allows it."""
    if path[-1] in _ELSEWHERE:
        return f"uses `{'.'.join(path)}`"
    parts = path[1:]
    if parts[:3] == ("runtime", "driver", "driver"):  # the object is a member of the module of its name
        parts = ("runtime", "driver", *parts[3:])
    for end in range(1, len(parts)):
        allowed = _PARTS.get(".".join(parts[:end]))
        if allowed is not None and parts[end] not in allowed:
            return f"uses `{'.'.join(path)}`"
    return None


def is_of_the_driver(path: tuple[str, ...]) -> bool:
    """Return True for the objects by which Triton loads and launches machine code."""
    return path[:3] == _DRIVER and path[-1] in ("active", "driver", "utils")


def triton_violations(names: Names, methods: Methods) -> Iterator[Violation]:
    """Yield a violation for each way to have Triton compile or launch another text than the file shows."""
    for node in names.nodes:
        if isinstance(node, ast.ClassDef):
            yield from _of_bases(node, names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _of_texts(node)
        elif isinstance(node, ast.Attribute) and node.attr == "parse" and names.path(node) is None:
            yield from _of_parsing(node, names, methods)
        elif isinstance(node, ast.keyword) and node.arg == "ir_override":
            yield Violation(node.lineno, "has Triton compile a file with `ir_override`")
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _of_compiled_code(node, methods)


def _of_compiled_code(node: ast.Subscript, methods: Methods) -> Iterator[Violation]:
    """Yield a violation where an item of a compiled kernel's `asm`, its machine code among them, is replaced."""
    of = node.value
    if isinstance(of, ast.Attribute) and of.attr == "asm" and not methods.is_own(of.value):
        yield Violation(node.lineno, f"changes `{ast.unparse(of)}`")


def _of_bases(node: ast.ClassDef, names: Names) -> Iterator[Violation]:
    """Yield a violation where a class derives from one of those by which Triton reads, compiles or launches."""
    for path in filter(None, map(names.path, node.bases)):
        usual = path[-1] in _DERIVED_FROM or path[-1].endswith(("Error", "OutOfResources"))
        if path[0] == "triton" and not usual and not {"language", "experimental"} & {*path[1:2]}:
            yield Violation(node.lineno, f"derives from `{'.'.join(path)}`")


def _of_texts(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    """Yield a violation for each text in which Triton would find a function before the one that the file defines."""
    above = [(part, node.col_offset + 1) for decorator in node.decorator_list for part in ast.walk(decorator)]
    inside = [(part, node.col_offset) for statement in node.body for part in ast.walk(statement)]
    for part, indented in (*above, *inside):
        text = part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""
        if any(len(space) < indented for space in _A_FUNCTION.findall(text)):
            yield Violation(node.lineno, "has a text that may be read for the function around it")


def _of_parsing(node: ast.Attribute, names: Names, methods: Methods) -> Iterator[Violation]:
    """Yield a violation where a kernel is asked for its syntax tree, which compilers would take changed."""
    above = names.parents.get(id(node))
    given = isinstance(above, ast.Call) and above.func is node and (above.args or above.keywords)
    of_a_class = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    if not (methods.is_own(node.value) or methods.is_own_instance(node.value)) and (not given or of_a_class):
        yield Violation(node.lineno, f"reaches for `{ast.unparse(node)}`")
