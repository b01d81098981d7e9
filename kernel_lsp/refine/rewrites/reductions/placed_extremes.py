"""The place of a row's largest or smallest element: `if (value > best) { best = value; place = j; }` in a loop."""

from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import bare
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, extreme, larger
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, SerialLoop
from kernel_lsp.source.trees import field, span_of, text_of, walk

_LAST = {"int": "0x7fffffff", "int32_t": "0x7fffffff", "unsigned": "~0u", "unsigned int": "~0u", "uint32_t": "~0u"}


@dataclass(frozen=True)
class PlacedExtreme:
    """A loop's extreme with its place, of which the first of equals counts.

    Attributes:
        best: variable of the extreme.
        place: variable of the place, which grows with the loop's counter.
        operation: `max` or `min`.
    """

    best: CudaVariable
    place: CudaVariable
    operation: str

    def combined(self, helper: str, of_all: str) -> list[str]:
        """Return the lines that combine what threads have found; a place that is no thread's best has no say.

        Args:
            helper: name of the function that combines the values of all threads.
            of_all: free name for the extreme of all.
        """
        best, place, kind = self.best.name, self.place.name, self.best.type
        farther = "<" if self.operation == "max" else ">"
        chosen = f"{best} {farther} {of_all} ? {_LAST[self.place.type]} : {place}"
        function = f"[]({kind} a, {kind} b) {{ return {extreme(self.operation, kind)}(a, b); }}"
        first = f"[]({self.place.type} a, {self.place.type} b) {{ return min(a, b); }}"
        return [
            f"const {kind} {of_all} = {helper}({best}, {function});",
            "// The first of equals: a thread that found less has no say.",
            f"{place} = {helper}({chosen}, {first});",
            f"{best} = {of_all};",
        ]


def find_placed_extreme(use: MemoryUse, loop: SerialLoop) -> PlacedExtreme | None:
    """Return the extreme that a loop gathers with its place; None if it gathers none in this way."""
    for node in walk(loop.body):
        if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
            set_here = _assignments(field(node, "consequence"))
            for best, place in ((0, 1), (1, 0)) if len(set_here) == 2 else ():
                found = _placed(use, loop, node, set_here[best], set_here[place])
                if found is not None:
                    return found
    return None


def _assignments(branch: Node) -> list[Node]:
    """Return the assignments that a branch consists of; nothing if it does more."""
    inner = [n for n in branch.named_children if n.type != "comment"] if branch.type == "compound_statement" else []
    found = [n.named_children[0] for n in inner if n.type == "expression_statement" and n.named_child_count == 1]
    plain = all(n.type == "assignment_expression" and text_of(field(n, "operator")) == "=" for n in found)
    return found if plain and len(found) == len(inner) else []


def _placed(use: MemoryUse, loop: SerialLoop, branch: Node, best: Node, place: Node) -> PlacedExtreme | None:
    names = [field(one, "left") for one in (best, place)]
    variables = [use.scopes.of(name) if name.type == "identifier" else None for name in names]
    of_best, of_place = variables
    if of_best is None or of_place is None or of_best is of_place or of_place.type not in _LAST:
        return None
    kind = use.scopes.tree.plain_type(of_best.type)
    if kind not in TYPES or any(_is_inside(one, loop) for one in (of_best, of_place)):
        return None
    condition = field(branch, "condition")
    found = larger(condition, of_best.name)
    strict = not any(n.type in ("<=", ">=") for n in walk(condition))
    if found is None or not strict or "".join(found[1].split()) != "".join(text_of(field(best, "right")).split()):
        return None
    if len(use.scopes.uses(of_best, loop.body)) != 2 or len(use.scopes.uses(of_place, loop.body)) != 1:
        return None
    return PlacedExtreme(of_best, of_place, found[0]) if _grows(use, loop, field(place, "right")) else None


def _is_inside(variable: CudaVariable, loop: SerialLoop) -> bool:
    return variable.declaration is not None and span_of(loop.node).holds(span_of(variable.declaration))


def _grows(use: MemoryUse, loop: SerialLoop, value: Node) -> bool:
    """Return True for a place that is larger in each iteration than in the one before."""
    if use.accesses(value):
        return False
    place = use.indices.of(bare(value))
    by = place.factor(loop.variable.symbol)
    if by is None or by.value is None or by.value < 1:
        return False
    body = span_of(loop.body)
    changing = {
        one.symbol
        for one in use.scopes.variables
        if any(body.holds(span_of(change)) for change in one.changes)
        or (one.declaration is not None and body.holds(span_of(one.declaration)))
    }
    return not place.names() & changing
