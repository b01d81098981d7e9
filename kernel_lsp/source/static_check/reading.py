"""Checks what Python host code imports, reads, calls and passes on."""

import ast
import re
import sys
from collections.abc import Iterator, Set
from typing import Literal

from kernel_lsp.source.static_check import policy
from kernel_lsp.source.static_check.findings import Finding, Note, Violation, words
from kernel_lsp.source.static_check.methods import Methods
from kernel_lsp.source.static_check.names import Names
from kernel_lsp.source.static_check.triton_parts import is_of_the_driver

Origin = Literal["own", "imported", "unknown"]
"""Origin of an object whose attribute is read."""

_FORMAT = re.compile(r"\{\w*(?:\.\w+|\[[^\]{}]*\])*\.__\w+")
_METACLASSES = (("abc", "ABCMeta"), ("enum", "EnumMeta"), ("enum", "EnumType"))
_READING_VARIABLES = words("copy get items keys values")
_ADDING_TO_PATH = words("append extend insert")
_NAMING = words("add_argument set_defaults")
_PARSING = words("parse_args parse_intermixed_args parse_known_args")
_COMPILER_OPTION = re.compile(r"--?(?:wrapper|fplugin\b.*|i?plugindir\b.*|specs\b.*|ccbin\b.*|compiler-bindir\b.*)")
_OF_A_PROGRAM = re.compile(r"cxx|compiler|path|command")
"""In an option of torch's compiler: it names a program to run."""
_SPECIAL = re.compile(r"-*(__\w+__)")
_NAMED_BY_TEXT = policy.DUNDERS | policy.DEFINED | {"__main__"}
_NAMESPACES_OF_TORCH = words("_c10d_functional aten c10d inductor mkldnn prim prims profiler quantized rngprims")
_SAVING = words("save save_to_buffer")
_OF_SPARSE = words("_indices ccol_indices col_indices crow_indices indices row_indices")
_STORAGES = words("_typed_storage storage untyped_storage")
_OF_A_STORAGE = words("data_ptr device element_size is_cuda is_pinned nbytes size")
_MATCHED_WHOLE = words("bool bytearray bytes dict float frozenset int list set str tuple")
_OF_A_CLASS = words("__module__ __name__ __qualname__")


