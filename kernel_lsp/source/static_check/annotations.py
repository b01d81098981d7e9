"""Checks annotations of functions that torch evaluates: they may hide code in a string.

`torch.library.custom_op` and `triton_op` make a schema of a function's annotations, and evaluate those that are strings
(torch/_library/infer_schema.py); `torch.jit` does so with some.
"""

import ast
import builtins
import re
from collections.abc import Iterator

from kernel_lsp.source.static_check.findings import Violation
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import Names

_TYPE = re.compile(r"[\w\s.,|\[\]\"']*")
_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp, ast.BitOr, ast.Load)


def annotation_violations(names: Names, methods: Methods) -> Iterator[Violation]:
    """Yield a violation for each annotation that is more than a type, in a file that has torch evaluate them."""
    paths = (names.path(node) or () for node in names.nodes if isinstance(node, (ast.Name, ast.Attribute)))
    if not any(path[:2] in (("torch", "library"), ("torch", "jit")) for path in paths):
        return
    for note in names.annotations:
        if not all(_is_of_a_type(part, names, methods) for part in ast.walk(note)):
            yield Violation(note.lineno, "computes an annotation that torch evaluates")


def _is_of_a_type(node: ast.AST, names: Names, methods: Methods) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return _TYPE.fullmatch(text) is not None
        case ast.Name(id=name):
            return hasattr(builtins, name) or names.is_imported(name) or methods.is_own_class(node)
        case _:
            return isinstance(node, _TYPES)
