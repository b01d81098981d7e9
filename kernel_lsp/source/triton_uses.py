"""Infers from a Triton function's text how it uses its parameters: as pointers, integers, booleans, block lengths.

It follows names through assignments and calls. A wrong inference makes the kernel compile for an unusual type, or not
compile; both are reported together with the type.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from kernel_lsp.source.gluon_uses import note_hardware

_MOVES = frozenset(
    [
        "load",
        "store",
        "atomic_add",
        "atomic_max",
        "atomic_min",
        "atomic_cas",
        "atomic_xchg",
        "atomic_or",
        "atomic_and",
        "atomic_xor",
        "make_block_ptr",
        "make_tensor_descriptor",
        "_experimental_make_tensor_descriptor",
    ]
)
_MADE_OF = frozenset(("make_block_ptr", "advance", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"))
_DESCRIBED = frozenset(
    f"{before}{move}{after}"
    for move in ("load", "store")
    for before, after in (("", "_tensor_descriptor"), ("_experimental_descriptor_", ""))
)
_SAME = frozenset(("to", "multiple_of", "max_contiguous", "cast", "broadcast_to", "expand_dims", "assume"))
_INDICES = frozenset(("arange", "program_id", "num_programs", "cdiv"))
_SHAPES = frozenset(("zeros", "full", "reshape", "view", "arange", "broadcast_to", "make_block_ptr"))
_LENGTHS = {"make_block_ptr": "block_shape"}
_FILLED = {"zeros": 1, "full": 2}  # position of the type argument, after a shape
_POINTER = re.compile(r"(?i)ptr|pointer|addr")
_MASK = re.compile(r"(?i)mask$|_mask_ptr$")
_INDEX = re.compile(r"(?i)label|target|(^|_)idx|index|indices|(^|_)ids?($|_ptr)|position|seed|sorted_token|expert")
_OFFSETS = re.compile(r"(?i)seqlen|cu_|offset|(^|_)lens|lengths|block_table|split_sizes")
_THROUGH = frozenset(
    (
        "where",
        "reshape",
        "view",
        "trans",
        "permute",
        "sum",
        "max",
        "min",
        "maximum",
        "minimum",
        "cumsum",
        "join",
        "split",
    )
)  # what they make has the type of what they are given
_ONLY_WHOLE = (ast.FloorDiv, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
_WHOLE = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
_OF_DESCRIPTORS = frozenset(("block_type", "block_shape", "nbytes_per_cta"))
_FLAGS = frozenset(("warp_specialize", "flatten", "disallow_acc_multi_buffer", "allow_tf32", "can_reorder"))
_WORDS = {
    "input_precision": "tf32",
    "cache_modifier": "",
    "eviction_policy": "",
    "padding_option": "",
    "sem": "acq_rel",
    "scope": "gpu",
    "fp_downcast_rounding": "rtne",
}
"""Triton's options that are words -> a word that each kind of launch may give."""
_EQUAL = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_DEEPEST = 6
_MOST_WAYS = 16

Function = ast.FunctionDef
Find = Callable[[str], Function | None]
"""Return the Triton function of a dotted name; None for any other name or one of Triton's own."""
Constant = Callable[[str], str | int | None]
"""Return the value of a dotted name of the file; None where it is no string or integer."""


