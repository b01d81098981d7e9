"""Compare Python programs by their syntax."""

import ast
import re
from collections.abc import Iterator
from symtable import SymbolTable, symtable

from kernel_lsp.source.python import python_ast

_MODEL = re.compile(r"\bModel(New)?\b")
_OF_PROBLEM = ("get_inputs", "get_init_inputs")


def same_python(one: str, other: str) -> bool:
    """Return True if two Python texts differ in comments and layout only."""
    try:
        return ast.dump(python_ast(one)) == ast.dump(python_ast(other))
    except SyntaxError:
        return one == other


def same_model(one: str, other: str) -> bool:
    """Return True if two KernelBench files define the same model, whether it is called `Model` or `ModelNew`.

    Parts that only a problem needs (inputs, and constants used nowhere else) and docstrings are ignored.
    """
    try:
        return _of_model(one) == _of_model(other)
    except (SyntaxError, RecursionError):  # the latter where a tree is too deep to be written out
        return one == other


def _of_model(text: str) -> list[str]:
    tree = python_ast(_MODEL.sub("Model", text))
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    kept = [node for node in tree.body if not isinstance(node, ast.FunctionDef) or node.name not in _OF_PROBLEM]
    used = set(_globals(symtable(ast.unparse(ast.Module(kept, [])), "", "exec")))
    return [ast.dump(node) for node in kept if not _is_unused(node, used)]


def _globals(table: SymbolTable) -> Iterator[str]:
    """Yield the names of globals that a scope and its inner scopes use."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _is_unused(node: ast.stmt, used: set[str]) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Assign):
        return False
    names = {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return not names & used