class Reading:
    """The rules for everything but changes."""

    def __init__(self, names: Names, methods: Methods, *, builds: bool, beside_device_code: bool) -> None:
        self._names, self._methods = names, methods
        self._builds, self._beside_device_code = builds, beside_device_code
        self._functions = {
            node.name for node in names.nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        self._scripts = any((names.path(node) or ())[:2] == ("torch", "jit") for node in names.nodes)
        self._bound = {name for _, name, _ in names.bindings}
        self._bound |= {node.arg for node in names.nodes if isinstance(node, ast.arg)}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of each node of the tree."""
        for _, name, line in self._names.bindings:
            if name.startswith("__") and name.endswith("__") and name not in policy.DEFINED:
                yield Violation(line, f"defines `{name}`")  # other code relies on its meaning
        for node in self._names.nodes:
            yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Finding]:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield from self._of_import(node.lineno, tuple(alias.name.split(".")))
            case ast.ImportFrom():
                yield from self._of_import_from(node)
            case ast.Attribute(ctx=ast.Load()):
                yield from self._of_attribute(node)
            case ast.Name(ctx=ast.Load()):
                yield from self._of_name(node)
            case ast.Call():
                yield from self._of_call(node)
            case ast.ClassDef():
                yield from self._of_class(node)
            case ast.MatchClass():
                known = _is_matched_whole(node.cls, self._bound) or self._methods.is_record(node.cls)
                if node.patterns and not known:
                    yield Violation(node.lineno, "takes attributes by their place in a pattern")
                for name in node.kwd_attrs:
                    yield from self._of_attribute_named(node, name, "unknown")
            case ast.Constant(value=str(text)) if _FORMAT.search(text):
                yield Violation(node.lineno, "reads attributes with a format")
            case ast.Constant(value=str(text)) if (name := _special_name(text)) is not None:
                yield Violation(node.lineno, f"names `{name}` in a text")
            case ast.Constant(value=str(text)) if _COMPILER_OPTION.fullmatch(text):
                yield Violation(node.lineno, f"has the compiler run other programs with `{text}`")
            case _:
                pass

    def _of_import(self, line: int, path: tuple[str, ...]) -> Iterator[Finding]:
        if said := policy.violation_to_module(path[0]):
            yield Violation(line, said)
            return
        if path[0] in policy.TOLD_MODULES:
            yield Note(line, f"imports `{path[0]}`")
        for end in range(2, len(path) + 1):
            yield from (found := list(self._of_member(line, path[:end])))
            if not found and policy.is_refused(path[end - 1], path[:end]) and path[end - 1] != "wraps":
                yield Violation(line, f"reaches for `{path[end - 1]}`")
            elif not found:
                yield from self._of_private(line, path[end - 1], "imported")

    def _of_import_from(self, node: ast.ImportFrom) -> Iterator[Finding]:
        if node.level:
            yield Violation(node.lineno, f"imports from `{'.' * node.level}{node.module or ''}`")
            return
        for alias in node.names:
            within = tuple((node.module or "").split("."))
            yield from self._of_import(node.lineno, within if alias.name == "*" else (*within, alias.name))
            if alias.name == "*" and within[0] not in ("math", "typing"):
                yield Violation(node.lineno, f"imports every name of `{node.module}`")

    def _of_member(self, line: int, path: tuple[str, ...]) -> Iterator[Finding]:
        if said := policy.violation_to_member(path, builds=self._builds):
            yield Violation(line, said)
        elif said := policy.note_on_member(path):
            yield Note(line, said)

    def _of_attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        path = self._names.path(node)
        if path is not None:
            yield from (found := list(self._of_member(node.lineno, path)))
            yield from self._handed(node, path)
            if not found:
                yield from self._of_attribute_named(node, node.attr, "imported")
            return
        of = node.value
        is_own = self._methods.is_own(of) or self._methods.is_own_instance(of) or self._methods.is_own_class(of)
        yield from self._of_attribute_named(node, node.attr, "own" if is_own else "unknown")

    def _of_attribute_named(
        self, node: ast.Attribute | ast.Call | ast.MatchClass, name: str, of: Origin
    ) -> Iterator[Finding]:
        above = self._names.parents.get(id(node))
        if policy.is_refused(name, self._names.path(node)):
            call = above if isinstance(above, ast.Call) and above.func is node else None
            if not (call is not None and self._is_usual(name, call)):
                yield Violation(node.lineno, f"reaches for `{name}`")
        elif name == "__class__":
            if not (isinstance(above, ast.Attribute) and above.attr in _OF_A_CLASS):
                yield Violation(node.lineno, "reaches for `__class__`")
        elif name == "__init__" and of != "own" and not self._is_of_a_base(above, node):
            yield Violation(node.lineno, "constructs an object of others anew with `__init__`")
        elif name == "detach" and of != "own" and self._is_of_a_stream(node):
            yield Violation(node.lineno, "reaches for the file behind a stream")
        elif name in _SAVING and of != "own" and self._scripts:
            yield Violation(node.lineno, f"writes a file with `{name}`")
        elif name in _STORAGES and isinstance(above, ast.Call) and above.func is node and not self._is_measured(above):
            yield Violation(node.lineno, f"hands round the memory behind `{name}`")
        elif name in _NAMING and not (isinstance(above, ast.Call) and above.func is node):
            yield Violation(node.lineno, f"hands round `{name}`")
        elif self._is_private_call(above, node, name, of):
            yield Violation(node.lineno, f"calls the private `{name}`")
        else:
            yield from self._of_private(node.lineno, name, of)

    def _is_of_a_base(self, above: ast.AST | None, node: ast.AST) -> bool:
        """Return True if a constructor is that of `super()`, `object`, or of an imported class that is called there."""
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                return True
            case ast.Attribute(value=ast.Name(id="object")) if "object" not in self._bound:
                return True
            case _:
                return self._names.path(node) is not None and isinstance(above, ast.Call) and above.func is node

    def _is_of_a_stream(self, node: ast.AST) -> bool:
        """Return True if an attribute is that of a `buffer`, as the file behind standard output is kept."""
        of = node.value if isinstance(node, ast.Attribute) else None
        return isinstance(of, ast.Attribute) and of.attr == "buffer" and not self._methods.is_own(of.value)

    def _is_of_a_tensor(self, call: ast.Call) -> bool:
        """Return True if a method without arguments may be that of a tensor: it is no class's of the file."""
        named = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        return not call.args and not call.keywords and named not in self._functions

    def _is_measured(self, call: ast.Call) -> bool:
        """Return True if only the size or the place of a tensor's memory is read: it could be resized unset."""
        above = self._names.parents.get(id(call))
        return isinstance(above, ast.Attribute) and above.attr in _OF_A_STORAGE

    def _is_usual(self, name: str, call: ast.Call) -> bool:
        """Return True if the call makes a refused name harmless: `net.modules()`, a decorator `@functools.wraps(f)`."""
        above = self._names.parents.get(id(call))
        if name == "wraps" and isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return call in above.decorator_list and len(call.args) == 1 and not call.keywords
        return name == "modules"

    def _is_private_call(self, above: ast.AST | None, node: ast.AST, name: str, of: Origin) -> bool:
        """Return True if a private method of others is given arguments: one of torch's takes any address for memory."""
        path = self._names.path(node)
        of_a_class = of == "unknown" or (path is not None and any(part[:1].isupper() for part in path[:-1]))
        called = isinstance(above, ast.Call) and above.func is node and bool(above.args or above.keywords)
        private = name.startswith("_") and not name.endswith("__") and name not in self._functions
        return private and of_a_class and called

    def _of_private(self, line: int, name: str, of: Origin) -> Iterator[Finding]:
        """Yield findings about a private name: such names may change, and lead into other code."""
        if name.startswith("__") and name.endswith("__"):
            if name not in policy.DUNDERS:
                yield Violation(line, f"reaches for `{name}`")
        elif name.startswith("_") and of != "own":
            is_module = name == "_C" or {name, name[1:]} & sys.stdlib_module_names
            refused = (is_module and of == "unknown") or policy.is_refused(name[1:]) or name in sys.stdlib_module_names
            refused = refused or (of == "unknown" and self._beside_device_code)
            yield (Violation if refused else Note)(line, f"reaches for `{name}`")

    def _of_name(self, node: ast.Name) -> Iterator[Finding]:
        above = self._names.parents.get(id(node))
        if (path := self._names.path(node)) is not None:
            yield from self._handed(node, path)
        elif node.id in ("setattr", "delattr") and isinstance(above, ast.Call) and self._sets_its_own(above):
            return
        elif self._is_refused_builtin(node.id):
            yield Violation(node.lineno, f"uses `{node.id}`")
        elif node.id in ("getattr", "type") and not self._names.is_plain(node):
            yield Violation(node.lineno, f"hands round `{node.id}`")

    def _is_refused_builtin(self, name: str) -> bool:
        if name.startswith("__"):
            return name not in policy.DUNDERS
        return name in policy.BUILTINS or (name in policy.OF_SITE and name not in self._bound)

    def _handed(self, node: ast.expr, path: tuple[str, ...]) -> Iterator[Finding]:
        """Yield a finding if a module or shared object is passed on, so that its uses cannot be traced."""
        usual = (ast.Subscript, ast.Compare)
        is_environment = path == ("os", "environ") and not isinstance(self._names.parents.get(id(node)), usual)
        refused = is_environment or policy.is_module(path) or policy.leads_to_a_shared_class(path)
        is_given = not isinstance(self._names.parents.get(id(node)), ast.Expr)
        refused = refused or (is_of_the_driver(path) and is_given)
        if refused and not self._names.is_plain(node):
            yield Violation(node.lineno, f"hands round `{'.'.join(path)}`")

    def _sets_its_own(self, call: ast.Call) -> bool:
        """Return True if `setattr` or `delattr` is called on the object of the enclosing method."""
        if not call.args or not self._methods.is_own_instance_here(call.args[0]):
            return False
        return len(call.args) > 1 and _shows_its_beginning(call.args[1])

    def _of_call(self, node: ast.Call) -> Iterator[Finding]:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function in ("getattr", "hasattr") and len(node.args) > 1:
            yield from self._of_getattr(node, function)
        elif function == "type" and (len(node.args) != 1 or isinstance(node.args[0], ast.Starred)):
            yield Violation(node.lineno, "makes a class with `type`")
        path = self._names.path(node.func) or ()
        yield from self._of_keywords(node, path)
        if path[:2] == ("os", "environ") and len(path) == 3 and path[2] not in _READING_VARIABLES:
            name = node.args[0] if node.args else None
            if not (
                path[2] == "setdefault"
                and isinstance(name, ast.Constant)
                and policy.sets_a_harmless_variable(name.value)
            ):
                yield Violation(node.lineno, "changes the environment of the whole process")
        elif path[:2] == ("sys", "path") and len(path) == 3:
            yield (Note if path[2] in _ADDING_TO_PATH else Violation)(node.lineno, "changes `sys.path`")
        elif path[-1:] == ("__init__",) and not (node.args and self._methods.is_own(node.args[0])):
            yield Violation(node.lineno, f"calls `{'.'.join(path)}` on what is no object of its own")
        elif path == ("torch", "compile") and not all(map(_is_an_option, node.keywords)):
            yield Violation(node.lineno, "has torch compile by code of its own")
        elif path[:2] == ("torch", "library") and node.args and _is_of_torch(node.args[0]):
            yield Violation(node.lineno, "registers something for an operator of torch")
        elif path == ("logging", "basicConfig") and any(keyword.arg in ("filename", None) for keyword in node.keywords):
            yield Violation(node.lineno, "writes a file with `logging.basicConfig`")

        if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_SPARSE and self._is_of_a_tensor(node):
            yield Violation(node.lineno, f"reaches for the `{node.func.attr}` of a sparse tensor, which torch trusts")
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PARSING and _fills_an_object(node):
            yield Violation(node.lineno, f"has `{node.func.attr}` set attributes of an object")

    def _of_keywords(self, node: ast.Call, path: tuple[str, ...]) -> Iterator[Finding]:
        """Yield a finding where a call gives an object attributes whose names the text does not show, or special ones.

        Some describe memory to numpy and torch, by its address.
        """
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        for keyword in node.keywords:
            if keyword.arg is None and (path == ("copy", "replace") or called == "set_defaults"):
                yield Violation(node.lineno, "gives an object attributes by computed names")
            elif path[:3] == ("torch", "utils", "checkpoint") and keyword.arg in ("debug", None):
                yield Violation(node.lineno, "has torch keep the stacks of a checkpoint, which tell who calls")
            elif keyword.arg == "refcheck" or (keyword.arg is None and called == "resize"):
                yield Violation(node.lineno, "resizes memory without a look at who else holds it")
            elif keyword.arg == "fromfile_prefix_chars":
                yield Violation(node.lineno, "reads options from files")
            elif keyword.arg is not None and _special_name(keyword.arg) is not None:
                yield Violation(node.lineno, f"defines `{keyword.arg}`")
        named = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dest")]
        if called == "add_argument" and not all(isinstance(name, ast.Constant) for name in named):
            yield Violation(node.lineno, "gives an object attributes by computed names")

    def _of_getattr(self, node: ast.Call, function: str) -> Iterator[Finding]:
        of, name = node.args[0], node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            path = self._names.path(of)
            if path is not None:
                yield from self._of_member(node.lineno, (*path, name.value))
                if function == "getattr" and policy.is_module((*path, name.value)):
                    yield Violation(node.lineno, f"hands round `{'.'.join(path)}.{name.value}`")
            origin: Origin = "imported" if path else "own" if self._methods.is_own(of) else "unknown"
            yield from self._of_attribute_named(node, name.value, origin)
        elif function == "getattr" and not self._methods.is_own_instance_here(of):
            yield Violation(node.lineno, "uses `getattr` with a name that is computed")

    def _of_class(self, node: ast.ClassDef) -> Iterator[Finding]:
        for keyword in node.keywords:
            if keyword.arg is None or (
                keyword.arg == "metaclass" and self._names.path(keyword.value) not in _METACLASSES
            ):
                yield Violation(node.lineno, "chooses a metaclass")


def _special_name(text: str) -> str | None:
    """Return the name in a text that is a special one, perhaps as a command line's option; None for others."""
    found = _SPECIAL.fullmatch(text)
    return found[1] if found is not None and found[1] not in _NAMED_BY_TEXT else None


def _shows_its_beginning(name: ast.expr) -> bool:
    """Return True if a name begins with a text that no special name, such as `__call__`, begins with."""
    match name:
        case ast.Constant(value=str(text)):
            return bool(text) and not text.startswith("__")
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return not text.startswith("_")
        case ast.BinOp(left=ast.Constant(value=str(text))):
            return bool(text) and not text.startswith(("_", "%"))
        case _:
            return False


def _is_matched_whole(kind: ast.expr, bound: Set[str]) -> bool:
    """Return True for a built-in class of which a pattern takes the object itself, not its attributes."""
    return isinstance(kind, ast.Name) and kind.id in _MATCHED_WHOLE and kind.id not in bound


def _is_an_option(keyword: ast.keyword) -> bool:
    """Return True if an argument of `torch.compile` chooses neither a backend nor a compiler that the text hides."""
    match keyword:
        case ast.keyword(arg=None):
            return False
        case ast.keyword(arg="backend"):
            return isinstance(keyword.value, ast.Constant)
        case ast.keyword(arg="options"):
            return (
                isinstance(keyword.value, ast.Dict)
                and all(
                    isinstance(name, ast.Constant) and not _OF_A_PROGRAM.search(str(name.value))
                    for name in keyword.value.keys
                )
                and all(isinstance(value, ast.Constant) for value in keyword.value.values)
            )
        case _:
            return True


def _is_of_torch(operator: ast.expr) -> bool:
    """Return True if an operator may be one of torch's own: by its name, or by a name that is computed."""
    if isinstance(operator, ast.Constant):
        return str(operator.value).partition("::")[0] in _NAMESPACES_OF_TORCH
    return not isinstance(operator, ast.Name)


def _fills_an_object(call: ast.Call) -> bool:
    return len(call.args) > 1 or any(keyword.arg in ("namespace", None) for keyword in call.keywords)
