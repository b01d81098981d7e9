"""Checks calls by which host code learns from the interpreter what only others need to know.

A format reads attributes of what it is given, so the text of the format has to be shown. A log record and a recorded
warning hold the file and the line of any caller, by which a checked call could be told from a timed one. A filter may
choose warnings by them too: so a warning of a caller's line is a text that nothing answers, neither an object of the
file's own, which would be asked for its text, nor an error.
"""

import ast
import builtins
import re
from collections.abc import Iterator

from kernel_lsp.source.static_check import policy
from kernel_lsp.source.static_check.findings import Violation, words
from kernel_lsp.source.static_check.names import Names

_FORMATS = words("format format_map")
_FIELD = re.compile(r"\{\w*((?:\.\w+|\[[^\]{}]*\])+)")
_ATTRIBUTE = re.compile(r"\.(\w+)")
_FILTERS = (("warnings", "filterwarnings"), ("warnings", "simplefilter"))
_UNCHANGED = words("dedent lstrip rstrip strip")
"""Functions that leave the fields of a text as they are."""


def telling_violations(names: Names) -> Iterator[Violation]:
    """Yield a violation for each call that tells who calls, or reads attributes whose names the text does not show."""
    texts = _Texts(names)
    of_callers = any(isinstance(node, ast.Call) and _warns_of_callers(node, names) for node in names.nodes)
    for node in names.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _FORMATS and isinstance(node.ctx, ast.Load):
            yield from _of_format(node, names, texts)
        elif isinstance(node, ast.Call):
            yield from _of_callers(node, names.path(node.func) or ())
            if _warns_of_callers(node, names) and not _is_plain_warning(node, texts):
                yield Violation(node.lineno, "warns of its caller by an object of its own")
            elif of_callers and names.path(node.func) in _FILTERS and not _only_shows(node):
                yield Violation(node.lineno, "turns warnings into errors, which tell who calls it")


def _of_format(node: ast.Attribute, names: Names, texts: "_Texts") -> Iterator[Violation]:
    above, template = names.parents.get(id(node)), node.value
    if isinstance(template, ast.Name) and template.id == "str":
        yield Violation(node.lineno, f"uses `str.{node.attr}`, which hides the text of a format")
        return
    if isinstance(template, ast.Call) and isinstance(template.func, ast.Name) and template.func.id == "super":
        return  # a formatter that goes on with its own
    if (text := texts.of(template)) is not None:
        fields = (name for field in _FIELD.findall(text) for name in _ATTRIBUTE.findall(field))
        if any(name.startswith("_") or policy.is_refused(name) for name in fields):
            yield Violation(node.lineno, "reads attributes with a format")
    elif not isinstance(above, ast.Call) or above.func is not node:
        return  # an attribute of that name
    elif not all(map(_is_plain, (*above.args, *(keyword.value for keyword in above.keywords)))):
        yield Violation(node.lineno, "formats objects by a text that it computes")


def _of_callers(node: ast.Call, path: tuple[str, ...]) -> Iterator[Violation]:
    given = {keyword.arg for keyword in node.keywords}
    if "stack_info" in given or ("stacklevel" in given and path[:1] != ("warnings",)):
        yield Violation(node.lineno, "asks a logger who calls it")
    elif path == ("warnings", "catch_warnings") and (node.args or given):
        yield Violation(node.lineno, "records warnings, which tell who calls it")


def _warns_of_callers(node: ast.Call, names: Names) -> bool:
    """Return True if a call warns of another line than its own, or makes a function that does."""
    path, given = names.path(node.func) or (), {keyword.arg for keyword in node.keywords}
    if path in (("warnings", "deprecated"), ("typing_extensions", "deprecated")):
        return True
    return path == ("warnings", "warn") and (len(node.args) > 2 or bool(given - {"category", "message"}))


def _is_plain_warning(node: ast.Call, texts: "_Texts") -> bool:
    """Return True if a warning's message is a text, and its class one of Python's."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    message = given.get("message", node.args[0] if node.args else None)
    category = given.get("category", node.args[1] if len(node.args) > 1 else None)
    if None in given or message is None or any(isinstance(argument, ast.Starred) for argument in node.args):
        return False
    is_usual = category is None or (isinstance(category, ast.Name) and texts.is_of_python(category.id))
    return is_usual and texts.is_text(message)


def _only_shows(node: ast.Call) -> bool:
    """Return True if a filter of warnings shows them or leaves them out."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    action = given.get("action", node.args[0] if node.args else None)
    return isinstance(action, ast.Constant) and action.value != "error"


def _is_plain(argument: ast.expr) -> bool:
    """Return True if an argument of a format is a text or a number, without attributes that tell anything."""
    return isinstance(argument, (ast.Constant, ast.JoinedStr))


class _Texts:
    """The texts that a file shows: constants, their sums, and names that are bound to one of them and nothing else."""

    def __init__(self, names: Names) -> None:
        self._values: dict[str, ast.expr | None] = {}
        for node, name, _ in names.bindings:
            above = names.parents.get(id(node))
            value = above.value if isinstance(above, ast.Assign) and node in above.targets else None
            self._values[name] = None if name in self._values else value
        self._values |= {node.arg: None for node in names.nodes if isinstance(node, ast.arg)}

    def is_of_python(self, name: str) -> bool:
        """Return True if a name is that of a built-in object, and the file binds it to nothing else."""
        return hasattr(builtins, name) and name not in self._values

    def is_text(self, node: ast.expr, depth: int = 8) -> bool:
        """Return True if an expression is a text, shown or not, and no object that computes one."""
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return True
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod()):
                return self.is_text(left, depth)
            case ast.IfExp(body=body, orelse=other):
                return self.is_text(body, depth) and self.is_text(other, depth)
            case ast.Call(func=ast.Attribute(value=of)):
                return self.is_text(of, depth)
            case ast.Call(func=ast.Name(id="str")):
                return self.is_of_python("str")
            case ast.Name(id=name) if depth:
                value = self._values.get(name)
                return value is not None and self.is_text(value, depth - 1)
            case _:
                return False

    def of(self, node: ast.expr, depth: int = 8) -> str | None:
        """Return the text that an expression stands for; None if it is computed."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name) if depth:
                value = self._values.get(name)
                return self.of(value, depth - 1) if value is not None else None
            case ast.BinOp(left=left, op=ast.Add(), right=right) if depth:
                parts = self.of(left, depth - 1), self.of(right, depth - 1)
                return None if None in parts else "".join(map(str, parts))
            case ast.Call(func=ast.Attribute(value=of, attr=name), args=[]) if name in _UNCHANGED and depth:
                return self.of(of, depth - 1)
            case ast.Call(func=ast.Attribute(attr="dedent") | ast.Name(id="dedent"), args=[of]) if depth:
                return self.of(of, depth - 1)
            case _:
                return None