@dataclass
class Uses:
    """The uses of one function's parameters, as sets of parameter names.

    Attributes:
        pointers: pointers.
        whole_pointers: those whose elements are integers, used as an index or a bound.
        elements: those whose type of elements is compared with one of Triton's -> its name, the first of several.
        packed_pointers: those whose elements are integers that are taken apart, by shifts and masks.
        whole: numbers in index arithmetic.
        packed: values, not addresses, that are taken apart so.
        real: numbers combined with loaded values.
        sizes: block lengths.
        switches: those used as conditions.
        compared: those compared with strings or integers -> these, in order.
        words: those handed on as an option that is a word -> one that Triton takes.
        asserted: the conditions of its static assertions.
        types: those that stand for a type.
        descriptors: tensor descriptors, each with its number of dimensions.
        tuples: tuples of numbers, as strides are passed, each with the least length it can have.
        layouts: Gluon's layouts of registers, each with its number of dimensions.
        shared_layouts: Gluon's layouts of shared memory, likewise.
        loaded: pointers that are read, by atomics too.
        stored: pointers that are written.
        bounds: pointer -> the numbers that a mask keeps its offsets below, each with True if the offsets count over all
            programs, as `program_id(0) * BLOCK + arange(0, BLOCK)` does.
    """

    pointers: set[str] = field(default_factory=set[str])
    whole_pointers: set[str] = field(default_factory=set[str])
    elements: dict[str, str] = field(default_factory=dict[str, str])
    packed_pointers: set[str] = field(default_factory=set[str])
    whole: set[str] = field(default_factory=set[str])
    packed: set[str] = field(default_factory=set[str])
    real: set[str] = field(default_factory=set[str])
    sizes: set[str] = field(default_factory=set[str])
    switches: set[str] = field(default_factory=set[str])
    compared: dict[str, tuple[str | int, ...]] = field(default_factory=dict[str, tuple[str | int, ...]])
    words: dict[str, str] = field(default_factory=dict[str, str])
    asserted: list[ast.expr] = field(default_factory=list[ast.expr])
    types: set[str] = field(default_factory=set[str])
    descriptors: dict[str, int] = field(default_factory=dict[str, int])
    tuples: dict[str, int] = field(default_factory=dict[str, int])
    layouts: dict[str, int] = field(default_factory=dict[str, int])
    shared_layouts: dict[str, int] = field(default_factory=dict[str, int])
    loaded: set[str] = field(default_factory=set[str])
    stored: set[str] = field(default_factory=set[str])
    bounds: dict[str, dict[str, bool]] = field(default_factory=dict[str, dict[str, bool]])


def uses_in(function: Function, find: Find, constant: Constant = lambda _: None, depth: int = 0) -> Uses:
    """Return how `function`, and the functions it calls as far as `find` knows them, use its parameters."""
    return _Reader(function, find, constant, depth).read()


def dotted(node: ast.expr) -> str:
    """Return `tl.load` for the expression of that name; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = dotted(value)
            return f"{before}.{name}" if before else ""
        case _:
            return ""


def element_of(name: str, uses: Uses) -> str | None:
    """Triton's type of what an address leads to where that is no number to compute with: an index, a length, a mask."""
    if _OFFSETS.search(name):
        return "i32"
    if name in uses.whole_pointers or _INDEX.search(name):
        return "i64"
    return "i1" if _MASK.search(name) else "i32" if name in uses.packed_pointers else None


