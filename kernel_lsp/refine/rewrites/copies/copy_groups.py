"""Find pipelines of `cp.async`: what fills stages of tiles, and what closes and awaits groups of copies."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_copies import copied_rows
from kernel_lsp.refine.rewrites.copies.block_names import BlockNames, Tile
from kernel_lsp.refine.rewrites.copies.staged_loops import (
    TileFill,
    check_form,
    check_memory,
    find_tiles,
    is_barrier,
    only_reads,
)
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_names, function_names, names
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

_COMMIT, _WAIT, _COPY = "__pipeline_commit", "__pipeline_wait_prior", "__pipeline_memcpy_async"
_CLOSES = re.compile(r"cp\.async\.commit_group")
_AWAITS = re.compile(r"cp\.async\.(?:wait_all|wait_group\s+(?P<pending>\d+|%0))")
_THROUGH = ("compound_statement", "else_clause", "declaration", "init_declarator", "expression_statement")


@dataclass(frozen=True)
class Wait:
    """A statement after which all but the last `pending` groups have come."""

    node: Node
    pending: int


@dataclass(frozen=True)
class CopyGroups:
    """A pipeline of `cp.async`.

    Attributes:
        tree: the kernel.
        shape: threads of a block along x, y and z.
        fills: statements that fill rows of tiles.
        closes: statements that close a group.
        waits: statements that await groups.
        under_way: groups that may be under way, or not yet known by all threads to have come.
    """

    tree: KernelTree
    shape: tuple[int, int, int]
    fills: tuple[TileFill, ...]
    closes: tuple[Node, ...]
    waits: tuple[Wait, ...]
    under_way: int

    @property
    def first(self) -> Node:
        """Return the first statement of the kernel that has to do with the pipeline."""
        parts = [*(fill.node for fill in self.fills), *self.closes, *(wait.node for wait in self.waits)]
        return next(
            statement
            for statement in self.tree.body.named_children
            if any(statement.start_byte <= part.start_byte < statement.end_byte for part in parts)
        )


def find_copy_groups(tree: KernelTree, shape: tuple[int, int, int]) -> CopyGroups:
    """Return a kernel's pipeline of `cp.async`, for blocks of a shape.

    Raises:
        NotApplicableError: there is none, or it is not understood.
    """
    check_form(tree)
    return _Finder(tree, shape, find_tiles(tree)).found()


@dataclass(frozen=True)
class _Finder:
    tree: KernelTree
    shape: tuple[int, int, int]
    tiles: Mapping[str, Tile]

    def found(self) -> CopyGroups:
        """Return the pipeline, or refuse it."""
        closes = [node for node, name in self._calls() if name == _COMMIT or name in self._closing]
        waits = [Wait(node, self._pending(node, name)) for node, name in self._calls() if name in self._awaiting]
        if not closes or not waits:
            raise NotApplicableError("the kernel has no groups of asynchronous copies")
        if any(n.type == "return_statement" and n.start_byte < waits[-1].node.start_byte for n in walk(self.tree.body)):
            raise NotApplicableError("threads may leave ahead of the last wait")
        for node in (*closes, *(wait.node for wait in waits)):
            self._same_for_all(node)
        fills = self._fills()
        loop = self._loop(waits)
        self._check_tiles(fills)
        check_memory(self.tree, fills, max(loop.end_byte, waits[-1].node.end_byte))
        under_way = self._under_way(closes, waits, loop)
        return CopyGroups(self.tree, self.shape, tuple(fills), tuple(closes), tuple(waits), under_way)

    def _calls(self) -> Iterator[tuple[Node, str]]:
        """Yield each statement of the kernel that is a call, with the function's name."""
        for node in walk(self.tree.body):
            if node.type == "expression_statement" and node.named_child_count == 1:
                call = node.named_children[0]
                if call.type == "call_expression":
                    yield node, text_of(field(call, "function")).split("<")[0]

    @cached_property
    def _closing(self) -> set[str]:
        return set(self._functions(_CLOSES))

    @cached_property
    def _awaiting(self) -> dict[str, str]:
        """Return functions that await groups: for each, how many may be pending, or `%0` where the call says."""
        return {_WAIT: "%0"} | {name: match["pending"] or "0" for name, match in self._functions(_AWAITS).items()}

    def _functions(self, pattern: re.Pattern[str]) -> dict[str, re.Match[str]]:
        found: dict[str, re.Match[str]] = {}
        for node in walk(self.tree.root):
            if node.type == "function_definition" and (match := pattern.search(text_of(field(node, "body")))):
                found |= dict.fromkeys(function_names(node) - {self.tree.kernel.name}, match)
        return found

    def _pending(self, statement: Node, name: str) -> int:
        """Return how many groups may be pending after a wait."""
        said, call = self._awaiting[name], statement.named_children[0]
        if said == "%0":
            function, given = field(call, "function"), field(call, "arguments").named_children
            if function.type == "template_function":
                given = field(function, "arguments").named_children
            known = self._block(self.tree.body, frozenset()).indices.of(given[0]).value if len(given) == 1 else None
            said = str(known) if known is not None else text_of(statement)
        if not said.isdigit():
            raise NotApplicableError(f"how many groups `{text_of(statement)}` leaves is no number")
        return int(said)

    def _block(self, node: Node, own: frozenset[str]) -> BlockNames:
        return BlockNames(self.tree, self.shape, self.tiles, own, node.start_byte, node.end_byte)

    def _same_for_all(self, node: Node) -> frozenset[str]:
        """Return the variables of loops and lambdas around a node, if all threads take the same way there.

        Raises:
            NotApplicableError: they may not.
        """
        around: list[Node] = []
        while node != self.tree.body and node.parent is not None:
            node = node.parent
            around.insert(0, node)
        own: frozenset[str] = frozenset()
        for outer in around[1:]:
            block = self._block(outer, own)
            if outer.type == "for_statement":
                own |= {self._counted(block, outer)}
            elif outer.type == "lambda_expression":
                own |= self._given(outer)
            elif outer.type == "if_statement":
                if not block.is_uniform(field(outer, "condition")):
                    raise NotApplicableError("threads may take different ways to a copy")
            elif outer.type not in _THROUGH:
                raise NotApplicableError(f"a copy within a `{outer.type.replace('_', ' ')}`")
        return own

    def _counted(self, block: BlockNames, loop: Node) -> str:
        """Return the variable of a loop whose steps are the same for all threads."""
        head, condition = field(loop, "initializer"), field(loop, "condition")
        declarators = head.children_by_field_name("declarator") if head.type == "declaration" else []
        if len(declarators) == 1 and condition.type == "binary_expression":
            variable = text_of(field(declarators[0], "declarator"))
            step = loop_step(field(loop, "update"), variable)
            inner = self._block(loop, block.own | {variable})
            parts = [
                field(declarators[0], "value"),
                condition,
                *([] if step is None or isinstance(step, str) else [step]),
            ]
            if step is not None and all(inner.is_uniform(part) for part in parts):
                return variable
        raise NotApplicableError("threads may take different steps")

    def _given(self, made: Node) -> frozenset[str]:
        """Return the parameters of a lambda that is always called with what is the same for all threads."""
        holder = made.parent
        if holder is None or holder.type != "init_declarator" or not text_of(made).startswith("[&]"):
            raise NotApplicableError("a lambda that is not understood")
        name = text_of(field(holder, "declarator"))
        for node in walk(self.tree.body):
            if node.type == "identifier" and text_of(node) == name and node.start_byte > made.end_byte:
                call = node.parent
                if call is None or call.type != "call_expression" or field(call, "function") != node:
                    raise NotApplicableError(f"`{name}` is not only called")
                block = self._block(call, self._same_for_all(call))
                if not all(block.is_uniform(one) for one in field(call, "arguments").named_children):
                    raise NotApplicableError(f"`{name}` is called with what differs between threads")
        head = made.child_by_field_name("declarator")
        return frozenset(names(head)) if head is not None else frozenset()

    def _fills(self) -> list[TileFill]:
        """Return the largest statements that do nothing but fill tiles asynchronously."""
        fills: list[TileFill] = []
        refused: NotApplicableError | None = None
        for node, name in self._calls():
            helpers = self._block(node, frozenset()).async_helpers
            if (name != _COPY and name not in helpers) or any(_holds(fill.node, node) for fill in fills):
                continue
            try:
                fills.append(self._fill(node))
            except NotApplicableError as error:
                refused = refused or error
        if not fills:
            raise refused or NotApplicableError("the kernel copies nothing asynchronously")
        return fills

    def _fill(self, call: Node) -> TileFill:
        """Return the largest statement around a copy that fills tiles, and does nothing else."""
        found: TileFill | None = None
        refused: NotApplicableError | None = None
        node: Node | None = call
        while node is not None and node != self.tree.body and node.type != "lambda_expression":
            if node.type in ("expression_statement", "for_statement", "if_statement"):
                try:
                    rows = copied_rows(self._block(node, self._same_for_all(node)), node, self._declared(node))
                    if any(inner.type == "expression_statement" and self._is_wait(inner) for inner in walk(node)):
                        break
                    found = TileFill(node, (), rows)
                except NotApplicableError as error:
                    if found is not None:
                        break
                    refused = error
            node = node.parent
        if found is None:
            raise refused or NotApplicableError("a copy that is not understood")
        return found

    def _declared(self, node: Node) -> list[Node]:
        """Return declarations ahead of a node, in the blocks around it, of names that are declared elsewhere, too."""
        found: list[Node] = []
        while node != self.tree.body and node.parent is not None:
            siblings = node.parent.named_children if node.parent.type == "compound_statement" else []
            ahead = [one for one in siblings if one.type == "declaration" and one.end_byte <= node.start_byte]
            found = [one for one in ahead if not declared_names(one) <= self.tree.declarations.keys()] + found
            node = node.parent
        return found

    def _is_wait(self, statement: Node) -> bool:
        return any(
            node == statement and (name in self._awaiting or name in self._closing or name == _COMMIT)
            for node, name in self._calls()
        )

    def _loop(self, waits: list[Wait]) -> Node:
        """Return the only loop that waits for groups, and for all threads after that."""
        loops = [n for n in self.tree.body.named_children if any(_holds(n, wait.node) for wait in waits)]
        loops = [n for n in loops if n.type == "for_statement"]
        if len(loops) != 1 or not any(is_barrier(one) for one in field(loops[0], "body").named_children):
            raise NotApplicableError("no loop of the whole block waits for groups and for all threads")
        return loops[0]

    def _check_tiles(self, fills: list[TileFill]) -> None:
        """Refuse tiles that threads write otherwise."""
        filled = {rows.tile.name for fill in fills for rows in fill.rows}
        for use in walk(self.tree.body):
            if use.type != "identifier" or text_of(use) not in filled:
                continue
            declaration = self.tree.declarations[text_of(use)][0]
            if any(_holds(one, use) for one in (declaration, *(fill.node for fill in fills))):
                continue
            if not only_reads(use):
                raise NotApplicableError(f"`{text_of(use)}` may be changed by what computes from it")

    def _under_way(self, closes: list[Node], waits: list[Wait], loop: Node) -> int:
        """Return a bound of the groups between the oldest one that a thread may await and the newest.

        A thread is at most one barrier of the loop ahead of another one: by the groups of a step.
        """
        ahead = step = 0
        for node, times in self._closed(closes):
            if _holds(loop, node):
                step += times
            elif node.start_byte < loop.start_byte:
                ahead += times
        return max(ahead, max(wait.pending for wait in waits) + step)

    def _closed(self, closes: list[Node]) -> Iterator[tuple[Node, int]]:
        """Yield where groups are closed, in the kernel itself or by calls of a lambda, and how often."""
        for node in closes:
            made = node
            while made != self.tree.body and made.type != "lambda_expression" and made.parent is not None:
                made = made.parent
            if made == self.tree.body:
                yield node, self._times(node)
            elif made.parent is not None:
                name = text_of(field(made.parent, "declarator"))
                for call, called in self._calls():
                    if called == name:
                        yield call, self._times(call)

    def _times(self, node: Node) -> int:
        """Return how often a statement runs in a step of the outermost loop, or at all if that is short."""
        times, indices = 1, self._block(node, frozenset()).indices
        while node.parent is not None and node.parent != self.tree.body:
            if node.type == "for_statement":
                raise NotApplicableError("groups are closed in a loop within a loop")
            node = node.parent
        if node.type == "for_statement" and not any(
            _holds(node, one) for one, name in self._calls() if name in self._awaiting
        ):
            head, limit = field(node, "initializer"), field(field(node, "condition"), "right")
            start = field(head.children_by_field_name("declarator")[0], "value")
            count = (indices.of(limit) - indices.of(start)).value
            if count is None:
                raise NotApplicableError("how many groups are closed ahead of the loop is not known")
            times = max(count, 0) + (text_of(field(field(node, "condition"), "operator")) != "<")
        return times


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte
