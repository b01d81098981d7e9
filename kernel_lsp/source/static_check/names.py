"""Resolves names of a Python file: imports, their aliases, and whether a use only looks at the object."""

import ast
from collections.abc import Iterable, Iterator

Parents = dict[int, ast.AST]
Meaning = tuple[str, ...] | None
"""What a name stands for: the dotted name of an imported object; None for any other object."""
MOST_MEANINGS = 8
_PLAIN_ARGUMENTS = {"isinstance": 1, "issubclass": 1, "super": 0, "hasattr": 0, "getattr": 0}
"""Built-in functions -> index of the argument that they only inspect."""


class Names:
    """The dotted import names behind the names of a file, in whatever block they are bound.

    A name that stands for several objects, by turns or in several blocks, has one of its meanings in each `reading`.

    Attributes:
        readings: how many readings show every name in each of its meanings.
        nodes: all nodes of the file's tree.
        bindings: where names are bound, except parameters: the binding node, the name, its line.
        parents: the node above each one, by `id`.
        annotations: of variables, parameters and return values.
    """

    def __init__(self, tree: ast.Module, reading: int = 0) -> None:
        self.nodes = list(ast.walk(tree))
        self.bindings = [(node, name, line) for node in self.nodes for name, line in _bound_names(node)]
        self.parents: Parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self._meanings: dict[str, list[Meaning]] = {}
        for name, path in _imports(self.nodes):
            self._add(name, path)
        self._aliases = self._follow()
        for name in self._bound_otherwise():
            self._add(name, None)
        self.readings = max(map(len, self._meanings.values()), default=1)
        self._stand_for = {name: meant[max(0, len(meant) - 1 - reading)] for name, meant in self._meanings.items()}
        self.annotations = _annotations(self.nodes)
        self._annotations = {id(part) for note in self.annotations for part in ast.walk(note)}

    def path(self, node: ast.AST) -> tuple[str, ...] | None:
        """Return the dotted name of the imported object that an expression stands for; None if it is another."""
        root, parts = _dotted(node)
        meant = self._stand_for.get(root)
        return None if meant is None else _from_the_top((*meant, *parts))

    def is_imported(self, name: str) -> bool:
        """Return True if a name stands for an imported object."""
        return self._stand_for.get(name) is not None

    def is_plain(self, node: ast.expr) -> bool:
        """Return True if an expression is only called, read, compared, inherited from or given another name."""
        if id(node) in self._aliases or id(node) in self._annotations:
            return True
        above = self.parents.get(id(node))
        match above:
            case ast.Attribute() | ast.MatchClass():
                return True
            case ast.Compare(ops=ops):  # other operators call the other side, which may be an object of the file's own
                return all(isinstance(op, (ast.Is, ast.IsNot)) for op in ops)
            case ast.ClassDef():
                return any(part is node for part in (*above.bases, *above.decorator_list))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return any(part is node for part in above.decorator_list)
            case ast.Call() if above.func is node:
                return True
            case _:
                return self._is_a_kind(node)

    def _is_a_kind(self, node: ast.AST) -> bool:
        """Return True if an expression, or a tuple with it, is a class to test for: `isinstance(x, (A, B))`."""
        above, below = self.parents.get(id(node)), node
        while isinstance(above, (ast.Tuple, ast.BinOp)):
            above, below = self.parents.get(id(above)), above
        return isinstance(above, ast.ExceptHandler) or (isinstance(above, ast.Call) and _is_looked_at(above, below))

    def _add(self, name: str, meant: Meaning) -> None:
        known = self._meanings.setdefault(name, [])
        if meant not in known and len(known) < MOST_MEANINGS:
            known.append(meant)

    def _follow(self) -> set[int]:
        """Record names that are plainly assigned imported objects as imported; return the assigned values, by `id`."""
        values: set[int] = set()
        of_classes = {id(part) for node in self.nodes if isinstance(node, ast.ClassDef) for part in node.body}
        every = (node for node in self.nodes if id(node) not in of_classes)  # theirs are attributes, not names
        assigned = [node for node in every if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None]
        before = -1
        while before < (before := sum(map(len, self._meanings.values()))):
            for node in assigned:
                assert node.value is not None, "chosen so"
                root, parts = _dotted(node.value)
                names = _assigned_names(node)
                if root in self._meanings and names is not None:
                    values.add(id(node.value))
                    for meant in list(self._meanings[root])[: 1 if root in names else None]:  # `a = a.b` has no end
                        for name in names:
                            self._add(name, None if meant is None else _from_the_top((*meant, *parts)))
        return values

    def _bound_otherwise(self) -> Iterator[str]:
        """Yield the imported names that are bound to other objects too, except to constants and by methods."""
        yield from (node.arg for node in self.nodes if isinstance(node, ast.arg) and node.arg in self._meanings)
        for node, name, _ in self.bindings:
            above = self.parents.get(id(node))
            is_plain = isinstance(above, (ast.Assign, ast.AnnAssign)) and (
                above.value is None or id(above.value) in self._aliases or isinstance(above.value, ast.Constant)
            )
            is_method = isinstance(above, ast.ClassDef)
            binds = not isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)) and not (
                isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
            )
            if name in self._meanings and binds and not (is_plain or is_method):
                yield name


def _dotted(node: ast.AST) -> tuple[str, tuple[str, ...]]:
    """Return the name at the beginning of a dotted expression, and what follows; an empty name for any other one."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), tuple(reversed(parts))


def _from_the_top(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path from the last of torch or Triton in it, which modules within import too."""
    tops = [place for place, name in enumerate(path) if name in ("torch", "triton")]
    return path[tops[-1] :] if tops else path


def _assigned_names(node: ast.Assign | ast.AnnAssign) -> list[str] | None:
    """Return the names that a statement assigns one value to; None if it assigns to anything else."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names if len(names) == len(targets) else None


def _bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node itself binds, except parameters, with their lines."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name, node.lineno
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, node.lineno
        case ast.MatchMapping(rest=str(name)):
            yield name, node.lineno
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from ((name, node.lineno) for name in names)
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name.split(".")[0], node.lineno) for alias in aliases)
        case _:
            return


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return all parameters of a function, in order."""
    given = node.args
    every = (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg)
    return [argument for argument in every if argument is not None]


def _is_looked_at(call: ast.Call, argument: ast.AST) -> bool:
    """Return True if a call of a built-in function only inspects an argument."""
    if not isinstance(call.func, ast.Name) or call.func.id not in _PLAIN_ARGUMENTS:
        return False
    place = _PLAIN_ARGUMENTS[call.func.id]
    return len(call.args) > place and call.args[place] is argument


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = tuple(alias.name.split("."))
                yield (alias.asname, path) if alias.asname else (path[0], path[:1])
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, (*(node.module or "").split("."), alias.name)


def _annotations(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    found: list[ast.expr | None] = []
    for node in nodes:
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
    return [note for note in found if note is not None]
