"""Checks how Python host code makes classes, and objects that have attributes of given names.

Some attributes describe memory to numpy and torch by its address. So the text has to show the names of all attributes:
classes are written as classes, namespaces get keywords, enumerations get constants. Metaclasses, and classes of unknown
objects, could make any other class, so they are not passed on.
"""

import ast
import builtins
from collections.abc import Iterator
from typing import Literal

from kernel_lsp.source.static_check.findings import Violation, words
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import Names

Kind = Literal["namespace", "metaclass", "enumeration"]
_KINDS: dict[tuple[str, ...], Kind] = {
    ("types", "SimpleNamespace"): "namespace",
    ("argparse", "Namespace"): "namespace",
    ("abc", "ABCMeta"): "metaclass",
    **{("enum", name): "metaclass" for name in ("EnumMeta", "EnumType")},
    **{("enum", name): "enumeration" for name in ("Enum", "Flag", "IntEnum", "IntFlag", "ReprEnum", "StrEnum")},
}
_OF_A_LAYER = words("_buffers _modules _parameters")
"""The dictionaries behind attributes of a layer."""
_SHOWING = (ast.Attribute, ast.Compare, ast.FormattedValue)
"""What may be done with the class of an object: its name is read, it is compared, it is shown."""


def maker_violations(names: Names, methods: Methods) -> Iterator[Violation]:
    """Yield a violation for each class, or object with attributes, that is made of names that are not shown."""
    makers = _Makers(names)
    bound = {node.attr for node in names.nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in names.nodes:
        if isinstance(node, ast.Call):
            yield from makers.of_call(node)
            yield from (_of_record(keyword) for keyword in node.keywords if _fills_a_record(keyword))
            if isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
                yield from _of_type(node, names, methods)
        elif isinstance(node, ast.ClassDef):
            yield from makers.of_class(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield from makers.of_use(node)
            if isinstance(node, ast.Attribute) and node.attr in _OF_A_LAYER and node.attr not in bound:
                yield from _of_layer(node, names)


class _Makers:
    """The imported classes that make others or take names of attributes, and the file's own that derive from them."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._own: dict[str, Kind] = {}
        self._classes = [node for node in names.nodes if isinstance(node, ast.ClassDef)]
        before = -1
        while before < len(self._own):
            before = len(self._own)
            for node in self._classes:
                for base in node.bases:
                    if (kind := self._kind(base)) is not None:
                        self._own[node.name] = kind
        self._filled = {node.name for node in self._classes if any(isinstance(part, ast.Assign) for part in node.body)}
        self._constructed = {
            node.name
            for node in self._classes
            if any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
        }

    def of_call(self, node: ast.Call) -> Iterator[Violation]:
        """Yield a violation if a call of a maker gives names that the text does not show."""
        kind = self._kind(node.func)
        computed = any(isinstance(argument, ast.Starred) for argument in node.args)
        computed = computed or any(keyword.arg is None for keyword in node.keywords)
        if kind == "metaclass":
            yield Violation(node.lineno, f"makes a class with `{ast.unparse(node.func)}`")
        elif kind == "namespace":
            own = isinstance(node.func, ast.Name) and node.func.id in self._constructed
            if computed or (node.args and not own):
                yield Violation(node.lineno, "gives an object attributes by computed names")
        elif kind == "enumeration" and (computed or len(node.args) > 1 or node.keywords):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(keyword.arg == "module" for keyword in node.keywords) or not all(map(_is_shown, given)):
                yield Violation(node.lineno, "makes an enumeration of computed names")

    def of_class(self, node: ast.ClassDef) -> Iterator[Violation]:
        """Yield a violation if a class is a metaclass."""
        for base in node.bases:
            if self._kind(base) == "metaclass" or (isinstance(base, ast.Name) and base.id == "type"):
                yield Violation(node.lineno, "defines a metaclass")

    def of_use(self, node: ast.Name | ast.Attribute) -> Iterator[Violation]:
        """Yield a violation if a maker is passed on, so that its calls cannot be traced."""
        kind, above = self._kind(node), self._names.parents.get(id(node))
        if kind is None or (isinstance(node, ast.Name) and node.id in self._filled):
            return
        chosen = isinstance(above, ast.keyword) and above.arg == "metaclass"
        called = isinstance(above, ast.Attribute) and above.attr == "__call__"
        if called or not (chosen or self._names.is_plain(node)):
            yield Violation(node.lineno, f"hands round `{ast.unparse(node)}`")

    def _kind(self, node: ast.AST) -> Kind | None:
        if isinstance(node, ast.Name) and node.id in self._own:
            return self._own[node.id]
        path = self._names.path(node)
        return _KINDS.get(path) if path is not None else None


def _is_shown(node: ast.expr) -> bool:
    """Return True if an expression is made of constants that are no special names."""
    return all(
        isinstance(part, (ast.Tuple, ast.List, ast.Dict, ast.Load, ast.UnaryOp, ast.USub))
        or (isinstance(part, ast.Constant) and "__" not in str(part.value))
        for part in ast.walk(node)
    )


def _of_type(node: ast.Call, names: Names, methods: Methods) -> Iterator[Violation]:
    """Yield a violation if the class of an object is called as only a metaclass or an inner one is, or passed on."""
    above, given = names.parents.get(id(node)), node.args[0]
    if isinstance(above, ast.Call) and above.func is node:
        several = len(above.args) > 1 or above.keywords or any(isinstance(one, ast.Starred) for one in above.args)
        if several and not methods.is_own_instance_here(given):
            yield Violation(node.lineno, "calls the class of an object with several arguments")
    elif isinstance(above, ast.ClassDef):
        yield Violation(node.lineno, "derives from the class of an object")
    elif isinstance(given, ast.Constant) or methods.is_own_instance_here(given):
        return  # a class that holds nothing of others, and the file's own
    elif not (isinstance(above, _SHOWING) or names.is_plain(node) or _is_looked_up(node, above, names)):
        yield Violation(node.lineno, "hands round the class of an object")


def _fills_a_record(keyword: ast.keyword) -> bool:
    """Return True if an argument gives a record of `logging` attributes of names that the text does not show."""
    return keyword.arg == "extra" and not (
        isinstance(keyword.value, ast.Dict) and all(key is not None and _is_shown(key) for key in keyword.value.keys)
    )


def _of_record(keyword: ast.keyword) -> Violation:
    return Violation(keyword.value.lineno, "gives a record attributes by computed names")


def _of_layer(node: ast.Attribute, names: Names) -> Iterator[Violation]:
    """Yield a violation if a layer's attributes are reached by a dictionary, other than to read them."""
    above = names.parents.get(id(node))
    match above:
        case ast.Subscript():
            allowed = isinstance(above.ctx, ast.Load) or _is_shown(above.slice)
        case ast.Attribute(attr=name):
            allowed = name in ("get", "items", "keys", "values")
        case _:
            allowed = isinstance(above, (ast.Compare, ast.For, ast.comprehension))
    if not allowed:
        yield Violation(node.lineno, f"changes `{ast.unparse(node)}`")


def _is_looked_up(node: ast.Call, above: ast.AST | None, names: Names) -> bool:
    """Return True if the class of an object is only a key, or part of a message."""
    match above:
        case ast.Subscript():
            return above.slice is node
        case ast.Call(func=ast.Attribute(attr="format" | "get")):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in ("hash", "id", "print", "repr", "str") or _is_an_exception(name)
        case ast.Tuple():
            return isinstance(names.parents.get(id(above)), (ast.BinOp, ast.Expr))
        case ast.BinOp(op=ast.Mod()):
            return above.right is node
        case _:
            return False


def _is_an_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)
