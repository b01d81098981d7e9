"""Run a kernel's block on symbols: of which elements of memory what it stores is the sum.

However a block adds up its elements - by a loop that halves or doubles a distance, or by one statement after another,
in shared memory or in the array itself - what a thread stores in the end is a sum of elements as they were when the
block began. Threads run in lockstep with numbers for numbers, and a set of elements for each value read from memory. A
kernel that does anything else, or whose threads meet in an element with no barrier between, is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any

import numpy as np
import numpy.typing as npt
from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, comment_free, declared_identifier
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, ZERO
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of

_Element = tuple[str, int]  # array and index
Values = npt.NDArray[Any]
"""One value for each thread: whole numbers, or (of dtype object) sums as bit sets of elements."""
_MOST_STATEMENTS = 300
_MOST_ELEMENTS = 16  # of a thread: sets of more are large, and no block adds up as many step by step
_WARP = 32  # threads
_WHOLE = re.compile(r"0|[1-9]\d{0,17}")
_KINDS = {*TYPES, "auto"}
_NUMBER_OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "<<": np.left_shift, ">>": np.right_shift, "&": np.bitwise_and,
    "|": np.bitwise_or, "^": np.bitwise_xor, "/": np.floor_divide, "%": np.remainder,
}  # fmt: skip
_COMPARISONS = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


class BeyondError(LookupError):
    """A block reads beyond the end of an array."""


@dataclass(frozen=True)
class _Pointer:
    array: str
    offset: Values
    volatile: bool


@dataclass(frozen=True)
class BlockStore:
    """A value that one thread stores to an array of the kernel's, which is not read.

    Attributes:
        node: the assignment, or the call of `atomicAdd`.
        array: the parameter.
        elements: the summands, as (array, index).
    """

    node: Node
    array: str
    elements: frozenset[_Element]


@dataclass
class BlockRun:
    """Runs one block of a kernel.

    Attributes:
        tree: the kernel.
        threads: of the block.
        block: its number.
        sizes: values of parameters that are numbers.
        end: how many elements the kernel's arrays have.
        asked: parameters of these that were read.
        loaded: elements of the kernel's arrays that were read, as (array, index).
        changed: the kernel's arrays that were written.
    """

    tree: KernelTree
    threads: int
    block: int
    sizes: Mapping[str, int]
    end: int
    asked: set[str] = attribute(default_factory=set[str])
    loaded: set[_Element] = attribute(default_factory=set[_Element])
    changed: set[str] = attribute(default_factory=set[str])
    _bits: list[_Element] = attribute(default_factory=list[_Element])
    _memory: dict[_Element, int] = attribute(default_factory=dict[_Element, int])
    _names: list[dict[str, "Values | _Pointer | None"]] = attribute(default_factory=list)
    _shared: set[str] = attribute(default_factory=set[str])
    _stores: list[tuple[Node, str, int]] = attribute(default_factory=list[tuple[Node, str, int]])
    _touched: dict[tuple[_Element, bool], tuple[int, int]] = attribute(default_factory=dict[Any, Any])
    _statements: int = 0

    def stores(self) -> list[BlockStore]:
        """Return what the block stores to arrays that it does not read.

        Raises:
            BeyondError: it reads beyond the end of an array.
            LookupError: it does what is not understood.
        """
        zero = np.zeros(self.threads, np.int64)
        given = {name: _Pointer(name, zero, volatile=False) for name in self.tree.pointers if self._is_given(name)}
        self._names.append({**given, **{name: zero + size for name, size in self.sizes.items()}})
        self._gone = np.zeros(self.threads, bool)
        self._statement(self.tree.body, np.ones(self.threads, bool))
        read = {array for array, _ in self.loaded}
        kept = [(node, array, mask) for node, array, mask in self._stores if array not in read]
        return [BlockStore(node, array, frozenset(self._elements(mask))) for node, array, mask in kept]

    def _is_given(self, name: str) -> bool:
        return any(one.name == name for one in self.tree.kernel.parameters)

    def _elements(self, mask: int) -> list[_Element]:
        return [one for bit, one in enumerate(self._bits) if mask >> bit & 1]

    def _statement(self, node: Node, active: Values) -> None:
        active = active & ~self._gone
        self._statements += 1
        if self._statements > _MOST_STATEMENTS:
            raise NotApplicableError("a block that takes too long")
        match node.type:
            case "compound_statement":
                self._names.append({})
                for one in node.named_children:
                    self._statement(one, active)
                self._names.pop()
            case "comment" | "preproc_call":
                return
            case "declaration":
                self._declare(node, active)
            case "expression_statement":
                self._effect(node, active)
            case "return_statement" if not node.named_children:
                self._gone |= active
            case "if_statement":
                self._branch(node, active)
            case "for_statement" | "while_statement":
                self._loop(node, active)
            case _:
                raise NotApplicableError(node.type)

    def _branch(self, node: Node, active: Values) -> None:
        chosen = self._number(_condition(node), active) != 0
        self._statement(field(node, "consequence"), active & chosen)
        other = node.child_by_field_name("alternative")
        if other is not None:
            inner = [n for n in other.named_children if n.type != "comment"]
            self._statement(inner[0], active & ~chosen)

    def _loop(self, node: Node, active: Values) -> None:
        self._names.append({})
        head, update = node.child_by_field_name("initializer"), node.child_by_field_name("update")
        if head is not None:
            self._declare(head, active) if head.type == "declaration" else self._change(head, active)
        while (active := active & ~self._gone & (self._number(_condition(node), active) != 0)).any():
            self._statement(field(node, "body"), active)
            if update is not None:
                self._change(update, active)
        self._names.pop()

    def _declare(self, node: Node, active: Values) -> None:
        text, kind = text_of(node), text_of(field(node, "type"))
        if "static" in text.split() or self.tree.plain_type(kind) not in {*_KINDS, *self.tree.type_parameters}:
            raise NotApplicableError("a variable of another kind")
        for one in node.children_by_field_name("declarator"):
            name, value = text_of(declared_identifier(one)), one.child_by_field_name("value")
            head = text_of(one).split("=")[0]
            if "__shared__" in text:
                if "[" not in head or value is not None:
                    raise NotApplicableError("a shared variable of another kind")
                self._shared.add(name)
                zero = np.zeros(self.threads, np.int64)
                self._names[-1][name] = _Pointer(name, zero, "volatile" in text)
            elif "[" in head or "&" in head:
                raise NotApplicableError("an array of a thread's own")
            elif "*" in head and value is not None:
                found = self._pointer(value, active)
                self._names[-1][name] = _Pointer(found.array, found.offset, found.volatile or "volatile" in text)
            else:
                self._names[-1][name] = None if value is None else self._value(value, active)

    def _effect(self, node: Node, active: Values) -> None:
        if comment_free(node) in ("__syncthreads();", "__syncwarp();"):
            if "threads" in text_of(node):
                self._touched.clear()
            return
        if node.named_child_count == 1:
            self._change(node.named_children[0], active)

    def _change(self, node: Node, active: Values) -> None:
        """Run an expression for what it changes."""
        if node.type == "update_expression":
            target, step = field(node, "argument"), 1 if "++" in text_of(node) else -1
            self._assign(target, self._number(target, active) + step, active, node)
        elif node.type == "assignment_expression":
            target, right, operator = field(node, "left"), field(node, "right"), text_of(field(node, "operator"))
            value = self._value(right, active)
            if operator != "=" and not self._is_result(target, active):
                value = self._combined(operator[:-1], self._value(target, active), value)
            self._assign(target, value, active, node)
        elif node.type == "call_expression" and text_of(field(node, "function")) == "atomicAdd":
            address, value = field(node, "arguments").named_children[:2]
            pointer = self._pointer(address, active)
            if not self._is_given(pointer.array) or pointer.array in {array for array, _ in self.loaded}:
                raise NotApplicableError("an atomic addition to what is read")
            self._store(node, pointer, _sums(self._value(value, active)), active)
        else:
            raise NotApplicableError(node.type)

    def _is_result(self, target: Node, active: Values) -> bool:
        """Return True for an element of an array of the kernel's that was not read by now: `*out += total`."""
        target = bare(target)
        if target.type not in ("subscript_expression", "pointer_expression") or active.sum() != 1:
            return False
        pointer = self._place(target, active)
        return self._is_given(pointer.array) and all(array != pointer.array for array, _ in self.loaded)

    def _assign(self, target: Node, value: Values, active: Values, node: Node) -> None:
        target = bare(target)
        if target.type == "identifier":
            scope = next((one for one in reversed(self._names) if text_of(target) in one), None)
            old = scope[text_of(target)] if scope is not None else None
            if scope is None or isinstance(old, _Pointer) or scope is self._names[0]:
                raise NotApplicableError("a change of what is not the thread's own")
            if old is not None and old.dtype != value.dtype:
                old, value = _sums(old), _sums(value)
            scope[text_of(target)] = value if old is None else np.where(active, value, old)
        else:
            self._store(node, self._place(target, active), _sums(value), active)

    def _place(self, node: Node, active: Values) -> _Pointer:
        """Return the address of an element."""
        if node.type == "subscript_expression":
            base, indices = self._pointer(field(node, "argument"), active), field(node, "indices").named_children
            if len(indices) == 1:
                return _Pointer(base.array, base.offset + self._number(indices[0], active), base.volatile)
        if node.type == "pointer_expression" and text_of(node).startswith("*"):
            return self._pointer(field(node, "argument"), active)
        raise NotApplicableError(node.type)

    def _pointer(self, node: Node, active: Values) -> _Pointer:
        node = bare(node)
        if node.type == "identifier":
            found = self._named(text_of(node))
            if isinstance(found, _Pointer):
                return found
        if node.type == "pointer_expression" and text_of(node).startswith("&"):
            return self._place(bare(field(node, "argument")), active)
        if node.type == "binary_expression" and text_of(field(node, "operator")) == "+":
            base = self._pointer(field(node, "left"), active)
            return _Pointer(base.array, base.offset + self._number(field(node, "right"), active), base.volatile)
        raise NotApplicableError("a pointer of another form")

    def _named(self, name: str) -> "Values | _Pointer":
        for scope in reversed(self._names):
            if (found := scope.get(name)) is not None:
                if scope is self._names[0] and not isinstance(found, _Pointer):
                    self.asked.add(name)
                return found
        raise NotApplicableError(f"`{name}` is not known")

    def _number(self, node: Node, active: Values) -> Values:
        found = self._value(node, active)
        if found.dtype == object:
            raise NotApplicableError("a number that memory says")
        return found

    def _value(self, node: Node, active: Values) -> Values:
        node = bare(node)
        match node.type:
            case "number_literal":
                text = "0" if ZERO.fullmatch(text_of(node)) else text_of(node).rstrip("uUlL")
                return np.full(self.threads, int(text), np.int64) if _WHOLE.fullmatch(text) else _refused(text)
            case "identifier":
                return self._variable(node, active)
            case "field_expression":
                return self._built_in(text_of(node))
            case "binary_expression":
                return self._binary(node, active)
            case "conditional_expression":
                chosen = self._number(field(node, "condition"), active) != 0
                values = (
                    self._value(field(node, "consequence"), active & chosen),
                    self._value(field(node, "alternative"), active & ~chosen),
                )
                one, other = map(_sums, values) if values[0].dtype != values[1].dtype else values
                return np.where(chosen, one, other)
            case "subscript_expression" | "pointer_expression":
                return self._load(self._place(node, active), active)
            case _:
                raise NotApplicableError(node.type)

    def _variable(self, node: Node, active: Values) -> Values:
        name, constant = text_of(node), self.tree.constants.get(text_of(node))
        if not any(name in scope for scope in self._names) and constant is not None:
            return self._value(constant, active)
        found = self._named(name)
        return _refused(name) if isinstance(found, _Pointer) else found

    def _built_in(self, text: str) -> Values:
        values = {"threadIdx.x": np.arange(self.threads), "blockIdx.x": self.block, "blockDim.x": self.threads}
        return np.zeros(self.threads, np.int64) + values[text] if text in values else _refused(text)

    def _binary(self, node: Node, active: Values) -> Values:
        operator, left = text_of(field(node, "operator")), self._value(field(node, "left"), active)
        if operator in ("&&", "||"):
            rest = (left != 0) if operator == "&&" else (left == 0)
            right = self._number(field(node, "right"), active & rest) != 0
            return np.where(rest, right, operator == "||").astype(np.int64)
        return self._combined(operator, left, self._value(field(node, "right"), active))

    def _combined(self, operator: str, left: Values, right: Values) -> Values:
        if object in (left.dtype, right.dtype):
            one, other = _sums(left), _sums(right)
            if operator != "+" or (one & other).any():
                raise NotApplicableError("no sum, or one that has an element twice")
            return one | other
        if (left < 0).any() or (right < 0).any():
            raise NotApplicableError("a negative number, which another type has not")
        if operator in _COMPARISONS:
            return _COMPARISONS[operator](left, right).astype(np.int64)
        if operator not in _NUMBER_OPERATORS or (operator in "/%" and not right.all()):
            raise NotApplicableError(f"`{operator}`")
        return _NUMBER_OPERATORS[operator](left, right)

    def _load(self, pointer: _Pointer, active: Values) -> Values:
        found = np.zeros(self.threads, object)
        for lane in np.flatnonzero(active).tolist():
            key = pointer.array, int(pointer.offset[lane])
            self._touch(pointer, key, lane, writes=False)
            if key not in self._memory:
                if pointer.array in self._shared or key[1] < 0:
                    raise NotApplicableError("an element that nothing was stored to")
                if key[1] >= self.end:
                    raise BeyondError(pointer.array)
                if len(self._bits) >= _MOST_ELEMENTS * self.threads:
                    raise NotApplicableError("too many elements")
                self._memory[key] = 1 << len(self._bits)
                self._bits.append(key)
            if pointer.array not in self._shared:
                self.loaded.add(key)
            found[lane] = self._memory[key]
        return found

    def _store(self, node: Node, pointer: _Pointer, values: Values, active: Values) -> None:
        for lane in np.flatnonzero(active).tolist():
            key = pointer.array, int(pointer.offset[lane])
            self._touch(pointer, key, lane, writes=True)
            self._memory[key] = values[lane]
            if pointer.array not in self._shared:
                self.changed.add(pointer.array)
                self._stores.append((node, pointer.array, values[lane]))

    def _touch(self, pointer: _Pointer, element: _Element, lane: int, *, writes: bool) -> None:
        """Refuse an element that another thread has touched since the last barrier, if one of both writes.

        Threads of a warp that reach for memory each time, through a pointer to what is volatile, run in lockstep.
        """
        for other in (True, *([False] if writes else [])):
            first, last = self._touched.get((element, other), (lane, lane))
            together = pointer.volatile and first // _WARP == lane // _WARP == last // _WARP
            if not (first == lane == last or together):
                raise NotApplicableError("threads meet in an element with no barrier between")
        first, last = self._touched.get((element, writes), (lane, lane))
        self._touched[element, writes] = min(first, lane), max(last, lane)


def _condition(node: Node) -> Node:
    condition = field(node, "condition")
    return field(condition, "value") if condition.type == "condition_clause" else condition


def _sums(values: Values) -> Values:
    """Return values as sums: only 0 is one besides those of elements."""
    if values.dtype == object:
        return values
    if values.any():
        raise NotApplicableError("a sum with a number in it")
    return np.zeros(len(values), object)


def _refused(what: str) -> Values:
    raise NotApplicableError(f"`{what}` is not known")
