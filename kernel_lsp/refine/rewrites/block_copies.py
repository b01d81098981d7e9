"""Which elements a block copies from global to shared memory: each of its threads is run by name and number.

A copy is spelled in many ways: an element for each thread, a loop that strides by the block, rows and columns by `/`
and `%`, vectors, `cp.async`. So the statements are run for every thread of the block, with numbers for what is known
(`threadIdx`, the block's size, constants) and names for what is the same for all threads. The elements that were
written to a tile are then rows, or they are not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from functools import cached_property
from itertools import pairwise
from math import prod

from tree_sitter import Node

from kernel_lsp.refine.rewrites.affine import Indices, Polynomial, number, symbol
from kernel_lsp.refine.rewrites.ast_cuda import KernelTree, assigned, bare, function_names, names
from kernel_lsp.refine.rewrites.loops import loop_step
from kernel_lsp.refine.rewrites.scopes import Scopes
from kernel_lsp.refine.rewrites.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

_MOST_STEPS = 1024  # of one thread's loop
_VECTOR = re.compile(r"(?:const\s+)?(?P<type>\w+)\s*(?:const\s*)?\*")
_SIZES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("half", "__half", "__nv_bfloat16", "nv_bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int", "half2", "__half2", "__nv_bfloat162", "uint32_t", "int32_t"), 4),
    **dict.fromkeys(("double", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
_ASYNC = "__pipeline_memcpy_async"
_COMMIT, _WAIT = "__pipeline_commit", "__pipeline_wait_prior"
_UNIFORM = {"blockIdx", "blockDim", "gridDim", "min", "max", "sizeof"}
_GROUPS = re.compile(r"cp\.async\.(commit_group|wait_all|wait_group\s+0)")
_VECTOR_MACRO = re.compile(r"\(?(?:reinterpret_cast<(?P<new>[^<>]+)>|\(\((?P<old>[^()]+)\))\(&\(\w+\)\)\)?\[0\]\)?")
_INSTRUCTION = re.compile(r"cp\.async\.c[ag]\.shared[\w.:]*global.*?\[%0\], *\[%1\], *(?P<bytes>\d+|%2)\s*;", re.DOTALL)


@dataclass(frozen=True)
class Tile:
    """A static array in shared memory: its name, type and size of an element in bytes, and its extents."""

    name: str
    type: str
    element_bytes: int
    extents: tuple[int, ...]


@dataclass(frozen=True)
class CopyGuard:
    """`amount < 0`, which a thread asks before it copies."""

    amount: Polynomial


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a tile that lie in global memory with a fixed distance, and neighbours within.

    Attributes:
        tile: the tile.
        start: element of the tile at which its first row begins.
        moved: elements of the tile ahead of `start` whose number is not known, but the same for all: of its stage.
        rows: their number.
        columns: elements of a row.
        pitch: elements from one row of the tile to the next.
        source: pointer parameter that they come from.
        offset: element of the source at which the first row begins.
        distance: elements from one row of the source to the next; 0 for a single row.
        guards: what has to hold for all threads to copy, one for each kind of bound.
    """

    tile: Tile
    start: int
    moved: Polynomial
    rows: int
    columns: int
    pitch: int
    source: str
    offset: Polynomial
    distance: Polynomial
    guards: tuple[CopyGuard, ...]


@dataclass
class _Written:
    """Elements that were written to one tile, or stage: where each comes from, and the guards that were passed."""

    moved: Polynomial
    sources: dict[int, Polynomial] = attribute(default_factory=dict[int, Polynomial])
    guards: dict[str, CopyGuard] = attribute(default_factory=dict[str, CopyGuard])


@dataclass(frozen=True)
class _Place:
    """An address in elements of `type`, as the sum of an array or pointer and an index; and how many are moved."""

    address: Polynomial
    type: str
    elements: int


def element_bytes(tree: KernelTree, name: str) -> int:
    """Return the size of an element's type.

    Raises:
        NotApplicableError: a type of which the size is not known.
    """
    kind = tree.named_type(
        " ".join(word for word in name.split() if word not in ("const", "unsigned", "signed")) or "int"
    )
    if kind not in _SIZES:
        raise NotApplicableError(f"the size of `{name}` is not known")
    return _SIZES[kind]


