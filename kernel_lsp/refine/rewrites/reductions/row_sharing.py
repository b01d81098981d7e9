"""Share out the loops of a thread's row among the threads of a warp or block, statement by statement."""

from dataclasses import dataclass
from dataclasses import field as attribute

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, is_near, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, bare, indent_at
from kernel_lsp.refine.rewrites.reading.reductions import LoopReduction, extreme, find_reductions
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable
from kernel_lsp.refine.rewrites.reading.serial_loops import (
    MemoryAccess,
    MemoryUse,
    NotApplicableError,
    SerialLoop,
    serial_loop,
)
from kernel_lsp.refine.rewrites.reading.touches import ThreadTouch, check_own_elements
from kernel_lsp.refine.rewrites.reductions.placed_extremes import PlacedExtreme, find_placed_extreme
from kernel_lsp.refine.rewrites.reductions.scans import LoopScan, find_scan
from kernel_lsp.refine.rewrites.reductions.team import Team
from kernel_lsp.source.text import Edit, Span, apply_edits, indent_unit
from kernel_lsp.source.trees import field, span_of, text_of, walk

_SHORT = 32  # iterations that are not worth sharing out
_JUMPS = ("break_statement", "return_statement", "goto_statement", "labeled_statement", "switch_statement")
_NEUTRAL_NODES = ("comment", "preproc_call", ";")


