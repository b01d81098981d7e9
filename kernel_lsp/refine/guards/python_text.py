"""Guards in Python: at the head of the function that launches the kernel, in front of its unchanged body.

The definitions that the variant changes stand beside the old ones under names of their own: kernels, the function
itself, constants, and whatever of the file lies between them.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_lsp.device.tensors import Argument, TensorSpec
from kernel_lsp.refine.guards.predicate import GuardQuantity, Predicate, QuantityKind, Term
from kernel_lsp.refine.guards.site import NotGuardedError, VariantChange, comment, distinct, suffix
from kernel_lsp.source.python import names_read, python_ast_if_any
from kernel_lsp.source.text import Edit, Lines, Span, apply_edits, indent_unit
from kernel_lsp.workload.capture import leaves_of, read_capture


class PythonGuards:
    """Guarded dispatch for Python files with a function that launches their kernels."""

    def quantities(self, change: VariantChange) -> list[GuardQuantity]:
        """Return the sizes, numbers, addresses and types of the arguments of that function."""
        _, given = called(change)
        found = [q for name, at in given.items() for q in _of_argument(name, [c.arguments[at] for c in change.cases])]
        return distinct(found, change.cases)

    def write(self, change: VariantChange, predicate: Predicate, why: str) -> str:
        """Return the file with the variant behind a condition."""
        old, new = _File.of(change.base.kernel.text), _File.of(change.variant.kernel.text)
        entry, _ = called(change)
        return _written(old, new, entry, predicate, why)


@dataclass(frozen=True)
class _File:
    """A file's text, and its statements at the top: definitions by name, imports, and all others."""

    text: str
    lines: Lines
    named: Mapping[str, ast.stmt]
    imports: tuple[ast.stmt, ...]
    others: tuple[ast.stmt, ...]

    @classmethod
    def of(cls, text: str) -> "_File":
        tree = python_ast_if_any(text)
        if tree is None:
            raise NotGuardedError("the file is not Python")
        named: dict[str, ast.stmt] = {}
        imports: list[ast.stmt] = []
        others: list[ast.stmt] = []
        for node in tree.body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    if name in named:
                        raise NotGuardedError(f"`{name}` is defined twice")
                    named[name] = node
                case ast.Import() | ast.ImportFrom():
                    imports.append(node)
                case _:
                    others.append(node)
        return cls(text, Lines(text.encode()), named, tuple(imports), tuple(others))

    def span(self, node: ast.stmt) -> Span:
        """Return the place of a statement, with its decorators, from the beginning of its line."""
        decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        return Span(
            self.lines.offset(first), self.lines.offset(node.end_lineno or first, (node.end_col_offset or 0) + 1)
        )

    def written(self, node: ast.stmt) -> str:
        """Return the text of a statement."""
        span = self.span(node)
        return self.lines.data[span.start : span.end].decode()

    def above(self, line: int) -> int:
        """Return the offset of a line, or of the first of the comments that stand directly above it."""
        rows = self.text.split("\n")
        while line > 1 and rows[line - 2].lstrip().startswith("#"):
            line -= 1
        return self.lines.offset(line)


