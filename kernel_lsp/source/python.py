"""Python texts as syntax trees: one error for all that cannot be read."""

import ast

_DEEPEST = 500  # of all walks over trees, the one that takes most frames a level manages some 900 in an empty stack


class NestedTooDeepError(SyntaxError):
    """The text may be Python, but not all that is done with its tree can be done."""

    def __init__(self, line: int | None = None) -> None:
        super().__init__("it is nested too deep")
        self.lineno = line


def python_ast(text: str | bytes) -> ast.Module:
    """The syntax tree of a Python text, not deeper than functions that call themselves can walk.

    Raises:
        SyntaxError: it is no Python.
        NestedTooDeepError: something stands in more than 500 others, such as the first of that many terms of a sum.
    """
    tree = _parsed(text, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def python_ast_if_any(text: str) -> ast.Module | None:
    """The syntax tree of a Python text; None where there is none (see `python_ast`)."""
    try:
        return python_ast(text)
    except SyntaxError:
        return None


def names_read(*nodes: ast.AST) -> list[str]:
    """The names that are read in nodes, each once, in their order; `x += 1` reads `x`."""
    found: dict[str, None] = {}
    for inner in (inner for node in nodes for inner in ast.walk(node)):
        match inner:
            case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)):
                found[name] = None
            case _:
                pass
    return list(found)


def expression_ast(text: str) -> ast.expr:
    """The syntax tree of a Python expression; raises what `python_ast` does."""
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
