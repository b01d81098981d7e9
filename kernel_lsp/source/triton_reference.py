"""The reference that a Triton file itself has: what its tests compare with, or a function named as the plain one."""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_lsp.source.python import names_read
from kernel_lsp.source.triton_host import Host, assignments
from kernel_lsp.source.triton_uses import dotted

_COMPARES = frozenset(("allclose", "assert_close", "assert_allclose", "assert_almost_equal"))
_PLAIN = re.compile(r"(?i)(?:^|_)(?:naive|ref|reference|torch|pytorch|native|eager|golden)(?=_|$)")
_KNOWN = frozenset(("torch", "F"))


@dataclass(frozen=True, slots=True)
class Reference:
    """An expression over the host function's arguments, and the functions of the file that it calls, as text."""

    expression: str
    functions: str = ""


def reference_in(tree: ast.Module, text: str, host: Host, given: Sequence[str]) -> Reference | None:
    """Return the reference in a file; None if it has none that can be used unchanged.

    Args:
        tree: the file.
        text: its text.
        host: the function that is compared.
        given: the names of its arguments that a call of it gets, in order.
    """
    return _compared(tree, host) or _plain(tree, text, host, given)


def _compared(tree: ast.Module, host: Host) -> Reference | None:
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        values = {name: value for node in ast.walk(scope) for name, value in assignments(node)}
        for one, other in _comparisons(scope):
            sides = [values.get(side.id, side) if isinstance(side, ast.Name) else side for side in (one, other)]
            for ours, theirs in (sides, sides[::-1]):
                if isinstance(ours, ast.Call) and dotted(ours.func) == host.call:
                    found = _in_terms_of(host, ours, theirs)
                    if found is not None:
                        return Reference(found)
    return None


def _comparisons(scope: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in _COMPARES and len(node.args) >= 2:
            yield node.args[0], node.args[1]


def _in_terms_of(host: Host, ours: ast.Call, theirs: ast.expr) -> str | None:
    """Return the expression that a test compares with, in the names of the host's parameters."""
    pairs = [*zip((taken.name for taken in host.parameters), ours.args, strict=False)]
    pairs += [(keyword.arg, keyword.value) for keyword in ours.keywords if keyword.arg]
    names = {value.id: name for name, value in pairs if isinstance(value, ast.Name)}
    if not any(isinstance(node, ast.Call | ast.BinOp) for node in ast.walk(theirs)):
        return None
    if not set(names_read(theirs)) <= names.keys() | _KNOWN or not set(names_read(theirs)) & names.keys():
        return None
    return ast.unparse(_Renamed(names).visit(ast.parse(ast.unparse(theirs), mode="eval")))


def _plain(tree: ast.Module, text: str, host: Host, given: Sequence[str]) -> Reference | None:
    """Return a function named as the host but for a word such as `naive`, which needs only torch; None without one."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not _PLAIN.search(node.name):
            continue
        if not all(ast.unparse(decorator).startswith("torch.") for decorator in node.decorator_list):
            continue
        rest = _PLAIN.sub("", node.name).strip("_")
        needed = len(node.args.args) - len(node.args.defaults)
        outside = set(names_read(*node.body)) - _local(node) - _KNOWN - set(dir(builtins))
        if rest and rest in host.call and not outside and needed <= len(given) and not node.args.kwonlyargs:
            taken = given[: len(node.args.args)]
            body = ast.get_source_segment(text, node) or ""
            named = "F = torch.nn.functional\n\n\n" if "F" in names_read(*node.body) else ""
            return Reference(f"{node.name}({', '.join(taken)})", named + body)
    return None


def _local(function: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}


class _Renamed(ast.NodeTransformer):
    """Renames names, and writes `F` as its full name."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "F" and "F" not in self._names:
            return ast.parse("torch.nn.functional", mode="eval").body
        return ast.Name(self._names.get(node.id, node.id), node.ctx)