@dataclass
class RowSharing:
    """Writes the kernel of a team.

    Attributes:
        use: the accesses of the kernel.
        row: the symbol of the row's number; None where one thread had all rows.
        team: who shares a row.
        skipped: declarations that are left out.
        guard: the statement that tests the row's number; None without one.
        edits: what changes, by now.
        shared: loops that were shared out, by now.
        combines: values of several threads are combined.
        scans: values of several threads are added up in order.
        writes: a loop that was shared out writes to memory.
    """

    use: MemoryUse
    row: str | None
    team: Team
    skipped: set[Node]
    guard: Node | None
    edits: list[Edit] = attribute(default_factory=list)
    shared: int = 0
    combines: bool = False
    scans: bool = False
    writes: bool = False
    _nested: int = 0
    _combined: set[int] = attribute(default_factory=set[int])
    _hard: list[ThreadTouch] = attribute(default_factory=list)
    _soft: list[ThreadTouch] = attribute(default_factory=list)

    @property
    def helpers(self) -> str:
        """Return the definitions of the functions that the new kernel calls; empty if it calls none."""
        return "\n".join([*([self.team.text] if self.combines else []), *([self.team.scan_text] if self.scans else [])])

    def block(self, node: Node) -> None:
        """Share out the loops of a block's statements.

        Raises:
            NotApplicableError: the block does what threads cannot share.
        """
        run: list[Node] = []
        for statement in node.named_children:
            if statement.type in _NEUTRAL_NODES or statement in self.skipped:
                continue
            if self._is_once(statement):
                self._meet(statement, self._touches(statement, "first", reads="first"))
                run.append(statement)
                continue
            self._once(run)
            run = []
            self._statement(statement)
        self._once(run)

    def _statement(self, node: Node) -> None:
        match node.type:
            case "compound_statement":
                self.block(node)
            case "declaration":
                if "__shared__" in text_of(node) or "extern" in text_of(node):
                    raise NotApplicableError("shared memory")
                self._meet(node, self._touches(node, "all"))
            case "expression_statement":
                self._meet(node, self._all_only(node))
            case "return_statement":
                self._check_level()
            case "if_statement":
                self._branches(node)
            case "for_statement":
                self._loop(node)
            case "while_statement" | "do_statement":
                self._uniform(node)
            case _:
                raise NotApplicableError(node.type)

    def _all_only(self, node: Node) -> list[ThreadTouch]:
        """Return what every thread touches in a statement that changes only variables of its own."""
        inner = node.named_children[0] if node.named_child_count else node
        touches = self._touches(node, "all")
        if any(t.access.written for t in touches) or inner.type not in ("assignment_expression", "update_expression"):
            raise NotApplicableError("an effect")
        return touches

    def _check_level(self) -> None:
        """Refuse what some threads at a barrier might not reach."""
        if self.team.mixed and self._nested:
            raise NotApplicableError("a barrier that some threads miss")

    def _branches(self, node: Node) -> None:
        self._nested += node != self.guard
        self._meet(node, self._touches(field(node, "condition"), "all"))
        before = list(self._hard), list(self._soft)
        branches = [field(node, "consequence")]
        if (other := node.child_by_field_name("alternative")) is not None:
            branches += [n for n in other.named_children if n.type != "comment"]
        for branch in branches:
            if branch.type in ("compound_statement", "return_statement", "if_statement"):
                self._statement(branch)
            elif branch.type == "for_statement":
                self._loop(branch)
            elif branch.type == "expression_statement":
                self._meet(node, self._all_only(branch))
            else:
                raise NotApplicableError("a branch without braces")
        self._hard, self._soft = self._hard + before[0], self._soft + before[1]
        self._nested -= node != self.guard

    def _loop(self, node: Node) -> None:
        kept = list(self.edits), list(self._hard), list(self._soft), self.shared, self._nested, self.scans, self.writes
        try:
            self._share(node)
        except NotApplicableError:
            self.edits, self._hard, self._soft, self.shared, self._nested, self.scans, self.writes = kept
            self._uniform(node)
        if node.id in self._combined:  # the threads have met
            self._soft = []
            self._hard = [] if self.team.orders else self._hard

    def _uniform(self, node: Node) -> None:
        """Let every thread run a loop, whose body may have loops to share."""
        self._nested += 1
        heads = [n for n in (node.child_by_field_name(k) for k in ("initializer", "condition", "update")) if n]
        self._meet(node, [t for head in heads for t in self._touches(head, "all")])
        body, before = field(node, "body"), len(self._hard)
        if body.type == "compound_statement":
            self.block(body)
        elif body.type == "for_statement":
            self._loop(body)
        else:
            self._meet(node, self._all_only(body))
        if any(t.access.written for t in self._hard[before:]):
            if body.type == "compound_statement":
                self._before(body.children[-1], self.team.barrier, outer=node)
            else:
                self._braced(node, body)
            self._hard, self._soft = [], []
        self._nested -= 1

    def _braced(self, node: Node, body: Node) -> None:
        """Put a barrier behind the loop that is the body of another, with braces around both."""
        self._check_level()
        if any(edit.span.start == body.end_byte for edit in self.edits):
            raise NotApplicableError("no room for a barrier")
        text = self.use.scopes.tree.file.text
        head, pad = body.prev_sibling, indent_at(text, node.start_byte)
        if head is None:
            raise NotApplicableError("a loop of another form")
        inside = indent_at(text, body.start_byte).removeprefix(pad) or indent_unit(text)
        end = f"\n{pad}{inside}{self.team.barrier}\n{pad}}}"
        self.edits += [Edit(Span(head.end_byte, head.end_byte), " {"), Edit(Span(body.end_byte, body.end_byte), end)]

    def _share(self, node: Node) -> None:
        self._check_level()
        scopes = self.use.scopes
        loop = serial_loop(scopes, node)
        if loop is None or any(n.type in _JUMPS for n in walk(loop.body)):
            raise NotApplicableError("a loop of another form")
        self._check_counter(loop)
        limit = self.use.indices.of(loop.limit).value
        start = self.use.indices.of(loop.start)
        if limit is not None and limit <= _SHORT:
            raise NotApplicableError("a short loop")
        scan = find_scan(self.use, loop) if self.team.scan else None
        placed = find_placed_extreme(self.use, loop) if scan is None else None
        without = (placed.best, placed.place) if placed is not None else ()
        reductions = find_reductions(scopes, loop, without) if scan is None else []
        combines = bool(reductions) or placed is not None
        outer = _outermost(node, reductions) if placed is None else node
        if combines and (outer.parent is None or outer.parent.type != "compound_statement"):
            raise NotApplicableError("a loop without braces round it")
        self._check_private(loop)
        accesses = self.use.accesses(loop.body)
        check_own_elements(self.use, loop, accesses)
        self.writes |= any(a.written for a in accesses)
        if not any(self._gains(loop, access) for access in accesses):
            raise NotApplicableError("neighbouring threads already touch neighbours")
        heads = [*self._touches(loop.condition, "all"), *self._touches(loop.start, "all")]
        touches: list[ThreadTouch] = []
        for access in accesses:
            offset = access.offset
            mine = offset is not None and (by := offset.factor(loop.variable.symbol)) is not None and by.terms != {}
            shifted = _renamed(offset, loop.variable.symbol) if mine and offset is not None else offset
            touches.append(ThreadTouch(_moved(access, shifted), f"element {start}" if mine else "all"))
        self._meet(node, [*heads, *touches])
        if scan is not None:
            self._write_scan(loop, scan)
        else:
            self._write(loop, outer, start, reductions, placed)
        if combines:
            self.combines = True
            self._combined.add(outer.id)
        self.shared += 1

    def _check_counter(self, loop: SerialLoop) -> None:
        """Refuse a counter that is read behind its loop, where it now differs."""
        variable = loop.variable
        declared = variable.declaration
        if declared is not None and declared.parent == loop.node:
            return
        loops = [n for n in walk(self.use.scopes.tree.body) if n.type == "for_statement"]
        mine = [
            span_of(n)
            for n in loops
            if (head := n.child_by_field_name("initializer")) is not None
            if head.type == "assignment_expression" and text_of(field(head, "left")) == variable.name
        ]
        for use in self.use.scopes.uses(variable, self.use.scopes.tree.body):
            if not any(span.holds(span_of(use)) for span in mine):
                raise NotApplicableError("the counter is used behind the loop")

    def _check_private(self, loop: SerialLoop) -> None:
        """Refuse changes of a thread's own arrays, of which each thread would have a part."""
        for node in walk(loop.body):
            changing = {"assignment_expression": "left", "update_expression": "argument"}.get(node.type, "")
            target = node.child_by_field_name(changing)
            if target is not None and target.type in ("subscript_expression", "field_expression"):
                while target.type in ("subscript_expression", "field_expression", "parenthesized_expression"):
                    target = target.child_by_field_name("argument") or target.named_children[0]
                variable = self.use.scopes.of(target) if target.type == "identifier" else None
                inside = variable is not None and variable.declaration is not None
                if variable is None or (inside and not variable.pointer and not _declared_in(variable, loop.body)):
                    raise NotApplicableError("an array of the thread's own")

    def _gains(self, loop: SerialLoop, access: MemoryAccess) -> bool:
        """Return True if the team then reads memory as it lies.

        For a warp or block: the loop touches neighbours, and neighbouring rows do not. For columns the other way round.
        """
        if access.offset is None:
            return False
        along = access.offset.factor(loop.variable.symbol)
        if self.row is None:
            return is_near(along)
        across = access.offset.factor(self.row)
        if self.row in self.use.indices.of(loop.start).names():  # rows that begin where an array says
            across = None
        return _is_far(along) and is_near(across) if self.team.mixed else is_near(along) and _is_far(across)

    def _is_once(self, node: Node) -> bool:
        """Return True for a statement that only writes to memory, for the row as a whole."""
        if node.type not in ("expression_statement", "if_statement"):
            return False
        if any(n.type in (*_JUMPS, *LOOPS, "declaration") for n in walk(node)):
            return False
        accesses = self.use.accesses(node)
        span = span_of(node)
        changes = any(span.holds(span_of(c)) for v in self.use.scopes.variables for c in v.changes)
        own = any(n.type == "subscript_expression" and is_own_target(n, accesses) for n in walk(node))
        return any(a.written for a in accesses) and not changes and not own

    def _touches(self, node: Node, owner: str, reads: str = "all") -> list[ThreadTouch]:
        return [ThreadTouch(a, owner if a.written else reads) for a in self.use.accesses(node)]

    def _meet(self, node: Node, touches: list[ThreadTouch]) -> None:
        """Put a barrier before a statement where it may touch what another thread has touched."""
        hard = any(old.conflicts(new) for old in self._hard for new in touches)
        if hard or any(old.may_alias(new, self.row) for old in self._soft for new in touches):
            self._before(node, self.team.barrier)
            self._hard, self._soft = [], []
        self._hard += touches
        self._soft += touches

    def _before(self, node: Node, line: str, outer: Node | None = None) -> None:
        self._check_level()
        if node.parent is None or node.parent.type != "compound_statement":
            raise NotApplicableError("no room for a barrier")
        text = self.use.scopes.tree.file.text
        first = _with_pragma(node)
        pad = indent_at(text, first.start_byte)
        if outer is not None:  # before the brace that ends a body
            last = indent_at(text, outer.start_byte)
            inside = indent_at(text, node.parent.named_children[0].start_byte).removeprefix(last)
            shown = f"{inside or indent_unit(text)}{line}\n{last}"
            self.edits.append(Edit(Span(first.start_byte, first.start_byte), shown))
        else:
            self.edits.append(Edit(Span(first.start_byte, first.start_byte), f"{line}\n{pad}"))

    def _once(self, run: list[Node]) -> None:
        """Let the first thread alone run some statements."""
        if not run:
            return
        text = self.use.scopes.tree.file.text
        start, end = run[0].start_byte, run[-1].end_byte
        pad, unit, data = indent_at(text, start), indent_unit(text), text.encode()
        inside = data[start:end].decode().replace("\n", f"\n{unit}")
        condition = f"if ({self.team.alone})"
        if len(run) == 1 and "\n" not in inside and run[0].type == "expression_statement":
            self.edits.append(Edit(Span(start, end), f"{condition} {inside}"))
        else:
            self.edits.append(Edit(Span(start, end), f"{condition} {{\n{pad}{unit}{inside}\n{pad}}}"))

    def _write(
        self,
        loop: SerialLoop,
        outer: Node,
        start: Polynomial,
        reductions: list[LoopReduction],
        placed: PlacedExtreme | None,
    ) -> None:
        """Share out a loop; combine what it gathers behind `outer`, which has nothing but that loop in it."""
        team, tree = self.team, self.use.scopes.tree
        pad = indent_at(tree.file.text, outer.start_byte)
        begin = team.first if start.value == 0 else f"{_summand(loop.start)} + {team.first}"
        self.edits.append(Edit(span_of(loop.start), begin))
        self.edits.append(Edit(span_of(loop.update), f"{loop.variable.name} += {team.step}"))
        if self.writes and team.inside:  # threads whose row does not exist write nothing, nor read what others write
            end = loop.condition.end_byte
            self.edits.append(Edit(Span(end, end), f" && {team.inside}"))
        before: list[str] = []
        after: list[str] = []
        for one in reductions:
            name, kind = one.variable.name, one.variable.type
            for node, value in one.compared:
                self.edits.append(Edit(span_of(node), f"{name} = {extreme(one.operation, one.kind)}({name}, {value});"))
            if one.starts_neutral and self._starts_here(one, outer):
                after.append(f"{name} = {team.helper}({name}, {one.function});")
                continue
            own = tree.fresh(f"own_{name}")
            before.append(f"{kind} {own} = {one.neutral};")
            self.edits += [Edit(span_of(n), own) for n in one.uses]
            after.append(f"{name} {one.operation}= {team.helper}({own}, {one.function});")
        if placed is not None:
            after += placed.combined(team.helper, tree.fresh(f"{team.name}_{placed.best.name}"))
        first, end = _with_pragma(outer).start_byte, outer.end_byte
        if before:
            self.edits.append(Edit(Span(first, first), "".join(f"{line}\n{pad}" for line in before)))
        if after:
            self.edits.append(Edit(Span(end, end), "".join(f"\n{pad}{line}" for line in after)))

    def _write_scan(self, loop: SerialLoop, scan: LoopScan) -> None:
        """Let the team add up as many values at once as it has threads, whose order stays."""
        team, tree = self.team, self.use.scopes.tree
        if text_of(field(loop.condition, "operator")) != "<":
            raise NotApplicableError("a running sum of another form")
        counter, limit, total = loop.variable.name, _summand(loop.limit), scan.variable
        first, here = tree.fresh(f"first_{counter}"), tree.fresh(f"{total.name}_here")
        kind, inside = loop.variable.type, f"{counter} < {limit}"
        unit, pad = indent_unit(tree.file.text), indent_at(tree.file.text, loop.node.start_byte)
        lines = [f"const {kind} {counter} = {first} + {team.first};"]
        for one in scan.ahead:
            value = one.children_by_field_name("declarator")[0].child_by_field_name("value")
            text = text_of(one)
            if value is not None and self.use.accesses(value):
                at = Span(value.start_byte - one.start_byte, value.end_byte - one.start_byte)
                text = apply_edits(text, [Edit(at, f"{inside} ? {text_of(value)} : 0")])
            lines.append(text)
        summand = f"static_cast<{total.type}>({inside} ? {text_of(scan.summand)} : 0)"
        if scan.exclusive:
            own = tree.fresh(f"own_{total.name}")
            lines.append(f"const {total.type} {own} = {summand};")
            lines.append(f"const {total.type} {here} = {team.scan}({total.name}, {own}) - {own};")
        else:
            lines.append(f"const {total.type} {here} = {team.scan}({total.name}, {summand});")
        behind: list[str] = []
        for one in scan.behind:
            uses = self.use.scopes.uses(total, one)
            spans = (Span(n.start_byte - one.start_byte, n.end_byte - one.start_byte) for n in uses)
            behind.append(apply_edits(text_of(one), [Edit(span, here) for span in spans]))
        if len(behind) == 1:
            lines.append(f"if ({inside}) {behind[0]}")
        else:
            lines += [f"if ({inside}) {{", *(f"{unit}{text}" for text in behind), "}"]
        body = "".join(f"\n{pad}{unit}{line}" for line in lines)
        head = f"for ({kind} {first} = {text_of(loop.start)}; {first} < {limit}; {first} += {team.step})"
        self.edits.append(Edit(span_of(loop.node), f"{head} {{{body}\n{pad}}}"))
        self.scans = True

    def _starts_here(self, one: LoopReduction, loop: Node) -> bool:
        """Return True if the variable has its first value when the loop begins."""
        if one.operation in ("max", "min"):
            return True
        declaration = one.variable.declaration
        if declaration is None or declaration.parent != loop.parent:
            return False
        return not any(declaration.start_byte < c.start_byte < loop.start_byte for c in one.variable.changes)


