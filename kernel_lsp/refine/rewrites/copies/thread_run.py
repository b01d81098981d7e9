"""One thread of a block on its way through statements that copy from global to shared memory.

It knows numbers for what is its own (`threadIdx`, the block's size, constants) and names for what is the same for all
threads, and takes down which element of which tile comes from where.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from functools import cache

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import PIPELINE_WAIT, SIZES, BlockNames, element_bytes
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, condition_parts, names
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

_MOST_STEPS = 1024  # of one thread's loop
_VECTOR = re.compile(r"(?:const\s+)?(?P<type>\w+)\s*(?:const\s*)?\*")
_ASYNC = "__pipeline_memcpy_async"


@dataclass(frozen=True)
class CopyGuard:
    """`amount < 0`, which a thread asks before it copies."""

    amount: Polynomial


@dataclass
class WrittenTile:
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


@dataclass(frozen=True)
class ThreadRun:
    """One thread on its way through the statements, with the values of its names."""

    block: BlockNames
    values: dict[str, Polynomial]
    written: dict[str, WrittenTile]

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
        asked = [self._asked(part) for part in condition_parts(field(node, "condition"), "&&")]
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
                asked = [self._asked(part) for part in condition_parts(field(value, "condition"), "&&")]
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
        elif not self.block.is_bookkeeping(name) or (name == PIPELINE_WAIT and text_of(given[0]) != "0"):
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
        written = self.written.setdefault(tile, WrittenTile(moved))
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
            return self._address(_bare_pointer(field(node, "argument")))
        if node.type == "call_expression" and (wide := self.block.vector_macros.get(text_of(field(node, "function")))):
            return self._as_vector(self._element(field(node, "arguments").named_children[0]), wide)
        if node.type != "subscript_expression":
            raise NotApplicableError(f"`{text_of(node)}` is no element of an array")
        subscripts: list[Polynomial] = []
        array = node
        while array.type == "subscript_expression":
            indices = field(array, "indices").named_children
            subscripts.insert(0, self._number(indices[0]))
            array = _bare_pointer(field(array, "argument"))
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
        lanes, left = divmod(SIZES.get(wide, 0), element_bytes(self.block.tree, place.type))
        if left or not lanes:
            raise NotApplicableError(f"a cast to `{kind}`")
        return replace(place, elements=lanes)

    def _address(self, node: Node) -> _Place:
        """Return an address: a pointer, an array, or the address of an element, with the elements of a vector cast."""
        node = _bare_pointer(node)
        cast = _cast(node)
        if cast is not None:
            return self._as_vector(self._address(cast[1]), cast[0])
        if node.type == "pointer_expression" and text_of(node).startswith("&"):
            return self._element(_bare_pointer(field(node, "argument")))
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
        if node.type == "identifier":
            return self._named(node)
        if node.type == "number_literal" and (known := _literal(text_of(node))) is not None:
            return known
        text = "".join(text_of(node).split()) if node.type == "field_expression" else ""
        if text in self.values:
            return self.values[text]
        if text.startswith("blockDim."):
            return number(self.block.shape["xyz".index(text[-1])])
        if node.type == "binary_expression":
            left, right = (self._number(field(node, side)) for side in ("left", "right"))
            if (found := _combined(text_of(field(node, "operator")), left, right)) is not None:
                return found
        elif node.type == "number_literal" or text.startswith(("blockI", "gridD")):
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


@cache
def _literal(text: str) -> Polynomial | None:
    """Return a plain number; None for one with a sign or a suffix."""
    return number(int(text)) if text.isdecimal() and (text == "0" or text[0] != "0") else None


def _bare_pointer(node: Node) -> Node:
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
