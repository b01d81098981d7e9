"""The element types that a Triton kernel's host function accepts, as far as its assertions tell."""

import ast
from collections.abc import Iterator

from kernel_lsp.source.triton_host import Host


def types_of(host: Host) -> dict[str, str]:
    """Return parameter -> the first type that an assertion allows, such as `torch.float16`.

    Parameters whose types have to be the same have the type of any of them.
    """
    found: dict[str, str] = {}
    alike: list[set[str]] = []
    for test in _asserted(host.function):
        owners = [name for one in (test.left, *test.comparators) if (name := _typed(one)) is not None]
        said = [name for one in test.comparators for name in _types(one)]
        if len(owners) > 1:
            alike.append(set(owners))
        elif owners and said and owners[0] in host.names:
            found.setdefault(owners[0], said[0])
    for group in alike:
        known = next((found[name] for name in sorted(group) if name in found), None)
        if known is not None:
            found |= dict.fromkeys(group & host.names, known)
    return found


def _asserted(function: ast.FunctionDef) -> Iterator[ast.Compare]:
    """Yield the comparisons by `in` and `==` that have to hold."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            for test in node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]:
                if isinstance(test, ast.Compare) and all(isinstance(op, (ast.In, ast.Eq)) for op in test.ops):
                    yield test


def _typed(node: ast.expr) -> str | None:
    """Return the name of the tensor whose type an expression is; None for any other."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="dtype"):
            return name
        case _:
            return None


def _types(node: ast.expr) -> list[str]:
    """Return the types that an expression names, itself or as the elements of a list."""
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else [node]
    return [text for one in elements if (text := ast.unparse(one)).startswith("torch.")]