class _Reader:
    def __init__(self, function: Function, find: Find, constant: Constant, depth: int) -> None:
        self._function, self._find, self._constant, self._depth = function, find, constant, depth
        arguments = function.args
        self._parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._found = Uses()

    def read(self) -> Uses:
        """Walk through the function once and return the uses."""
        for node in ast.walk(self._function):
            match node:
                case ast.Call():
                    self._call(node)
                case ast.BinOp(op=op) if isinstance(op, _WHOLE):
                    self._found.whole |= self._names(node)
                    if isinstance(op, _ONLY_WHOLE):
                        self._taken_apart(node.left, node.right)
                case ast.BinOp() | ast.Compare():
                    self._meeting(node)
                    if isinstance(node, ast.Compare) and dotted(node.comparators[0]).startswith("tl."):
                        self._typed(node.left, dotted(node.comparators[0]).removeprefix("tl."))
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in _OF_DESCRIPTORS:
                    if name in self._parameters:
                        self._found.descriptors.setdefault(name, 2)
                case ast.If(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                    self._tested(test)
                case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(at))) if self._is_given(name):
                    self._found.tuples[name] = max(at + 1, self._found.tuples.get(name, 1))
                case _:
                    pass
        moves = [node for node in ast.walk(self._function) if isinstance(node, ast.Call) and self._is_move(node)]
        offsets = {name for node in moves for name in self._address(node)}
        self._found.whole |= offsets
        self._found.whole -= self._found.pointers
        self._found.real -= self._found.pointers | self._found.whole
        return self._found

    def _is_given(self, name: str) -> bool:
        """Return True if a name is a parameter that the function never binds anew."""
        return name in self._parameters and name not in self._values

    @cached_property
    def _values(self) -> dict[str, list[ast.expr]]:
        """Return the expressions assigned to each local name; for `a, b = f(x)` each name gets the whole call."""
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self._function):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pairs = [pair for target in targets for pair in _pairs(target, value)]
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    pairs = [(target, value)]
                case ast.AugAssign(target=target, value=value, op=op):
                    changed = ast.BinOp(ast.Name(dotted(target), ast.Load()), op, value)
                    pairs = [(target, ast.fix_missing_locations(ast.copy_location(changed, node)))]
                case ast.For(target=target, iter=value):
                    pairs = [(target, value)]
                case _:
                    pairs = []
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(value)
        return values

    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if last in ("range", "static_range"):
            self._found.whole |= self._names(*node.args)
        if last in ("range", "static_range", "cdiv"):
            self._found.whole_pointers |= {name for one in node.args for name in self._sources(one)}
        if last in _SHAPES:
            shape = node.args[:1] if last in _FILLED else node.args[4:5] if last == "make_block_ptr" else node.args
            for argument in [*shape, *(k.value for k in node.keywords if k.arg == _LENGTHS.get(last, "shape"))]:
                self._found.sizes |= self._factors(argument)
        types = node.args if last == "to" else node.args[_FILLED.get(last, len(node.args)) :]
        for given in [*(k.value for k in node.keywords if k.arg in ("dtype", "out_dtype")), *types]:
            if isinstance(given, ast.Name) and given.id in self._parameters:
                self._found.types.add(given.id)
        self._found.switches |= {n for k in node.keywords if k.arg in _FLAGS for n in self._direct(k.value)}
        self._found.words |= {n: _WORDS[k.arg] for k in node.keywords if k.arg in _WORDS for n in self._direct(k.value)}
        if last == "static_assert":
            self._found.asserted += node.args[:1]
        note_hardware(node, last, self._direct, self._found)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        owner_name = dotted(owner) if owner is not None else ""
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "to"
            and any(isinstance(a, ast.Call) and dotted(a.func).endswith("pointer_type") for a in node.args)
        ):
            loads = [n for n in self._reached(owner) if isinstance(n, ast.Call) and n.args] if owner else []
            addresses = [n.args[0] for n in loads if dotted(n.func).rpartition(".")[2] == "load"]
            self._found.whole_pointers |= {name for address in addresses for name in self._bases(address)}
        if isinstance(owner, ast.Name) and owner.id in self._parameters and last in ("load", "store", "gather"):
            offsets = node.args[0] if node.args else None
            self._found.descriptors[owner.id] = len(offsets.elts) if isinstance(offsets, (ast.List, ast.Tuple)) else 2
        if last in _DESCRIBED and node.args:
            offsets = node.args[1] if len(node.args) > 1 else None
            sides = len(offsets.elts) if isinstance(offsets, (ast.List, ast.Tuple)) else 2
            described = self._bases(node.args[0])
            self._found.descriptors |= dict.fromkeys(described, sides)
            (self._found.stored if "store" in last else self._found.loaded).update(described)
        if owner is not None and last in ("load", "store", "gather") and owner_name not in ("tl", "triton.language"):
            (self._found.stored if last == "store" else self._found.loaded).update(self._bases(owner))
        called = self._find(name) if name and self._depth < _DEEPEST else None
        if called is not None and called is not self._function:
            self._through(node, called)

    def _through(self, node: ast.Call, called: Function) -> None:
        """Take over how a called function uses its arguments."""
        theirs = uses_in(called, self._find, self._constant, self._depth + 1)
        names = [one.arg for one in (*called.args.posonlyargs, *called.args.args, *called.args.kwonlyargs)]
        given = list(zip(names, node.args, strict=False)) + [(k.arg, k.value) for k in node.keywords if k.arg]
        for parameter, value in given:
            if parameter in theirs.pointers:
                mine = self._bases(value)
                self._found.pointers |= mine
                self._found.whole_pointers |= mine if parameter in theirs.whole_pointers else set()
                self._found.loaded |= mine if parameter in theirs.loaded else set()
                self._found.stored |= mine if parameter in theirs.stored else set()
            if parameter in theirs.packed:
                self._taken_apart(value)
            elif parameter in theirs.whole and parameter not in theirs.pointers:
                self._found.whole_pointers |= self._sources(value)
            direct = self._direct(value)
            for ours, its in (
                (self._found.whole, theirs.whole),
                (self._found.real, theirs.real),
                (self._found.sizes, theirs.sizes),
                (self._found.switches, theirs.switches),
                (self._found.types, theirs.types),
            ):
                ours |= direct if parameter in its else set[str]()
            for one in direct:
                if parameter in theirs.compared:
                    self._found.compared[one] = theirs.compared[parameter]
                if parameter in theirs.words:
                    self._found.words[one] = theirs.words[parameter]
                for mine, its in (
                    (self._found.descriptors, theirs.descriptors),
                    (self._found.layouts, theirs.layouts),
                    (self._found.shared_layouts, theirs.shared_layouts),
                ):
                    if parameter in its:
                        mine[one] = its[parameter]

    def _typed(self, compared: ast.expr, name: str) -> None:
        """Note that a pointer's type of elements, perhaps under a name of its own, is compared with one of Triton's."""
        named = self._values.get(compared.id, ()) if isinstance(compared, ast.Name) else ()
        for one in (compared, *named):
            owner, _, last = dotted(one).rpartition(".dtype.")
            if last == "element_ty" and owner in self._parameters:
                self._found.elements.setdefault(owner, name)

    def _taken_apart(self, *values: ast.expr) -> None:
        """Note that values have bits: parameters, or what is loaded from addresses."""
        for value in values:
            self._found.packed |= self._direct(value)
            self._found.packed_pointers |= self._sources(value)

    def _sources(self, value: ast.expr) -> set[str]:
        """Return the pointers that a value is loaded from, followed through arithmetic that keeps its type."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [value]
        while waiting:
            match waiting.pop():
                case ast.Name(id=name) as use if name not in seen:
                    seen.add(name)
                    waiting += [value for value in self._values.get(name, ()) if not _is_later_change(name, value, use)]
                case ast.BinOp(left=left, right=right):
                    waiting += (left, right)
                case ast.IfExp(body=left, orelse=right):
                    waiting += (left, right)
                case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                    waiting.append(inner)
                case ast.Call(func=ast.Attribute(value=owner, attr=last), args=args):
                    of_triton = dotted(owner) in ("tl", "triton.language")
                    if last == "load" and of_triton and args:
                        found |= self._bases(args[0])
                    elif last in _THROUGH or (last in _SAME and last not in ("to", "cast")):
                        waiting += [*args[last == "where" :]] if of_triton else [owner]
                case _:
                    pass
        return found

    def _is_move(self, node: ast.Call) -> bool:
        name = dotted(node.func)
        owner, _, last = name.rpartition(".")
        return last in _MOVES and bool(node.args or node.keywords) and owner not in self._found.descriptors

    def _address(self, node: ast.Call) -> set[str]:
        """Note the pointers that a load or store uses; return the parameters in its address."""
        address = node.args[0] if node.args else node.keywords[0].value
        bases = self._bases(address)
        self._found.pointers |= bases
        last = dotted(node.func).rpartition(".")[2]
        if last not in _MADE_OF:
            self._found.stored |= bases if last == "store" or last.startswith("atomic") else set[str]()
            self._found.loaded |= bases if last != "store" else set[str]()
        reached = list(self._reached(address))
        for mask in (keyword.value for keyword in node.keywords if keyword.arg == "mask"):
            for base in bases:
                self._found.bounds.setdefault(base, {}).update(self._bounds(mask, _program_axes(reached)))
        for inner in reached:
            if not isinstance(inner, ast.Call) or inner is node or not inner.args:
                continue
            if dotted(inner.func).rpartition(".")[2] == "load":
                self._found.whole_pointers |= self._bases(inner.args[0])
        return {inner.id for inner in reached if isinstance(inner, ast.Name) and inner.id in self._parameters}

    def _bounds(self, mask: ast.expr, axes: frozenset[str]) -> Iterator[tuple[str, bool]]:
        """Yield the parameters that a mask compares offsets with, each with True if its offsets go over all programs.

        `axes` are the program axes that the address depends on.
        """
        for node in self._reached(mask):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
                over_all = axes <= _program_axes(self._reached(node.left))
                yield from ((name, over_all) for name in self._direct(node.comparators[0]))

    def _bases(self, address: ast.expr) -> set[str]:
        """Return the parameters that an address starts from, one for each way to compute it."""
        found: set[str] = set()
        for terms in self._ways(address, frozenset()):
            likely = [name for name in terms if name not in self._found.whole] or list(terms)
            named = [name for name in likely if _POINTER.search(name)] or likely
            found |= set(named[:1])
        return found

    def _ways(self, node: ast.expr, seen: frozenset[str]) -> list[tuple[str, ...]]:
        """Return the parameters that are summed in an expression, for each way to compute it."""
        match node:
            case ast.Name(id=name) if name in self._values and name not in seen:
                ways = [way for value in self._values[name] for way in self._ways(value, seen | {name})]
                own = [(name,)] if name in self._parameters else []
                return list(dict.fromkeys(own + ways))[:_MOST_WAYS]
            case ast.Name(id=name):
                # A local name of itself, as in `at += step`, adds nothing to where it starts.
                return [(name,)] if name in self._parameters else [] if name in seen else [()]
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                pairs = product(self._ways(left, seen), self._ways(right, seen))
                return list(dict.fromkeys(a + b for a, b in pairs))[:_MOST_WAYS]
            case ast.IfExp(body=body, orelse=other):
                return self._ways(body, seen) + self._ways(other, seen)
            case ast.Subscript(value=value):
                return self._ways(value, seen)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in _SAME:
                return self._ways(args[0] if args and dotted(value) in ("tl", "triton.language") else value, seen)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _MADE_OF:
                base = next(iter([*node.args, *(k.value for k in node.keywords if k.arg == "base")]), None)
                return [()] if base is None else self._ways(base, seen)
            case _:
                return [()]

    def _reached(self, node: ast.expr) -> Iterator[ast.AST]:
        """Yield all nodes that an expression consists of, followed through local names."""
        seen: set[str] = set()
        waiting: list[ast.AST] = [node]
        while waiting:
            for inner in ast.walk(waiting.pop()):
                yield inner
                if isinstance(inner, ast.Name) and inner.id not in seen:
                    seen.add(inner.id)
                    waiting += self._values.get(inner.id, ())

    def _names(self, *nodes: ast.expr) -> set[str]:
        """Return the parameters that expressions name, outside calls."""
        found: set[str] = set()
        waiting: list[ast.AST] = [*nodes]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Name) and node.id in self._parameters:
                found.add(node.id)
            if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] in ("cdiv", "minimum", "min"):
                waiting += ast.iter_child_nodes(node)
        return found

    def _direct(self, node: ast.expr) -> set[str]:
        """Return the parameter that an expression is, or those that it lists."""
        parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
        return {part.id for part in parts if isinstance(part, ast.Name) and part.id in self._parameters}

    def _factors(self, node: ast.expr) -> set[str]:
        """Return the parameters that an expression is, lists, or is the product of."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._factors(node.left) | self._factors(node.right)
        return self._direct(node)

    def _meeting(self, node: ast.BinOp | ast.Compare) -> None:
        """Note the types implied by a binary operation: a number combined with an index is an integer."""
        sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        adds = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
        for side in sides:
            direct = self._direct(side)
            if not direct:
                continue
            others = [other for other in sides if other is not side]
            values = (
                _values_in(others, self._constant)
                if isinstance(node, ast.Compare) and isinstance(node.ops[0], _EQUAL)
                else []
            )
            kinds = {kind for other in others for kind in self._kinds(other)}
            for name in direct:
                if values:
                    self._found.compared[name] = (*self._found.compared.get(name, ()), *values)
            if "real" in kinds:
                self._found.real |= direct
            elif "whole" in kinds and not adds:  # an index is also added to pointers
                self._found.whole |= direct

    def _kinds(self, node: ast.expr) -> Iterator[str]:
        """Yield "whole" for each index and "real" for each loaded or computed value in an expression."""
        for inner in self._reached(node):
            if isinstance(inner, ast.Call):
                last = dotted(inner.func).rpartition(".")[2]
                if last in _INDICES:
                    yield "whole"
                elif last not in ("range", "static_range", "min", "max", "minimum", "maximum", *_SAME):
                    yield "real"
            elif isinstance(inner, ast.Constant) and isinstance(inner.value, float):
                yield "real"

    def _tested(self, test: ast.expr) -> None:
        match test:
            case ast.Name(id=name) if name in self._parameters:
                self._found.switches.add(name)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._tested(operand)
            case ast.BoolOp(values=values):
                for value in values:
                    self._tested(value)
            case _:
                pass


def _is_later_change(name: str, value: ast.expr, use: ast.Name) -> bool:
    """Return True if a value is made of what its name held before, further down than a use of that name."""
    if (value.end_lineno or 0) < use.lineno:
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _program_axes(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the arguments of `program_id`, as written, in these nodes."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and dotted(node.func).endswith("program_id"))
    return frozenset(ast.unparse(value) for call in calls for value in (*call.args, *(k.value for k in call.keywords)))


def _values_in(nodes: Sequence[ast.expr], constant: Constant) -> list[str | int]:
    """Return the strings and integers that something is compared with, singly or in a list, themselves or by name."""
    parts = [part for n in nodes for part in (n.elts if isinstance(n, (ast.Tuple, ast.List, ast.Set)) else [n])]
    found = (part.value if isinstance(part, ast.Constant) else constant(dotted(part)) for part in parts)
    return [value for value in found if isinstance(value, (str, int)) and not isinstance(value, bool)]


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets of an assignment, each with its value."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return [(target, value)]
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(one, value) for one in target.elts]
