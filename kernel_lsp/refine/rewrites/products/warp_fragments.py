"""Products of a warp: each of its lanes is run by number, as in `thread_run`, with blocks of tiles for registers.

A lane knows which elements of a shared tile its registers hold: by `wmma::load_matrix_sync`, by `ldmatrix`, or by loads
of 32 bits. The layouts of fragments are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16". Once all 32 lanes
have run, a product is that of a block of one tile with a block of another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from math import prod
from typing import TypeAlias

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import BlockNames, Tile
from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard, ThreadRun
from kernel_lsp.refine.rewrites.products.warp_instructions import NOTHING, GivenNames, WarpInstruction, WarpInstructions
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, comment_free, declared_identifier
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of

WARP = 32
_MMA = {f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32": kind for kind in ("f16", "bf16")}
_ZEROS = ("0", "0.0", "0.0f", "0.f", "0.")

Register: TypeAlias = tuple[str, tuple[int, ...]]
"""Name and indices of a register or a fragment."""


@dataclass(frozen=True)
class OperandBlock:
    """A block of a tile that is an operand.

    Attributes:
        tile: the tile.
        moved: elements ahead of the block whose number is not known: of its stage.
        outer: first row of A, or column of B.
        depth: first step of K.
        turned: True if neighbours in the tile are rows of A, or columns of B; else they are steps of K.
    """

    tile: Tile
    moved: Polynomial
    outer: int
    depth: int
    turned: bool


@dataclass(frozen=True)
class FragmentProduct:
    """A product of a warp: 16 rows, 16 steps of K.

    Attributes:
        sums: the registers or the fragment to which it is added.
        a: rows.
        b: columns.
        columns: their number.
        kind: type of the elements as the instruction names it; empty for `wmma`.
    """

    sums: tuple[Register, ...]
    a: OperandBlock
    b: OperandBlock
    columns: int
    kind: str


@dataclass(frozen=True)
class _Element:
    """An element of a tile: number of its first element that is known, and the rest."""

    tile: Tile
    moved: Polynomial
    at: int


@dataclass(frozen=True)
class _Fragment:
    """A fragment that `load_matrix_sync` has loaded: from where on, and in which layout."""

    first: _Element
    layout: str


@dataclass(frozen=True)
class _Row:
    """A register that `ldmatrix` has filled: by which of a lane's loads, from which of its matrices."""

    load: int
    matrix: int
    turned: bool


@dataclass(frozen=True)
class _Multiplied:
    """A product as one lane sees it."""

    sums: tuple[Register, ...]
    a: tuple[object, ...]
    b: tuple[object, ...]
    kind: str


