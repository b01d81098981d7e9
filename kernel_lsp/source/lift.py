"""Rewrites the text of a Triton file so that it computes in float64.

Triton takes the type of what it computes from its pointers: given float64 tensors a kernel computes in float64, but
where its text names a narrower type. Those places are rewritten. Lines stay where they are.
"""

import ast
from collections.abc import Callable, Iterator

_NARROW = ("float32", "float16", "bfloat16", "half", "fp32", "fp16", "bf16")
_CASTS = ("float", "half", "bfloat16")
_MODULES = ("tl", "torch", "triton.language", "language", "gl", "ttgl")
_DECORATORS = ("jit", "triton.jit", "gluon.jit")
_PRODUCTS = ("dot", "dot_scaled")
Edit = tuple[int, int, str]
_Place = Callable[[int, int], int]


def lifted(text: str) -> str:
    """Return the file's text with every narrow floating-point type widened to float64.

    Raises:
        SyntaxError: it is not Python's.
    """
    tree = ast.parse(text)
    data, starts = text.encode(), _line_starts(text)

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    edits = sorted({*_types(tree, place), *_kernels(tree, place, data)}, reverse=True)
    for start, end, new in edits:
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _types(tree: ast.Module, place: _Place) -> Iterator[Edit]:
    """Yield the names of narrow types, and casts by methods of tensors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _NARROW and ast.unparse(node.value) in _MODULES:
            end = place(node.end_lineno or 0, node.end_col_offset or 0)
            yield end - len(node.attr), end, "float64"
        elif isinstance(node, ast.Call) and (method := _cast(node)) is not None:
            end = place(method.end_lineno or 0, method.end_col_offset or 0)
            yield end - len(method.attr), end, "double"


def _cast(call: ast.Call) -> ast.Attribute | None:
    """Return the method by which a call casts a tensor; None if it does not."""
    method = call.func
    given = call.args or call.keywords
    return method if isinstance(method, ast.Attribute) and method.attr in _CASTS and not given else None


def _kernels(tree: ast.Module, place: _Place, data: bytes) -> Iterator[Edit]:
    """Yield what a kernel needs for products to sum in float64, and for numbers that a loop carries to start so."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not any(map(_is_jit, function.decorator_list)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PRODUCTS:
                if ast.unparse(node.func.value) in _MODULES and all(k.arg != "out_dtype" for k in node.keywords):
                    end = place(node.end_lineno or 0, node.end_col_offset or 0) - 1
                    comma = "" if data[:end].rstrip().endswith(b",") else ", "
                    yield end, end, f"{comma}out_dtype=tl.float64"
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_float(node.value):
                if isinstance(node, ast.AnnAssign) and "constexpr" in ast.unparse(node.annotation):
                    continue
                start = place(node.value.lineno, node.value.col_offset)
                end = place(node.value.end_lineno or 0, node.value.end_col_offset or 0)
                yield start, end, f"tl.cast({ast.unparse(node.value)}, tl.float64)"


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).endswith(_DECORATORS)


def _is_float(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_float(node.operand)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)
    return isinstance(node, ast.Constant) and isinstance(node.value, float)
