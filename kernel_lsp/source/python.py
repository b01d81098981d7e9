"""Parses Python text into syntax trees; everything unreadable raises SyntaxError."""

import ast
import re
from pathlib import Path

from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Span

_DEEPEST = 500  # the walk that uses most frames per level manages some 900 levels on an empty stack


class NestedTooDeepError(SyntaxError):
    """The text may be Python, but its tree is too deep for recursive functions."""

    def __init__(self, line: int | None = None) -> None:
        super().__init__("it is nested too deep")
        self.lineno = line


def python_ast(text: str | bytes) -> ast.Module:
    """Return the syntax tree of a Python text, which is not too deep for recursive functions.

    Raises:
        SyntaxError: it is not Python.
        NestedTooDeepError: its tree is more than 500 levels deep, as for a sum of that many terms.
    """
    tree = _parsed(text, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def python_ast_if_any(text: str) -> ast.Module | None:
    """Return the syntax tree of a Python text; None if it has none (see `python_ast`)."""
    try:
        return python_ast(text)
    except SyntaxError:
        return None


def names_read(*nodes: ast.AST) -> list[str]:
    """Return the names that are read in nodes, each once, in order; `x += 1` reads `x`."""
    found: dict[str, None] = {}
    for inner in (inner for node in nodes for inner in ast.walk(node)):
        match inner:
            case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)):
                found[name] = None
            case _:
                pass
    return list(found)


def expression_ast(text: str) -> ast.expr:
    """Return the syntax tree of a Python expression; raises as `python_ast`."""
    tree = _parsed(text, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parsed(text: str | bytes, mode: str) -> ast.AST:
    try:
        tree = ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise NestedTooDeepError from None
    except ValueError as error:  # such as lone surrogates
        raise SyntaxError(str(error)) from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        below = [child for node in level for child in ast.iter_child_nodes(node)]
        if not below:
            return tree
        level = below
    raise NestedTooDeepError(next((node.lineno for node in level if isinstance(node, ast.expr | ast.stmt)), None))


def is_python(path: Path) -> bool:
    """Return True if a file's suffix is that of Python."""
    return path.suffix == ".py"


def signature(kernel: Kernel) -> str:
    """Return the head of a kernel that is a Python function, without decorators and without its colon."""
    return f"def {kernel.name}({', '.join(f'{p.name}: {p.type}' if p.type else p.name for p in kernel.parameters)})"


def definitions(text: str, *, classes: bool = False) -> dict[str, Span]:
    """Return name -> span of the functions at the top of a text, with decorators; of classes too if `classes` is set.

    Empty for a text that does not parse.
    """
    tree = python_ast_if_any(text)
    if tree is None:
        return {}
    starts = [0, *(m.end() for m in re.finditer(rb"\n", text.encode()))]
    found: dict[str, Span] = {}
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) or (classes and isinstance(node, ast.ClassDef))):
            continue
        if node.end_lineno is not None and node.end_col_offset is not None:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = Span(starts[first - 1], starts[node.end_lineno - 1] + node.end_col_offset)
    return found
