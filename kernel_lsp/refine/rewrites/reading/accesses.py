"""Find the array accesses of a loop that touch neighbours when its variable grows by one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, bare, names, written
from kernel_lsp.refine.rewrites.reading.loops import IndexLoop
from kernel_lsp.source.trees import field, text_of, walk

_CONDITIONAL = {
    "if_statement",
    "conditional_expression",
    "for_statement",
    "while_statement",
    "do_statement",
    "switch_statement",
}


@dataclass(frozen=True, slots=True)
class AccessGroup:
    """Accesses `array[offset + variable]` of one loop body that share array and offset.

    Attributes:
        array: pointer's name.
        offset: what is added to the loop's variable, as text; empty for nothing.
        element: type of the elements, as the kernel names it.
        kind: the type that this name stands for.
        nodes: the subscript expressions.
        read: some access reads what was there before the iteration.
        written: some access writes.
        always: every iteration makes at least one read (if `read`) and one write (if `written`).
        modular: the index is `variable % width` plus multiples of `width`; `offset` is then the index of the first
            lane, in the names of the loop's `Modulus`.
    """

    array: str
    offset: str
    element: str
    kind: str
    nodes: tuple[Node, ...]
    read: bool
    written: bool
    always: bool
    modular: bool

    @property
    def address(self) -> str:
        """Return the address of the element at index 0, as text."""
        return f"{self.array} + {self.offset}" if self.offset else self.array


@dataclass(frozen=True, slots=True)
class Modulus:
    """`variable / width` and `variable % width` in a loop's body.

    While `width` is a multiple of the lanes, the quotient is the same for all lanes and the remainder grows by one.
    """

    width: Node
    quotients: tuple[Node, ...]
    remainders: tuple[Node, ...]
    quotient: str
    remainder: str

    def names_of(self) -> dict[int, str]:
        """Return names for the nodes, by node id, as in the first lane."""
        return {n.id: self.quotient for n in self.quotients} | {n.id: self.remainder for n in self.remainders}


def find_modulus(tree: KernelTree, loop: IndexLoop) -> Modulus | None:
    """Return the only width that the body divides the loop's variable by; None for none or several."""
    found: dict[str, list[Node]] = {"/": [], "%": []}
    widths: dict[str, Node] = {}
    for node in walk(loop.body):
        if node.type == "binary_expression" and (operator := text_of(field(node, "operator"))) in found:
            left, right = bare(field(node, "left")), bare(field(node, "right"))
            if left.type == "identifier" and text_of(left) == loop.variable:
                widths[tree.canonical(right)] = right
                found[operator].append(node)
    if len(widths) != 1 or not found["%"]:
        return None
    (width,) = widths.values()
    if width.type not in ("identifier", "number_literal") or text_of(width) in assigned(loop.body):
        return None
    row, column = tree.fresh(f"{loop.variable}_row"), tree.fresh(f"{loop.variable}_column")
    return Modulus(width, tuple(found["/"]), tuple(found["%"]), row, column)


def _terms(node: Node, values: dict[str, Node], sign: str = "+") -> Iterator[tuple[str, Node]]:
    core = bare(node)
    if core.type == "identifier" and text_of(core) in values:
        yield from _terms(values[text_of(core)], values, sign)
    elif core.type == "binary_expression" and text_of(field(core, "operator")) in "+-":
        other = "+" if text_of(field(core, "operator")) == sign else "-"
        # A cast around a sum narrows or widens the sum itself and is left alone.
        if core is not node and node.type not in ("binary_expression", "parenthesized_expression"):
            yield sign, node
        else:
            yield from _terms(field(core, "left"), values, sign)
            yield from _terms(field(core, "right"), values, other)
    else:
        yield sign, core if core.type == "identifier" else node