@dataclass(frozen=True)
class BlockCopies:
    """Runs statements for the threads of a block.

    Attributes:
        tree: the kernel.
        shape: threads of the block along x, y and z.
        tiles: the tiles in shared memory, by name.
        own: names that stand for themselves: the variable of the loop around the statements.
        start: byte offset from which on locals have to be read through, as they do not exist before.
        end: byte offset up to which that is so.
    """

    tree: KernelTree
    shape: tuple[int, int, int]
    tiles: Mapping[str, Tile]
    own: frozenset[str]
    start: int
    end: int

    def rows(self, statement: Node, before: Sequence[Node]) -> tuple[CopiedRows, ...]:
        """Return all that a statement does, as rows of tiles; `before` declares what it may use.

        Raises:
            NotApplicableError: it does something else, or what it copies are no such rows.
        """
        written: dict[str, _Written] = {}
        x, y, z = self.shape
        for thread in range(x * y * z):
            at = {"threadIdx.x": thread % x, "threadIdx.y": thread // x % y, "threadIdx.z": thread // (x * y)}
            run = _ThreadRun(self, {name: number(value) for name, value in at.items()}, written)
            for one in before:
                run.declare(one)
            run.step(statement, ())
        return tuple(self._as_rows(self.tiles[name], what) for name, what in written.items())

    def _as_rows(self, tile: Tile, what: _Written) -> CopiedRows:
        """Return what was written to a tile as rows."""
        places = sorted(what.sources)
        first = what.sources[places[0]]
        starts = [places[0]]
        for before, at in pairwise(places):
            if at != before + 1 or (what.sources[at] - what.sources[before]).value != 1:
                starts.append(at)
        rows, columns = len(starts), len(places) // len(starts)
        if columns == 1 and len(places) > 1:
            raise NotApplicableError(f"neighbours in `{tile.name}` are none in global memory")
        pitch = starts[1] - starts[0] if rows > 1 else columns
        distance = what.sources[starts[1]] - first if rows > 1 else number(0)
        if places[0] < 0 or places[-1] >= prod(tile.extents):
            raise NotApplicableError(f"`{tile.name}` is filled beyond its end")
        for row, start in enumerate(starts):
            apart = what.sources[start] - first - number(row) * distance
            if start != starts[0] + row * pitch or apart.terms or start + columns - 1 not in what.sources:
                raise NotApplicableError(f"`{tile.name}` is not filled by whole rows of one matrix")
        for amount in (starts[0], columns, pitch):
            if amount * tile.element_bytes % 16:
                raise NotApplicableError(f"rows of `{tile.name}` are not made of pieces of 16 bytes")
        pointers = [key[0] for key, n in first.terms.items() if len(key) == 1 and n == 1 and key[0] in self.sources]
        if len(pointers) != 1:
            raise NotApplicableError(f"`{tile.name}` does not come from one pointer")
        if self.sources[pointers[0]] != tile.type:
            raise NotApplicableError(f"`{tile.name}` has other elements than `{pointers[0]}`")
        offset, guards = first - symbol(pointers[0]), tuple(what.guards.values())
        return CopiedRows(tile, starts[0], what.moved, rows, columns, pitch, pointers[0], offset, distance, guards)

    @cached_property
    def sources(self) -> dict[str, str]:
        """Return the type of the elements of each pointer parameter that never changes, by its name."""
        fixed = {p.name for p in self.tree.kernel.parameters} - self._assigned
        return {name: self.tree.named_type(kind) for name, kind in self.tree.pointers.items() if name in fixed}

    @cached_property
    def _assigned(self) -> set[str]:
        return assigned(self.tree.body)

    @cached_property
    def indices(self) -> Indices:
        """Return what reads constants of the file."""
        return Indices(Scopes(self.tree))

    @cached_property
    def _known(self) -> dict[str, bool]:
        return {}

    def is_same_for_all(self, name: str) -> bool:
        """Return True if a name has one value for all threads of a block, from its declaration on."""
        if name not in self._known:
            self._known[name] = False  # while its value is looked at
            value = self.tree.values.get(name)
            if value is not None:
                self._known[name] = self.is_uniform(value)
            elif name not in self.tree.declarations and name not in self._assigned:
                self._known[name] = name in {p.name for p in self.tree.kernel.parameters} or self._is_constant(name)
        return self._known[name]

    def _is_constant(self, name: str) -> bool:
        return any(
            name == text_of(n) for n in walk(self.tree.root) if n.type == "identifier" if self._value(n) is not None
        )

    def _value(self, node: Node) -> int | None:
        return self.indices.of(node).value

    def is_uniform(self, node: Node) -> bool:
        """Return True if an expression has one value for all threads of a block."""
        if any(n.type in ("update_expression", "assignment_expression", "lambda_expression") for n in walk(node)):
            return False
        calls = (text_of(field(n, "function")) for n in walk(node) if n.type == "call_expression")
        if any(called not in _UNIFORM and not called.startswith("static_cast<") for called in calls):
            return False
        return all(name in _UNIFORM or name in self.own or self.is_same_for_all(name) for name in names(node))

    @cached_property
    def async_helpers(self) -> dict[str, int | None]:
        """Return functions of the file that copy by `cp.async`: how many bytes, or None where the third argument says.

        Their first argument is where to, their second one where from.
        """
        found: dict[str, int | None] = {}
        for node in walk(self.tree.root):
            if node.type == "function_definition" and (match := _INSTRUCTION.search(text_of(field(node, "body")))):
                for name in function_names(node):
                    found[name] = int(match["bytes"]) if match["bytes"].isdigit() else None
        return found

    @cached_property
    def vector_macros(self) -> dict[str, str]:
        """Return macros that see an element as the first one of a vector, with the type of the pointer to that."""
        found: dict[str, str] = {}
        for node in walk(self.tree.root):
            value = node.child_by_field_name("value") if node.type == "preproc_function_def" else None
            plain = re.sub(r"\s+(?=\*)", "", text_of(value)).strip() if value is not None else ""
            if match := _VECTOR_MACRO.fullmatch(plain):
                found[text_of(field(node, "name"))] = match["new"] or match["old"]
        return found

    def is_bookkeeping(self, name: str) -> bool:
        """Return True for a call that closes or awaits a group of asynchronous copies: all of them."""
        if name in (_COMMIT, _WAIT):
            return True
        for node in walk(self.tree.root):
            if node.type == "function_definition" and name in function_names(node):
                return (
                    re.search(r"cp\.async\.(commit_group|wait_all|wait_group)", text_of(field(node, "body")))
                    is not None
                )
        return False


@dataclass(frozen=True)
class _ThreadRun:
    """One thread on its way through the statements, with the values of its names."""

    block: BlockCopies
    values: dict[str, Polynomial]
    written: dict[str, _Written]

    def declare(self, statement: Node) -> None:
        """Take note of a declaration; one that is not understood matters only where it is used."""
        try:
            self._declared(statement)
        except LookupError:
            return

    def step(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        """Run one statement."""
        if node.type in ("comment", "preproc_call"):
            return
        if node.type == "compound_statement":
            for child in node.named_children:
                self.step(child, guards)
        elif node.type == "declaration":
            self._declared(node)
        elif node.type == "for_statement":
            self._loop(node, guards)
        elif node.type == "if_statement":
            self._branch(node, guards)
        elif node.type == "expression_statement" and node.named_child_count == 1:
            self._expression(node.named_children[0], guards)
        else:
            raise NotApplicableError(f"`{text_of(node)}` is no copy")

    def _declared(self, node: Node) -> None:
        for one in node.children_by_field_name("declarator"):
            if one.type != "init_declarator":
                raise NotApplicableError(f"`{text_of(node)}` is no copy")
            name = field(one, "declarator")
            while name.type == "pointer_declarator":
                name = field(name, "declarator")
            value = bare(field(one, "value"))
            address = text_of(field(one, "declarator")).startswith("*") or value.type == "pointer_expression"
            self.values[text_of(name)] = self._address(value).address if address else self._number(value)

    def _loop(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        head, condition, update = (field(node, name) for name in ("initializer", "condition", "update"))
        if head.type != "declaration":
            raise NotApplicableError("a loop of copies that declares no variable")
        self._declared(head)
        variable = text_of(field(head.children_by_field_name("declarator")[0], "declarator"))
        by = loop_step(update, variable)
        if by is None:
            raise NotApplicableError(f"the loop over `{variable}` does not count up")
        for _ in range(_MOST_STEPS):
            held = self._asked(condition)
            if held is False:
                return
            if isinstance(held, CopyGuard):
                raise NotApplicableError(f"how often the loop over `{variable}` runs is not known")
            self.step(field(node, "body"), guards)
            grown = number(1) if isinstance(by, str) else self._number(by)
            self.values[variable] = self.values[variable] + grown
        raise NotApplicableError(f"the loop over `{variable}` is too long to follow")

    def _branch(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        then, other = field(node, "consequence"), node.child_by_field_name("alternative")
        asked = [self._asked(part) for part in _parts(field(node, "condition").named_children[0])]
        if False in asked:
            if other is not None:
                self.step(other.named_children[0], guards)
            return
        more = tuple(one for one in asked if isinstance(one, CopyGuard))
        if more and (other is None or _targets(then) != _targets(other)):
            raise NotApplicableError("a bound leaves old values in a tile")
        self.step(then, (*guards, *more))

    def _asked(self, node: Node) -> bool | CopyGuard:
        """Return what a comparison gives, or as a guard where that is not known."""
        node = bare(node)
        if node.type != "binary_expression":
            raise NotApplicableError(f"`{text_of(node)}` is no comparison")
        left, right = (self._number(field(node, side)) for side in ("left", "right"))
        operator = text_of(field(node, "operator"))
        amount = {
            "<": left - right,
            "<=": left - right - number(1),
            ">": right - left,
            ">=": right - left - number(1),
        }.get(operator)
        if amount is None:
            difference = (left - right).value
            if operator != "==" or difference is None:
                raise NotApplicableError(f"`{text_of(node)}` is no bound")
            return difference == 0
        return CopyGuard(amount) if amount.value is None else amount.value < 0

    def _expression(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        if node.type == "assignment_expression" and text_of(field(node, "operator")) == "=":
            value = bare(field(node, "right"))
            if value.type == "conditional_expression":
                asked = [self._asked(part) for part in _parts(field(value, "condition"))]
                if False in asked:
                    raise NotApplicableError("a tile that not every thread fills from memory")
                guards = (*guards, *(one for one in asked if isinstance(one, CopyGuard)))
                value = bare(field(value, "consequence"))
            if value.type == "call_expression" and text_of(field(value, "function")) == "__ldg":
                source = self._address(field(value, "arguments").named_children[0])
            else:
                source = self._element(value)
            self._copied(self._element(bare(field(node, "left"))), source, guards)
            return
        if node.type != "call_expression":
            raise NotApplicableError(f"`{text_of(node)}` is no copy")
        name, given = text_of(field(node, "function")), field(node, "arguments").named_children
        if name == _ASYNC or name in self.block.async_helpers:
            self._copied_async(node, name, given, guards)
        elif not self.block.is_bookkeeping(name) or (name == _WAIT and text_of(given[0]) != "0"):
            raise NotApplicableError(f"`{text_of(node)}` is no copy")

    def _copied_async(self, node: Node, name: str, given: Sequence[Node], guards: tuple[CopyGuard, ...]) -> None:
        size = self.block.async_helpers.get(name)
        if len(given) != (2 if size is not None else 3):
            raise NotApplicableError(f"`{text_of(node)}` may copy less than it fills")
        if size is None:
            size = self._number(given[2]).value
        target, source = self._address(given[0]), self._address(given[1])
        width = element_bytes(self.block.tree, target.type)
        if size is None or size % width:
            raise NotApplicableError(f"`{text_of(node)}` copies parts of elements")
        self._copied(replace(target, elements=size // width), replace(source, elements=size // width), guards)

    def _copied(self, target: _Place, source: _Place, guards: tuple[CopyGuard, ...]) -> None:
        tile = next((key[0] for key in target.address.terms if len(key) == 1 and key[0] in self.block.tiles), None)
        if tile is None or target.elements != source.elements:
            raise NotApplicableError("a copy to a place that is not known")
        place = target.address - symbol(tile)
        at, moved = place.terms.get((), 0), Polynomial({key: n for key, n in place.terms.items() if key})
        written = self.written.setdefault(tile, _Written(moved))
        if written.moved != moved:
            raise NotApplicableError(f"`{tile}` is filled at places that are not known")
        for one in range(target.elements):
            if written.sources.setdefault(at + one, source.address + number(one)) != source.address + number(one):
                raise NotApplicableError(f"`{tile}` is filled twice")
        for guard in guards:
            _note(written.guards, guard)

    def _element(self, node: Node) -> _Place:
        """Return an element that is read or written: `array[index]`, `*pointer`, or a vector of them."""
        if node.type == "pointer_expression" and text_of(node).startswith("*"):
            return self._address(bare_pointer(field(node, "argument")))
        if node.type == "call_expression" and (wide := self.block.vector_macros.get(text_of(field(node, "function")))):
            return self._as_vector(self._element(field(node, "arguments").named_children[0]), wide)
        if node.type != "subscript_expression":
            raise NotApplicableError(f"`{text_of(node)}` is no element of an array")
        subscripts: list[Polynomial] = []
        array = node
        while array.type == "subscript_expression":
            indices = field(array, "indices").named_children
            subscripts.insert(0, self._number(indices[0]))
            array = bare_pointer(field(array, "argument"))
        tile = self.block.tiles.get(text_of(array))
        if tile is not None:
            if len(subscripts) > len(tile.extents):
                raise NotApplicableError(f"`{text_of(node)}` has too many indices")
            at = number(0)
            for extent, index in zip(tile.extents, [*subscripts, *[number(0)] * len(tile.extents)], strict=False):
                at = at * number(extent) + index
            return _Place(symbol(tile.name) + at, tile.type, 1)
        base = self._address(array)
        if len(subscripts) != 1:
            raise NotApplicableError(f"`{text_of(node)}` has too many indices")
        return replace(base, address=base.address + subscripts[0] * number(base.elements))

    def _as_vector(self, place: _Place, kind: str) -> _Place:
        """Return a place as a pointer of a type sees it: as several elements, where that is a vector."""
        match = _VECTOR.fullmatch(kind)
        wide = match["type"] if match else ""
        if wide in ("void", "char") or wide == place.type:
            return place
        lanes, left = divmod(_SIZES.get(wide, 0), element_bytes(self.block.tree, place.type))
        if left or not lanes:
            raise NotApplicableError(f"a cast to `{kind}`")
        return replace(place, elements=lanes)

    def _address(self, node: Node) -> _Place:
        """Return an address: a pointer, an array, or the address of an element, with the elements of a vector cast."""
        node = bare_pointer(node)
        cast = _cast(node)
        if cast is not None:
            return self._as_vector(self._address(cast[1]), cast[0])
        if node.type == "pointer_expression" and text_of(node).startswith("&"):
            return self._element(bare_pointer(field(node, "argument")))
        if node.type == "subscript_expression":
            return self._element(node)
        if node.type == "identifier" and (tile := self.block.tiles.get(text_of(node))) is not None:
            return _Place(symbol(tile.name), tile.type, 1)
        address = self._number(node)
        kinds = {**self.block.sources, **{name: tile.type for name, tile in self.block.tiles.items()}}
        found = [kinds[key[0]] for key, n in address.terms.items() if len(key) == 1 and n == 1 and key[0] in kinds]
        if len(found) != 1:
            raise NotApplicableError(f"where `{text_of(node)}` points is not known")
        return _Place(address, found[0], 1)

    def _number(self, node: Node) -> Polynomial:
        """Return an expression's value for this thread, in names of what is the same for all."""
        node = bare(node)
        text = "".join(text_of(node).split())
        if node.type == "field_expression" and text in self.values:
            return self.values[text]
        if node.type == "field_expression" and text.startswith("blockDim."):
            return number(self.block.shape["xyz".index(text[-1])])
        if node.type == "identifier":
            return self._named(node)
        if node.type == "binary_expression":
            left, right = (self._number(field(node, side)) for side in ("left", "right"))
            if (found := _combined(text_of(field(node, "operator")), left, right)) is not None:
                return found
        elif node.type == "number_literal" or (
            node.type == "field_expression" and text.startswith(("blockI", "gridD"))
        ):
            return self.block.indices.of(node)
        elif node.type == "sizeof_expression" and (kind := node.child_by_field_name("type")) is not None:
            return number(element_bytes(self.block.tree, text_of(kind)))
        return self._spelled(node)

    def _named(self, node: Node) -> Polynomial:
        name = text_of(node)
        if name in self.values:
            return self.values[name]
        if name in self.block.own or name in self.block.sources or name in self.block.tiles:
            return symbol(name)
        if (known := self.block.indices.of(node).value) is not None:
            return number(known)
        value = self.block.tree.values.get(name)
        inside = value is not None and self.block.start <= value.start_byte < self.block.end
        if not inside and self.block.is_same_for_all(name):
            return symbol(name)
        if value is None:
            raise NotApplicableError(f"`{name}` changes, or differs between threads")
        is_pointer = name in self.block.tree.pointers
        self.values[name] = self._address(value).address if is_pointer else self._number(value)
        return self.values[name]

    def _spelled(self, node: Node) -> Polynomial:
        """Return as one unknown what is neither sum nor product, if it is the same for all threads."""
        inner = {self.block.tree.values[name] for name in names(node) & self.block.tree.values.keys()}
        moved = any(self.block.start <= value.start_byte < self.block.end for value in inner)
        if moved or not self.block.is_uniform(node):
            raise NotApplicableError(f"`{text_of(node)}` differs between threads")
        return symbol(f"({text_of(node)})")


def bare_pointer(node: Node) -> Node:
    """Return a pointer without parentheses: casts matter, for the elements that they mean."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return node


def _cast(node: Node) -> tuple[str, Node] | None:
    """Return type and value of a cast between pointers."""
    if node.type == "cast_expression":
        return text_of(field(node, "type")), field(node, "value")
    if node.type == "call_expression":
        match = re.fullmatch(r"(?:reinterpret|static)_cast\s*<(.+)>", text_of(field(node, "function")), re.DOTALL)
        given = field(node, "arguments").named_children
        if match and len(given) == 1:
            return match[1].strip(), given[0]
    return None


def _parts(node: Node) -> Iterator[Node]:
    """Yield what a condition joins by `&&`."""
    node = bare(node)
    if node.type == "binary_expression" and text_of(field(node, "operator")) == "&&":
        yield from _parts(field(node, "left"))
        yield from _parts(field(node, "right"))
    else:
        yield node


def _targets(node: Node) -> set[str]:
    """Return the texts of what a statement assigns."""
    found = (field(n, "left") for n in walk(node) if n.type == "assignment_expression")
    return {"".join(text_of(n).split()) for n in found}


def _combined(operator: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
    """Return a sum, a product, or a division without rest; None where the result is not known."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    a, b = left.value, right.value
    if operator == "/" and b and all(n % b == 0 for n in left.terms.values()):
        return Polynomial({key: n // b for key, n in left.terms.items()})
    if a is None or b is None or min(a, b) < 0:
        return None
    known = {"&": a & b, "|": a | b, "^": a ^ b}
    if b:
        known |= {"/": a // b, "%": a % b}
    if b < 32:
        known |= {"<<": a << b, ">>": a >> b}
    return number(known[operator]) if operator in known else None


def _note(guards: dict[str, CopyGuard], guard: CopyGuard) -> None:
    """Keep the strictest guard of each kind: those that differ by a number."""
    rest = {key: n for key, n in guard.amount.terms.items() if key}
    kind, amount = str(Polynomial(rest)), guard.amount.terms.get((), 0)
    if kind not in guards or guards[kind].amount.terms.get((), 0) < amount:
        guards[kind] = guard