def called(change: VariantChange) -> tuple[str, dict[str, int]]:
    """Return the name of the function that `launch` calls, and for its parameters the numbers of the inputs given.

    Raises:
        NotGuardedError: there is no such function, or not only one.
    """
    tree = python_ast_if_any(change.base.kernel.text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else {}
    if change.workload.captured:
        capture = read_capture(change.workload.source.text, change.workload.source.path)
        names = [leaf.name for leaf in leaves_of(capture.cases[0])]
        entry, given = capture.function, {name: at for at, name in enumerate(names)}
    elif change.workload.has_launch:
        entry, given = _called_by(change.launch_text, functions)
    else:
        entry, given = _only_public(functions)
    host = functions.get(entry)
    if host is None:
        raise NotGuardedError("no function at the top of the file launches the kernel")
    if change.base.launch != change.variant.launch:
        raise NotGuardedError("the variant changes the workload's `launch`")
    own = {one.arg for one in (*host.args.posonlyargs, *host.args.args, *host.args.kwonlyargs)}
    known = min((len(case.arguments) for case in change.cases), default=0)
    return entry, {name: at for name, at in given.items() if name in own and at < known}


def _only_public(functions: Mapping[str, ast.FunctionDef]) -> tuple[str, dict[str, int]]:
    """Return the function that is called where there is no `launch`: the one that anybody may call."""
    public = [
        function
        for name, function in functions.items()
        if not name.startswith("_") and name not in ("inputs", "reference") and not function.decorator_list
    ]
    if len(public) != 1:
        raise NotGuardedError("it is not plain which function of the file launches the kernel")
    taken = public[0].args
    return public[0].name, {one.arg: at for at, one in enumerate((*taken.posonlyargs, *taken.args))}


def _called_by(text: str, functions: Mapping[str, ast.FunctionDef]) -> tuple[str, dict[str, int]]:
    """Return the function of the module that `launch` calls; for its parameters the numbers of `launch`'s inputs."""
    tree = python_ast_if_any(text)
    launch = (
        next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "launch"), None) if tree else None
    )
    if launch is None or not launch.args.args:
        raise NotGuardedError("the workload has no function `launch`")
    module, *inputs = [one.arg for one in launch.args.args]
    set_again = {n.id for n in ast.walk(launch) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    calls = {
        node.func.attr: node
        for node in ast.walk(launch)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == module
    }
    if len(calls) != 1:
        raise NotGuardedError("`launch` calls no function of the file, or several")
    [(name, call)] = calls.items()
    host = functions.get(name)
    if host is None:
        raise NotGuardedError(f"`{name}` is not a function at the top of the file")
    pairs = list(zip([one.arg for one in (*host.args.posonlyargs, *host.args.args)], call.args, strict=False))
    pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
    numbers = {one: at for at, one in enumerate(inputs) if one not in set_again}
    return name, {
        parameter: numbers[value.id]
        for parameter, value in pairs
        if isinstance(value, ast.Name) and value.id in numbers
    }


def _of_argument(name: str, values: Sequence[Argument]) -> Iterator[GuardQuantity]:
    tensors = [value for value in values if isinstance(value, TensorSpec)]
    if len(tensors) == len(values):
        rank = min(len(tensor.shape) for tensor in tensors)
        if all(len(tensor.shape) == rank for tensor in tensors):
            for axis in range(rank):
                text = f"{name}.shape[{axis}]"
                yield GuardQuantity(text, text, QuantityKind.SIZE, tuple(tensor.shape[axis] for tensor in tensors))
        yield GuardQuantity(
            f"{name}.numel()", f"{name}.numel()", QuantityKind.SIZE, tuple(tensor.numbers for tensor in tensors)
        )
        places = tuple(tensor.offset for tensor in tensors)
        yield GuardQuantity(f"{name}.data_ptr()", f"address of {name}", QuantityKind.ADDRESS, places)
        yield GuardQuantity(
            f"{name}.dtype", f"{name}.dtype", QuantityKind.DTYPE, tuple(tensor.dtype for tensor in tensors)
        )
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        yield GuardQuantity(name, name, QuantityKind.SIZE, tuple(numbers))


def _written(old: _File, new: _File, entry: str, predicate: Predicate, why: str) -> str:
    before, after = old.named[entry], new.named.get(entry)
    assert isinstance(before, ast.FunctionDef), "`called` found a function"
    if not isinstance(after, ast.FunctionDef) or ast.dump(after.args) != ast.dump(before.args):
        raise NotGuardedError(f"the variant changes the parameters of `{entry}`")
    if before.body[0].lineno == before.lineno:
        raise NotGuardedError(f"`{entry}` has its body in one line with its head")
    if [ast.unparse(one) for one in old.others] != [ast.unparse(one) for one in new.others]:
        raise NotGuardedError("the variant changes statements at the top of the file")
    for name in ("launch", "reference", "inputs", "CASES"):
        if name in new.named and (
            name not in old.named or old.written(old.named[name]) != new.written(new.named[name])
        ):
            raise NotGuardedError(f"the variant changes `{name}`")
    names = _names_of_copies(old, new, entry, suffix(predicate))
    copies = [_renamed(new, node, names) for name, node in new.named.items() if name in names]
    known = {ast.unparse(one) for one in old.imports}
    imports = [ast.unparse(one) for one in new.imports if ast.unparse(one) not in known]
    unit = indent_unit(old.text)
    condition = f" {predicate.joined} ".join(_condition(term, old) for term in predicate.terms)
    guard = [*comment(why, "#", unit), f"{unit}if {condition}:", f"{unit * 2}return {names[entry]}({_passed(before)})"]
    placed = "".join(f"{one}\n" for one in imports) + "\n" * bool(imports)
    placed += "".join(f"{one}\n\n\n" for one in copies)
    edits = [
        Edit(_at(old.above(_first_line(before))), placed),
        Edit(_at(_head(old, before)), "\n".join(guard) + "\n"),
    ]
    return apply_edits(old.text, edits)


def _differ(old: _File, new: _File, name: str) -> bool:
    return old.written(old.named[name]) != new.written(new.named[name])


def _names_of_copies(old: _File, new: _File, entry: str, told: str) -> dict[str, str]:
    """Return, by their names in the variant, the definitions that must stand beside the old ones, with their names.

    They are what the function needs of the variant and differs from the old text, or leads to what differs.
    """
    needs = {name: [one for one in names_read(node) if one in new.named] for name, node in new.named.items()}
    reached, waiting = set[str](), [entry]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += needs[name]
    own = {name for name in reached if name not in old.named}
    differ = {name for name in reached - own if _differ(old, new, name)} | own
    while more := {name for name in reached - differ if differ & set(needs[name])}:
        differ |= more
    if entry not in differ:
        raise NotGuardedError(f"what the variant changes is not used by `{entry}`")
    taken = {*old.named, *new.named}
    found: dict[str, str] = {}
    for name in new.named:
        if name in differ:
            found[name] = name if name in own else f"_{name.strip('_')}_{told}"
            if name not in own and found[name] in taken:
                raise NotGuardedError(f"the file has a `{found[name]}` already")
    return found


def _renamed(file: _File, node: ast.stmt, names: Mapping[str, str]) -> str:
    """Return the text of a definition with the new names in it, except where a local name hides one."""
    if isinstance(node, ast.ClassDef):
        raise NotGuardedError("the variant changes a class")
    local = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    if isinstance(node, ast.FunctionDef):
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    span = file.span(node)
    edits: list[Edit] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names and inner.id not in local:
            start = file.lines.offset(inner.lineno, inner.col_offset + 1) - span.start
            edits.append(Edit(Span(start, start + len(inner.id.encode())), names[inner.id]))
    if isinstance(node, ast.FunctionDef):
        start = file.lines.offset(node.lineno, node.col_offset + 1) - span.start + len("def ")
        edits.append(Edit(Span(start, start + len(node.name.encode())), names[node.name]))
    return apply_edits(file.written(node), edits)


def _condition(term: Term, file: _File) -> str:
    if term.quantity.kind is not QuantityKind.DTYPE:
        return term.render(term.quantity.text)
    if not any(
        isinstance(one, ast.Import) and any(a.name == "torch" and not a.asname for a in one.names)
        for one in file.imports
    ):
        raise NotGuardedError("the file does not import torch, by which a type is named")
    return term.render(term.quantity.text, f"torch.{term.value}")


def _passed(function: ast.FunctionDef) -> str:
    taken = function.args
    given = [one.arg for one in (*taken.posonlyargs, *taken.args)]
    given += [f"*{taken.vararg.arg}"] if taken.vararg else []
    given += [f"{one.arg}={one.arg}" for one in taken.kwonlyargs]
    given += [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    return ", ".join(given)


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _head(file: _File, function: ast.FunctionDef) -> int:
    """Return the offset at which the body begins, behind a docstring and before comments."""
    first = function.body[0]
    is_documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_documented and len(function.body) > 1:
        return file.lines.offset((first.end_lineno or first.lineno) + 1)
    decorators = first.decorator_list if isinstance(first, ast.FunctionDef) else []
    return file.above(min([first.lineno, *(decorator.lineno for decorator in decorators)]))


def _at(offset: int) -> Span:
    return Span(offset, offset)