def _text(node: Node, values: dict[str, Node], renamed: Mapping[int, str] | None = None) -> str:
    """Return the node's text with the body's own constants inserted and some nodes, by id, replaced."""
    if renamed and node.id in renamed:
        return renamed[node.id]
    if node.type == "identifier" and text_of(node) in values:
        return f"({_text(values[text_of(node)], values, renamed)})"
    if not node.children:
        return text_of(node)
    out, at = "", node.start_byte
    data = text_of(node).encode()
    for child in node.children:
        out += data[at - node.start_byte : child.start_byte - node.start_byte].decode() + _text(child, values, renamed)
        at = child.end_byte
    return out


def _offset(index: Node, loop: IndexLoop, values: dict[str, Node], changing: set[str]) -> str | None:
    """Return the index without the loop's variable; None if it does not grow by one with that variable."""
    terms = list(_terms(index, values))
    mine = [sign for sign, node in terms if node.type == "identifier" and text_of(node) == loop.variable]
    rest = [(sign, node, _text(node, values)) for sign, node in terms if text_of(node) != loop.variable]
    if mine != ["+"]:
        return None
    out = ""
    for sign, node, text in rest:
        used = names(node) | {text_of(n) for v in names(node) & values.keys() for n in walk(values[v])}
        calls = any(n.type in ("call_expression", "update_expression", "subscript_expression") for n in walk(node))
        if used & (changing | {loop.variable}) or calls or bare(node).type == "number_literal":
            return None
        out += f" {sign} {text}" if out else text if sign == "+" else f"-{text}"
    return out


def _resolved(node: Node, values: dict[str, Node]) -> Node:
    core = bare(node)
    while core.type == "identifier" and text_of(core) in values:
        core = bare(values[text_of(core)])
    return core


def _factors(node: Node, values: dict[str, Node]) -> Iterator[Node]:
    core = _resolved(node, values)
    if core.type == "binary_expression" and text_of(field(core, "operator")) == "*":
        yield from _factors(field(core, "left"), values)
        yield from _factors(field(core, "right"), values)
    else:
        yield core


def _modular_offset(
    index: Node, loop: IndexLoop, modulus: Modulus, values: dict[str, Node], changing: set[str]
) -> str | None:
    """Return the first lane's index if it is the remainder plus multiples of the width, else None."""
    terms = [(sign, _resolved(node, values)) for sign, node in _terms(index, values)]
    remainders = {node.id for node in modulus.remainders}
    if [sign for sign, node in terms if node.id in remainders] != ["+"]:
        return None
    renamed = modulus.names_of()
    for _, node in terms:
        if node.id in remainders:
            continue
        if not any(text_of(f) == text_of(modulus.width) for f in _factors(node, values)):
            return None
        words = set(re.findall(r"\w+", _text(node, values, renamed)))
        if words & ({loop.variable, modulus.remainder} | changing):
            return None
    return _text(index, values, renamed)


def _conditional(node: Node, body: Node) -> bool:
    child, parent = node, node.parent
    while parent is not None and child != body:
        asked = parent.type in ("if_statement", "conditional_expression") and child == field(parent, "condition")
        if parent.type in _CONDITIONAL and not asked:
            return True
        if parent.type == "binary_expression" and text_of(field(parent, "operator")) in ("&&", "||"):
            return True
        child, parent = parent, parent.parent
    return False


def _mode(node: Node) -> tuple[bool, bool] | None:
    """Return whether a subscript is read and whether it is written; None when its address escapes."""
    parent = node.parent
    while parent is not None and parent.type == "parenthesized_expression":
        node, parent = parent, parent.parent
    if parent is None or parent.type in ("pointer_expression", "update_expression"):
        return (True, True) if parent is not None and parent.type == "update_expression" else None
    if parent.type == "field_expression":
        return None
    if parent.type == "assignment_expression" and field(parent, "left") == node:
        return text_of(field(parent, "operator")) != "=", True
    return True, False


def _whole(node: Node) -> Node:
    """Return the whole assignment to a subscript."""
    while node.parent is not None and node.type != "assignment_expression":
        node = node.parent
    return node


