"""Determines which names are a method's own object, and finds calls that pass another object as `self`.

A method takes any object for `self` if it is called through its class, so `self.x = 1` and `self._x` are harmless only
if the class's methods are called on its own objects.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from kernel_lsp.source.static_check.findings import Violation, words
from kernel_lsp.source.static_check.names import Names, parameters

OWN = words("self cls ctx")
_KEEPING = words(
    "abstractmethod autocast cache cached_property classmethod compile contextmanager custom_bwd custom_fwd "
    "disable enable_grad export final ignore inference_mode lru_cache no_grad once_differentiable override "
    "property setter staticmethod unused"
)
"""Decorators that call a method only with the objects of its callers."""
_OF_FUNCTIONS = words("forward backward setup_context jvp vmap")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Methods:
    """The methods of a file's classes, and the expressions that are their own objects.

    Attributes:
        classes: the file's classes, by name.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        nodes = names.nodes
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self._defined = _only_defined(names)
        self._nodes = nodes
        imports = (ast.Import, ast.ImportFrom)
        self._bound = {name for node, name, _ in names.bindings if not isinstance(node, imports)}
        self._owners = {id(part): node for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
        self._own: dict[int, str] = {}
        self._class_of: dict[int, ast.ClassDef] = {}
        self._beside_ctx: set[int] = set()
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (name := self._object_of(node)):
                self._own |= {id(part): _kind(node) for part in _within(node, name)}
                self._class_of |= {id(part): self._owners[id(node)] for part in _within(node, name)}
                self._beside_ctx |= {id(part) for part in ast.walk(node)} if name == "ctx" else set()
        self._bound_supers = {id(part) for node in nodes for part in self._where_super_is_bound(node)}
        self._sensitive = self._sensitive_methods()
        found = [(name, node) for name, methods in self._sensitive.items() for node in methods]
        self._computing = {name for name, node in found if any(map(self._gets_any, ast.walk(node)))}
        self._made = _made(names, self.classes)

    def is_own(self, node: ast.AST) -> bool:
        """Return True if an expression is the object of the enclosing method, or its class."""
        return id(node) in self._own

    def is_own_instance_here(self, node: ast.AST) -> bool:
        """Return True if an expression is the object of the enclosing method, and not its class."""
        return self._own.get(id(node)) in ("instance", "static")

    def is_own_class(self, node: ast.AST) -> bool:
        """Return True if an expression is the name of a class of the file and of nothing else."""
        return isinstance(node, ast.Name) and node.id in self._defined and node.id in self.classes

    def is_own_function(self, node: ast.AST) -> bool:
        """Return True if an expression is the name of a function of the file and of nothing else."""
        return isinstance(node, ast.Name) and node.id in self._defined

    def is_own_instance(self, node: ast.AST) -> bool:
        """Return True if an expression is an instance of one of the file's own classes."""
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in self.classes
        return isinstance(node, ast.Name) and node.id in self._made

    def is_record(self, node: ast.AST) -> bool:
        """Return True if an expression is a class of the file of which only the file's own objects are instances.

        Any object may be one of an abstract class or a protocol.
        """
        if not isinstance(node, ast.Name) or not self.is_own_class(node):
            return False
        bases = self.classes[node.id].bases
        return all(self._names.path(base) == ("typing", "NamedTuple") or self.is_record(base) for base in bases)

    def violations(self, *, foreign: bool) -> Iterator[Violation]:
        """Yield a violation where a method may be called with an object that is not of its class.

        Args:
            foreign: True if the file holds objects of others, so that a possible call of this kind counts as one.
        """
        for node, name, line in self._names.bindings:
            if name in OWN and (name != "ctx" or id(node) in self._beside_ctx):  # elsewhere `ctx` is a name like others
                yield Violation(line, f"calls what is no object of its own `{name}`")
        for node in self._nodes:
            yield from self._posing(node)
            yield from self._of_another_kind(node)
            if isinstance(node, (ast.Attribute, ast.Call)) and (taken := self._taken(node)) is not None:
                yield from self._of_access(node, *taken, foreign=foreign)
            elif isinstance(node, ast.ClassDef):
                yield from self._of_class_body(node, foreign=foreign)
            elif isinstance(node, ast.MatchClass) and self._escapes:
                taken = [name for name in node.kwd_attrs if name in self._sensitive]
                yield from (Violation(node.lineno, f"takes the method `{name}` by a pattern") for name in taken)

    def _object_of(self, node: Function) -> str | None:
        """Return the name of a method's first parameter if that is its own object; else None."""
        if id(node) not in self._owners:
            return None
        every, kind = [*node.args.posonlyargs, *node.args.args], _kind(node)
        if not every or len(node.args.defaults) == len(every):
            return None
        allowed = {"static": {"ctx"} if node.name in _OF_FUNCTIONS else set[str](), "class": {"cls", "self"}}
        return every[0].arg if every[0].arg in allowed.get(kind, OWN) else None

    def _where_super_is_bound(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parts of a method in which `super()` is its object's; inner functions have first arguments too."""
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        waiting: list[ast.AST] = list(node.body) if self._object_of(node) and _kind(node) == "instance" else []
        while waiting:
            yield (part := waiting.pop())
            if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                waiting += ast.iter_child_nodes(part)

    def _sensitive_methods(self) -> dict[str, list[Function]]:
        """Return the methods, by name, that change their own object, use its private names or take others of a base."""
        found: dict[str, list[Function]] = {}
        every = [node for node in self._nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        waiting = [node for node in every if id(node) in self._owners and _kind(node) != "class"]
        before = -1
        while before != (before := len(waiting)):  # one that may hand another object to such a method is one too
            for node in list(waiting):
                if any(self._is_use(part, found) or _takes_from_super(part, node.name) for part in ast.walk(node)):
                    found.setdefault(node.name, []).append(node)
                    waiting.remove(node)
        return found

    def _gets_any(self, node: ast.AST) -> bool:
        """Return True if an attribute of a method's own object is read by a name that the text does not show."""
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[of, name, *_]):
                return self.is_own(of) and not isinstance(name, ast.Constant)
            case _:
                return False

    def _is_use(self, node: ast.AST, sensitive: Mapping[str, list[Function]]) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in sensitive:
            return self.is_own(node.func.value) and _may_be_unbound(node, sensitive[node.func.attr])
        if isinstance(node, ast.Attribute):
            return self.is_own(node.value) and (not isinstance(node.ctx, ast.Load) or node.attr.startswith("_"))
        builtin = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
        return builtin in ("getattr", "setattr", "delattr") and any(map(self.is_own, ast.iter_child_nodes(node)))

    def _taken(self, node: ast.Attribute | ast.Call) -> tuple[ast.expr, str] | None:
        """Return the object and the name if a method that uses its own object is taken from some object; else None."""
        match node:
            case ast.Attribute(value=of, attr=name, ctx=ast.Load()):
                return (of, name) if name in self._sensitive else None
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name)), *_]):
                return (of, name) if name in self._sensitive else None
            case _:
                return None

    def _of_access(self, node: ast.expr, of: ast.expr, name: str, *, foreign: bool) -> Iterator[Violation]:
        """Yield a violation if a method is taken from an object that may be its class."""
        above = self._names.parents.get(id(node))
        call = above if isinstance(above, ast.Call) and above.func is node else None
        said = f"calls the method `{name}` of a class, with any object for its own"
        is_own = self._own.get(id(of)) in ("instance", "static") or self.is_own_instance(of)
        if (is_own and not self._is_static(of, name)) or self._names.path(of) or self._is_bound_super(of):
            return
        if call is not None and call.args and (self.is_own(call.args[0]) or self.is_own_instance(call.args[0])):
            return
        is_class = id(of) in self._own or (isinstance(of, ast.Name) and of.id in self.classes) or is_own
        is_class = is_class or (isinstance(of, ast.Attribute) and of.attr in self.classes)
        is_class = is_class or (isinstance(of, ast.Call) and _called(of) in ("super", "type"))
        foreign = foreign or name in self._computing
        may_be_unbound = call is None or _may_be_unbound(call, self._sensitive[name])
        if is_class or (foreign and self._escapes and may_be_unbound):
            yield Violation(node.lineno, said)

    def _is_static(self, of: ast.expr, name: str) -> bool:
        """Return True if an object's method may be a static one, whose own object is whatever it is given first."""
        owner = self._class_of.get(id(of))
        owners = self._lineage(owner) if owner is not None else set(self.classes.values())
        return any(_kind(method) == "static" and self._owners[id(method)] in owners for method in self._sensitive[name])

    def _lineage(self, node: ast.ClassDef) -> set[ast.ClassDef]:
        """Return a class and those of the file that it derives from."""
        found, waiting = set[ast.ClassDef](), [node]
        while waiting:
            if (one := waiting.pop()) not in found:
                found.add(one)
                bases = (base.id for base in one.bases if isinstance(base, ast.Name))
                waiting += [self.classes[base] for base in bases if base in self.classes]
        return found

    def _is_bound_super(self, of: ast.expr) -> bool:
        """Return True if an expression is `super()` in a method, whose methods get the method's own object."""
        if not isinstance(of, ast.Call) or _called(of) != "super":
            return False
        if len(of.args) == 2:
            return self._own.get(id(of.args[1])) == "instance"
        return not (of.args or of.keywords) and id(of) in self._bound_supers

    def _of_class_body(self, node: ast.ClassDef, *, foreign: bool) -> Iterator[Violation]:
        own = {part.name for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))}
        own &= self._sensitive.keys()
        for part in node.body:
            if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from self._taken_in_body(part, own)
            elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name in own:
                for decorator in part.decorator_list if foreign or part.name in self._computing else ():
                    if not self._keeps(decorator):
                        said = f"hands the method `{part.name}` to a decorator of its own, with any object for `self`"
                        yield Violation(decorator.lineno, said)

    def _keeps(self, decorator: ast.expr) -> bool:
        """Return True if a decorator is known to call a method only with the objects of its callers."""
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute):
            return called.attr in _KEEPING and (self._names.path(called) is not None or called.attr == "setter")
        return isinstance(called, ast.Name) and called.id in _KEEPING and called.id not in self._bound

    def _taken_in_body(self, statement: ast.stmt, own: set[str]) -> Iterator[Violation]:
        for name in ast.walk(statement):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in own:
                above = self._names.parents.get(id(name))
                called = above.func if isinstance(above, ast.Call) else None
                if not (isinstance(called, ast.Name) and called.id == "property"):
                    yield Violation(
                        name.lineno, f"takes the method `{name.id}` out of its class, with any object for `self`"
                    )

    @cached_property
    def _escapes(self) -> bool:
        """Return True if a class of the file is passed on, so that its methods may be called anywhere."""
        return any(map(self._lets_a_class_go, self._nodes))

    def _lets_a_class_go(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return (name in self.classes or self._own.get(id(node)) == "class") and not self._names.is_plain(node)
            case ast.Call(func=ast.Name(id="type")):
                return not self._names.is_plain(node)
            case ast.ClassDef(decorator_list=decorators):
                return any(not _is_dataclass(decorator) for decorator in decorators)
            case _:
                return False

    def _of_another_kind(self, node: ast.AST) -> Iterator[Violation]:
        """Yield a violation where a method becomes one of its class, or of nobody, other than by a decorator."""
        if not isinstance(node, ast.Name) or node.id not in ("classmethod", "staticmethod"):
            return
        above = self._names.parents.get(id(node))
        decorates = isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in above.decorator_list
        given = above.args[0] if isinstance(above, ast.Call) and above.func is node and len(above.args) == 1 else None
        statement = self._names.parents.get(id(above))
        is_taken = id(statement) in self._owners and isinstance(given, (ast.Attribute, ast.Name, ast.Lambda))
        if is_taken and isinstance(given, ast.Name):
            body = (part for part in self._owners[id(statement)].body if isinstance(part, ast.FunctionDef))
            is_taken = given.id not in {part.name for part in body}
        if not (decorates or is_taken):
            yield Violation(node.lineno, f"hands round `{node.id}`")

    def _posing(self, node: ast.AST) -> Iterator[Violation]:
        """Yield a violation for each name such as `self` that is not a method's own object."""
        found: list[tuple[str, int]] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            own = self._object_of(node) if not isinstance(node, ast.Lambda) else None
            every = parameters(node)
            posing = [a for place, a in enumerate(every) if a.arg in OWN and not (place == 0 and a.arg == own)]
            found += [(a.arg, a.lineno) for a in posing if a.arg != "ctx" or len(node.args.defaults) == len(every)]
        yield from (Violation(line, f"calls what is no object of its own `{name}`") for name, line in found)


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _takes_from_super(node: ast.AST, name: str) -> bool:
    """Return True for a method of `super()` that is not the one of the same name."""
    of = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(node, ast.Attribute) and node.attr != name and isinstance(of, ast.Call) and _called(of) == "super"


def _kind(node: Function) -> str:
    names = {decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)}
    return "static" if "staticmethod" in names else "class" if "classmethod" in names else "instance"