def _outermost(loop: Node, reductions: list[LoopReduction]) -> Node:
    """Return the outermost loop that has nothing in it but a loop, and in its head nothing that this one gathers."""
    gathered = {one.variable.name for one in reductions}
    while reductions:
        body = loop if loop.parent is None or loop.parent.type != "compound_statement" else loop.parent
        outer = body.parent
        alone = [n for n in body.named_children if n.type != "comment"] == [loop] or body == loop
        if outer is None or outer.type != "for_statement" or not alone:
            break
        heads = [n for key in ("initializer", "condition", "update") if (n := outer.child_by_field_name(key))]
        if any(text_of(n) in gathered for head in heads for n in walk(head) if n.type == "identifier"):
            break
        loop = outer
    return loop


def _is_far(factor: Polynomial | None) -> bool:
    return factor is None or factor.value is None or abs(factor.value) > _SHORT


def is_own_target(node: Node, accesses: list[MemoryAccess]) -> bool:
    """Return True for an assigned element of a thread's own array."""
    parent = node.parent
    target = parent is not None and parent.type == "assignment_expression" and field(parent, "left") == node
    return target and all(a.node != node for a in accesses)


def _declared_in(variable: CudaVariable, node: Node) -> bool:
    return variable.declaration is not None and span_of(node).holds(span_of(variable.declaration))


def _renamed(offset: Polynomial, counter: str) -> Polynomial:
    factor = offset.factor(counter)
    return offset if factor is None else offset - factor * symbol(counter) + factor * symbol("#")


def _moved(access: MemoryAccess, offset: Polynomial | None) -> MemoryAccess:
    return MemoryAccess(access.node, access.pointer, offset, access.written)


def _with_pragma(node: Node) -> Node:
    previous = node.prev_sibling
    return previous if previous is not None and previous.type == "preproc_call" else node


def _summand(node: Node) -> str:
    text = text_of(node)
    plain = bare(node).type in ("identifier", "number_literal", "subscript_expression") or (
        node.type == "binary_expression" and text_of(field(node, "operator")) in ("+", "-", "*")
    )
    return text if plain else f"({text})"