@dataclass(frozen=True)
class LaneRun(ThreadRun):
    """One lane on its way through the statements.

    Attributes:
        instructions: what the file calls them.
        layouts: `row_major` or `col_major` of each declared `wmma` fragment that is an operand.
        registers: what each holds.
        loads: places that this lane has given to `ldmatrix`.
        products: in order.
        zeroed: registers that were set to 0.
    """

    instructions: WarpInstructions
    layouts: Mapping[str, str]
    registers: dict[Register, object] = attribute(default_factory=dict[Register, object])
    loads: list[_Element] = attribute(default_factory=list[_Element])
    products: list[_Multiplied] = attribute(default_factory=list[_Multiplied])
    zeroed: set[Register] = attribute(default_factory=set[Register])

    def value_of(self, node: Node) -> int | None:
        """Return the number that an expression is for this lane; None if it is not known."""
        try:
            return self._number(node).value
        except NotApplicableError:
            return None

    def _declared(self, node: Node) -> None:
        for one in node.children_by_field_name("declarator"):
            value = one.child_by_field_name("value")
            if value is None:  # registers or fragments, which are filled later
                continue
            name = text_of(declared_identifier(one))
            if value.type == "initializer_list":
                self._set_to_zero((name, ()), value)
            elif (element := self._loaded(value)) is not None:
                self.registers[name, ()] = element
            else:
                self._named_value(name, value)

    def _named_value(self, name: str, value: Node) -> None:
        """Take note of a number or an address; what is neither matters only where it is used."""
        try:
            self.values[name] = self._number(value)
        except NotApplicableError:
            self.values.pop(name, None)

    def _set_to_zero(self, register: Register, value: Node) -> None:
        text = comment_free(value).translate(str.maketrans("", "", "{}"))
        if any(part not in ("", *_ZEROS) for part in text.split(",")):
            raise NotApplicableError(f"`{register[0]}` does not begin with 0")
        self.zeroed.add(register)

    def _loaded(self, node: Node) -> _Element | None:
        """Return the first of two elements of a tile that 32 bits are loaded from; None for another value."""
        node = bare(node)
        if node.type not in ("pointer_expression", "subscript_expression") or text_of(node).startswith("&"):
            return None
        try:
            place = self._element(node)
            found = self._in_tile(place.address)
        except NotApplicableError:
            return None
        if place.elements != 2 or found.at % 2:
            raise NotApplicableError(f"`{text_of(node)}` is no pair of a tile")
        return found

    def _in_tile(self, address: Polynomial) -> _Element:
        name = next((key[0] for key in address.terms if len(key) == 1 and key[0] in self.block.tiles), None)
        if name is None:
            raise NotApplicableError("an operand that is not in a static tile of shared memory")
        place = address - symbol(name)
        moved = Polynomial({key: n for key, n in place.terms.items() if key})
        return _Element(self.block.tiles[name], moved, place.terms.get((), 0))

    def _expression(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        if guards:
            raise NotApplicableError("a product that not every thread takes part in")
        if node.type == "assignment_expression":
            self._assigned(node)
        elif (instruction := self.instructions.of(node)) is not None:
            self._instruction(instruction)
        elif node.type != "call_expression" or not (comment_free(node) == "__syncwarp()" or self._wmma(node)):
            raise NotApplicableError(f"`{text_of(node)}` is not understood")

    def _assigned(self, node: Node) -> None:
        target, value = self.register(field(node, "left"), NOTHING), bare(field(node, "right"))
        if text_of(field(node, "operator")) != "=":
            raise NotApplicableError(f"`{text_of(node)}` is not understood")
        if (element := self._loaded(value)) is not None:
            self.registers[target] = element
        else:
            self._set_to_zero(target, value)

    def _instruction(self, one: WarpInstruction) -> None:
        if one.name in _MMA and [len(group) for group in one.operands] == [4, 4, 2, 4]:
            into, a, b, before = (tuple(self.register(n, one.given) for n in group) for group in one.operands)
            self._multiply(into, a, b, before, _MMA[one.name])
            return
        parts = one.name.split(".")
        turned, count = "trans" in parts, len(one.operands[0])
        shape = {"ldmatrix", "sync", "aligned", "m8n8", f"x{count}", "b16"}
        if not shape <= set(parts) or set(parts) - shape - {"trans", "shared", "shared::cta"} or len(one.operands) != 2:
            raise NotApplicableError(f"the instruction `{one.name}` is not followed")
        self.loads.append(self._in_tile(self._shared_address(one.operands[1][0], one.given)))
        for at, register in enumerate(one.operands[0]):
            self.registers[self.register(register, one.given)] = _Row(len(self.loads) - 1, at, turned)

    def _multiply(
        self,
        into: tuple[Register, ...],
        a: tuple[Register, ...],
        b: tuple[Register, ...],
        before: tuple[Register, ...],
        kind: str,
    ) -> None:
        if into != before:
            raise NotApplicableError("a product that is not added to its own sums")
        if not all(one in self.registers for one in (*a, *b)):
            raise NotApplicableError("an operand that does not come from a tile")
        held = [tuple(self.registers[one] for one in operand) for operand in (a, b)]
        self.products.append(_Multiplied(into, held[0], held[1], kind))

    def _wmma(self, node: Node) -> bool:
        """Run a call of `wmma`; False for another one."""
        called, given = text_of(field(node, "function")).split("::")[-1], field(node, "arguments").named_children
        if called == "fill_fragment" and len(given) == 2:
            self._set_to_zero(self.register(given[0], NOTHING), given[1])
        elif called == "load_matrix_sync" and len(given) == 3:
            fragment, place = self.register(given[0], NOTHING), self._in_tile(self._shared_address(given[1], NOTHING))
            place = replace(place, tile=_with_rows(place.tile, self._number(given[2]).value))
            if fragment[0] not in self.layouts or self._number(given[2]).value != place.tile.extents[-1]:
                raise NotApplicableError(f"`{text_of(node)}` does not read rows of a tile")
            self.registers[fragment] = _Fragment(place, self.layouts[fragment[0]])
        elif called == "mma_sync" and len(given) == 4:
            into, a, b, before = ((self.register(one, NOTHING),) for one in given)
            self._multiply(into, a, b, before, "")
        else:
            return False
        return True

    def register(self, node: Node, given: GivenNames) -> Register:
        """Return which register an expression means; `given` says what names in a function stand for.

        Raises:
            NotApplicableError: it is none, or which one is not known.
        """
        node = bare(node)
        if node.type == "identifier":
            name = text_of(node)
            if name in self.values:
                raise NotApplicableError(f"`{name}` is no register")
            if name in given.arguments:
                return self.register(given.arguments[name], NOTHING)
            if name in self.block.tiles or name not in self.block.tree.declarations:
                raise NotApplicableError(f"`{name}` is no register")
            return name, ()
        if node.type == "pointer_expression":
            return self.register(field(node, "argument"), given)
        if node.type != "subscript_expression":
            raise NotApplicableError(f"`{text_of(node)}` is no register")
        array, index = bare(field(node, "argument")), self._number(field(node, "indices").named_children[0]).value
        name, path = self.register(array, given)
        if index is None:
            raise NotApplicableError(f"which register `{text_of(node)}` is is not known")
        argument = given.arguments.get(text_of(array))
        if argument is not None and text_of(bare(argument)).startswith("&") and path:
            return name, (*path[:-1], path[-1] + index)
        return name, (*path, index)

    def _shared_address(self, node: Node, given: GivenNames) -> Polynomial:
        """Return an address in shared memory, as a number or a pointer."""
        node = bare(node)
        if node.type == "call_expression" and text_of(field(node, "function")) in self.instructions.address_functions:
            return self._shared_address(field(node, "arguments").named_children[0], given)
        if node.type == "binary_expression" and text_of(field(node, "operator")) == "+" and given == NOTHING:
            return self._shared_address(field(node, "left"), given) + self._number(field(node, "right"))
        if node.type == "identifier":
            name = text_of(node)
            if name in given.arguments:
                return self._shared_address(given.arguments[name], NOTHING)
            value = given.locals.get(name)
            if value is None and name not in self.block.tiles:
                value = self.block.tree.values.get(name)
            if value is not None:
                return self._shared_address(value, given)
        return self._element(node).address if node.type == "subscript_expression" else self._address(node).address


def fragment_products(
    block: BlockNames, instructions: WarpInstructions, layouts: Mapping[str, str], warp: int, statements: Sequence[Node]
) -> list[FragmentProduct]:
    """Return what a warp multiplies in statements, in order.

    Raises:
        NotApplicableError: they do something else, or operands are not blocks of tiles.
    """
    lanes: list[LaneRun] = []
    for lane in range(WARP):
        run = LaneRun(block, thread_values(block, warp * WARP + lane), {}, instructions, layouts)
        for statement in statements:
            run.step(statement, ())
        lanes.append(run)
        if run.products and len(run.products[0].sums) == 1:  # `wmma` wants the same of all lanes
            return list(_by_wmma(run))
    return list(_by_registers(lanes))


def lane_at(block: BlockNames, instructions: WarpInstructions, thread: int) -> LaneRun:
    """Return a thread of a block that has run nothing yet."""
    return LaneRun(block, thread_values(block, thread), {}, instructions, {})


def thread_values(block: BlockNames, thread: int) -> dict[str, Polynomial]:
    """Return the numbers of one thread of a block."""
    x, y, _ = block.shape
    at = {"threadIdx.x": thread % x, "threadIdx.y": thread // x % y, "threadIdx.z": thread // (x * y)}
    return {name: number(value) for name, value in at.items()}


def _by_wmma(run: LaneRun) -> Iterator[FragmentProduct]:
    """Yield the products of fragments of `wmma`."""
    for one in run.products:
        operands: list[OperandBlock] = []
        for (held,), turned in ((one.a, "col_major"), (one.b, "row_major")):
            assert isinstance(held, _Fragment)
            operands.append(_block(held.first, held.layout == turned))
        yield FragmentProduct(one.sums, operands[0], operands[1], 16, one.kind)


def _with_rows(tile: Tile, pitch: int | None) -> Tile:
    """Return a tile without rows of its own as one with rows of `pitch` elements."""
    whole = prod(tile.extents)
    if len(tile.extents) > 1 or not pitch or pitch < 0 or whole % pitch:
        return tile
    return replace(tile, extents=(whole // pitch, pitch))


def _block(first: _Element, turned: bool) -> OperandBlock:
    row, column = divmod(first.at, first.tile.extents[-1])
    outer, depth = (column, row) if turned else (row, column)
    return OperandBlock(first.tile, first.moved, outer, depth, turned)


def _by_registers(lanes: Sequence[LaneRun]) -> Iterator[FragmentProduct]:
    """Yield the products of `mma.sync`."""
    if len({(len(run.products), len(run.loads)) for run in lanes}) != 1:
        raise NotApplicableError("lanes of a warp go different ways")
    for same in zip(*(run.products for run in lanes), strict=True):
        sums = same[0].sums
        if any(one.sums != sums for one in same):
            raise NotApplicableError("lanes of a warp add to different sums")
        a = [[_pair(lanes, lane, register) for register in one.a] for lane, one in enumerate(same)]
        b = [[_pair(lanes, lane, register) for register in one.b] for lane, one in enumerate(same)]
        yield FragmentProduct(sums, _operand(a, True), _operand(b, False), 8, same[0].kind)


def _pair(lanes: Sequence[LaneRun], lane: int, held: object) -> tuple[_Element, _Element]:
    """Return the two elements in a register of a lane."""
    if isinstance(held, _Element):
        return held, replace(held, at=held.at + 1)
    assert isinstance(held, _Row)
    if not held.turned:
        row, at = lanes[8 * held.matrix + lane // 4].loads[held.load], lane % 4 * 2
        return replace(row, at=row.at + at), replace(row, at=row.at + at + 1)
    low, high = (lanes[8 * held.matrix + lane % 4 * 2 + one].loads[held.load] for one in (0, 1))
    return replace(low, at=low.at + lane // 4), replace(high, at=high.at + lane // 4)


def _operand(held: Sequence[Sequence[tuple[_Element, _Element]]], left: bool) -> OperandBlock:
    """Return which block of a tile the lanes' registers are: A has four, 16 rows; B two, 8 columns."""
    first, beside, below = held[0][0][0], held[0][0][1], held[4][0][0]
    apart = (beside if beside.at != first.at + 1 else below).at - first.at  # rows, one way or the other
    first = replace(first, tile=_with_rows(first.tile, apart))
    for turned in (False, True):
        block, pitch = _block(first, turned), first.tile.extents[-1]
        if all(
            replace(element, tile=_with_rows(element.tile, apart))
            == replace(first, at=first.at + (k * pitch + outer if turned else outer * pitch + k))
            for lane, registers in enumerate(held)
            for at, pair in enumerate(registers)
            for half, element in enumerate(pair)
            for outer in [lane // 4 + (8 * (at % 2) if left else 0)]
            for k in [lane % 4 * 2 + half + 8 * (at // 2 if left else at)]
        ):
            return block
    raise NotApplicableError(f"`{first.tile.name}` is not read as fragments of rows and columns")