def _within(node: Function, name: str) -> Iterator[ast.Name]:
    """Yield the uses of a parameter in a function, except in inner functions with a parameter of the same name."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Name) and part.id == name:
            yield part
        is_function = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        calls_another_so = is_function and any(argument.arg == name for argument in parameters(part))
        if not (calls_another_so or isinstance(part, ast.ClassDef)):
            waiting += ast.iter_child_nodes(part)


def _may_be_unbound(call: ast.Call, methods: list[Function]) -> bool:
    """Return True if a call has enough arguments for one of them to be the object of one of the methods itself."""
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(k.arg is None for k in call.keywords):
        return True
    given = len(call.args) + len(call.keywords)
    return any(given >= _required(method) for method in methods)


def _required(node: Function) -> int:
    given = node.args
    return len(given.posonlyargs) + len(given.args) - len(given.defaults)


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in ("dataclass", "final", "total_ordering", "runtime_checkable", "unique")


def _only_defined(names: Names) -> set[str]:
    """Return the names of functions and classes that are bound only once, decorators aside."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in names.nodes if isinstance(node, definitions)}
    for node in names.nodes:
        if isinstance(node, definitions) and not all(_is_imported(one, names) for one in node.decorator_list):
            defined.discard(node.name)
    defined -= {name for node, name, _ in names.bindings if not isinstance(node, (*definitions, ast.Global))}
    return defined - {node.arg for node in names.nodes if isinstance(node, ast.arg)}


def _is_imported(decorator: ast.expr, names: Names) -> bool:
    return names.path(decorator.func if isinstance(decorator, ast.Call) else decorator) is not None


def _made(names: Names, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the names that are bound to instances of the file's own classes and to nothing else."""
    made: set[str] = set()
    own: set[int] = set()
    for node in names.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            targets = [target for target in node.targets if isinstance(target, ast.Name)]
            if node.value.func.id in classes and len(targets) == len(node.targets):
                made |= {target.id for target in targets}
                own |= {id(target) for target in targets}
    made -= {name for node, name, _ in names.bindings if id(node) not in own}
    return made - {node.arg for node in names.nodes if isinstance(node, ast.arg)}