def lane_groups(tree: KernelTree, loop: IndexLoop, modulus: Modulus | None = None) -> list[AccessGroup] | None:
    """Return the groups of a loop's body that can be moved as whole vectors; None when the loop must not be changed.

    Arrays written in the body are only taken when every access to them is in such a group and every write is made in
    each iteration, so that gathering reads before and writes behind the iterations changes nothing. With a `modulus`,
    modular groups are found as well.
    """
    body = loop.body
    if tree.collective(body) or any(n.type in ("return_statement", "goto_statement") for n in walk(body)):
        return None
    jump = min((n.start_byte for n in walk(body) if n.type == "continue_statement"), default=body.end_byte)
    if any(n.type == "break_statement" for n in walk(body)):
        return None
    changing = assigned(body)
    own = {n: v for n, v in tree.values.items() if body.start_byte <= v.start_byte < body.end_byte}
    declared = {
        n for n, (d, _) in tree.declarations.items() if body.start_byte <= d.start_byte < body.end_byte and n not in own
    }
    found: dict[tuple[str, str, bool], list[tuple[Node, bool, bool]]] = {}
    loose: set[str] = set()  # arrays with an access outside every group
    stored: set[str] = set()
    moving = assigned(tree.body)
    for node in (n for n in walk(body) if n.type == "subscript_expression"):
        target = bare(field(node, "argument"))
        if target.type != "identifier":
            loose |= {tree.base(n) for n in names(target)}
            continue
        array, mode = text_of(target), _mode(node)
        indices = field(node, "indices").named_children
        offset, modular = None, False
        if len(indices) == 1 and array not in moving and array not in own and array in tree.pointers:
            offset = _offset(indices[0], loop, own, changing | declared)
            if offset is None and modulus:
                offset, modular = _modular_offset(indices[0], loop, modulus, own, changing | declared), True
        if mode is None or mode[1]:
            stored.add(tree.base(array))
        if mode is None or offset is None:
            loose.add(tree.base(array))
        else:
            found.setdefault((array, offset, modular), []).append((node, *mode))
    for node in walk(body):  # `*p`, or the pointer as an argument
        if node.type == "identifier" and text_of(node) in tree.pointers:
            parent = node.parent
            if parent is not None and parent.type != "subscript_expression":
                loose.add(tree.base(text_of(node)))
                stored.add(tree.base(text_of(node)))
    groups: list[AccessGroup] = []
    for (array, offset, modular), uses in found.items():
        certain = [u for u in uses if u[0].end_byte <= jump and not _conditional(u[0], body)]
        set_by = min((_whole(node).end_byte for node, reads, _ in certain if not reads), default=body.end_byte)
        read = any(reads and node.start_byte < set_by for node, reads, _ in uses)
        stores = any(u[2] for u in uses)
        always = (not read or any(u[1] for u in certain)) and (not stores or all(u in certain for u in uses if u[2]))
        nodes, element = tuple(u[0] for u in uses), tree.pointers[array]
        kind = tree.named_type(element)
        groups.append(AccessGroup(array, offset, element, kind, nodes, read, stores, always, modular))
    loose |= {tree.base(g.array) for g in groups if not g.always}
    return [g for g in groups if g.always and not (tree.base(g.array) in loose and tree.base(g.array) in stored)]


def shared_between(tree: KernelTree, loop: IndexLoop) -> bool:
    """Return True if other code accesses, without a barrier between, the arrays that this loop writes.

    Such a loop depends on which thread handles which index.
    """
    arrays = {
        tree.base(text_of(bare(field(t, "argument")))) for t in written(loop.body) if t.type == "subscript_expression"
    }
    data = tree.file.text.encode()
    for node in walk(tree.body):
        if node.type != "subscript_expression" or tree.base(text_of(bare(field(node, "argument")))) not in arrays:
            continue
        if node.end_byte <= loop.node.start_byte:
            between = data[node.end_byte : loop.node.start_byte]
        elif node.start_byte >= loop.node.end_byte:
            between = data[loop.node.end_byte : node.start_byte]
        else:
            continue
        if not tree.collective(between.decode()):
            return True
    return False
