"""Rewrite a kernel's older forms of C into those that the rewrites read, without a change of what it does.

Variables that are declared ahead and assigned later are declared where they get their values, in each block anew:
`int i; float x; ... for (i = 0; ...) { x = a[i]; ... }`. A loop that counts by its last statement, as
`int i = first; while (i < n) { ...; i += step; }`, counts in its head. A parameter that is an array, `float x[]`, is
the pointer that it stands for. All three are how most people write today.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    LOOPS,
    KernelTree,
    around,
    bare,
    condition_parts,
    declaration_head,
    declared_identifier,
    indent_at,
    names,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.writing.leftovers import with_remark, without_declarators
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_JUMPS = ("goto_statement", "labeled_statement", "lambda_expression", "preproc_ifdef", "preproc_if")
_STORAGE = ("static", "extern", "volatile", "__shared__")
_PLACES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_EFFECTS = ("call_expression", "subscript_expression", "pointer_expression", "update_expression", "field_expression")


def plain_form(file: SourceFile, kernel: Kernel) -> KernelTree | None:
    """Return a kernel in such forms; None if it has them already, or is not understood."""
    tree = KernelTree(file, kernel)
    try:
        if any(n.type in _JUMPS for n in walk(tree.body)):
            return None
        changed = _with_pointers(tree)
        changed = changed.edited(*_declared_late(changed))
        for node in reversed([n for n in walk(changed.body) if n.type == "while_statement"]):
            changed = changed.edited(*_counted_in_head(changed, node.start_byte))
    except (LookupError, RecursionError):
        return None
    return changed if changed.file.text != file.text else None


def _with_pointers(tree: KernelTree) -> KernelTree:
    """Return a kernel with pointers in place of parameters that are arrays of one dimension."""
    head = tree.body.parent.child_by_field_name("declarator") if tree.body.parent is not None else None
    parameters = head.child_by_field_name("parameters") if head is not None else None
    edits, found = list[Edit](), set[str]()
    for node in parameters.named_children if parameters is not None else []:
        array, kind = node.child_by_field_name("declarator"), node.child_by_field_name("type")
        name = array.child_by_field_name("declarator") if array is not None else None
        if array is None or kind is None or name is None or array.type != "array_declarator":
            continue
        if name.type == "identifier":
            edits.append(Edit(Span(kind.end_byte, array.end_byte), f"* {text_of(name)}"))
            found.add(text_of(name))
    if not edits:
        return tree
    made = tree.edited(*edits)
    shown = (
        replace(one, type=f"{one.type.partition('[')[0].strip()} *") if one.name in found else one
        for one in tree.kernel.parameters
    )
    return KernelTree(made.file, replace(made.kernel, parameters=tuple(shown)))


@dataclass(frozen=True)
class _First:
    """The assignment that begins a variable's life in a block.

    Attributes:
        variable: it.
        target: where it is named.
        value: what it is given.
        statement: the statement, or the loop in whose head it stands.
        scope: bytes in which the variable then means what it does now.
    """

    variable: CudaVariable
    target: Node
    value: Node
    statement: Node
    scope: Span


def _declared_late(tree: KernelTree) -> list[Edit]:
    """Return the edits that declare variables where they are first assigned."""
    scopes = Scopes(tree)
    found = {one.symbol: firsts for one in scopes.variables if (firsts := _firsts(scopes, one))}
    while True:
        by_statement: dict[Node, list[_First]] = {}
        for firsts in found.values():
            for one in firsts:
                by_statement.setdefault(one.statement, []).append(one)
        split = {
            f.variable.symbol for s, firsts in by_statement.items() if len(_parts(s)) != len(firsts) for f in firsts
        }
        if not split:
            break
        found = {symbol: firsts for symbol, firsts in found.items() if symbol not in split}
    edits = [*without_declarators(tree, [_declarator(firsts[0].variable) for firsts in found.values()])]
    for statement, firsts in by_statement.items():
        lines = [_declaration(one) for one in sorted(firsts, key=lambda one: one.target.start_byte)]
        if statement.type == "for_statement":
            edits.append(Edit(span_of(field(statement, "initializer")), lines[0].removesuffix(";")))
        else:
            edits.append(Edit(span_of(statement), f"\n{indent_at(tree.file.text, statement.start_byte)}".join(lines)))
    return [*_without_gaps(tree, edits)]


def _without_gaps(tree: KernelTree, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits; those that remove all lines at the beginning of a block take the empty line behind, too."""
    data, begin = tree.file.text.encode(), -1
    for one in sorted(edits, key=lambda edit: edit.span.start):
        span = one.span
        if not one.text and (span.start == begin or data[: span.start].endswith(b"{\n")):
            begin = span.end
            span = Span(span.start, span.end + (data[span.end : span.end + 1] == b"\n"))
        yield Edit(span, one.text)


def _in_macro(tree: KernelTree, variable: CudaVariable) -> bool:
    """Return True for a variable that a macro may mean, whose uses name it not."""
    macros = (n for n in walk(tree.root) if n.type in ("preproc_def", "preproc_function_def"))
    return any(re.search(rf"\b{variable.name}\b", text_of(n)) for n in macros)


def _declarator(variable: CudaVariable) -> Node:
    assert variable.declaration is not None, "it was looked at"
    every = variable.declaration.children_by_field_name("declarator")
    return next(one for one in every if text_of(declared_identifier(one)) == variable.name)


def _declaration(one: _First) -> str:
    assert one.variable.declaration is not None, "it was looked at"
    kind = declaration_head(one.variable.declaration)
    return f"{kind}{text_of(_declarator(one.variable))} = {text_of(one.value)};"


def _firsts(scopes: Scopes, variable: CudaVariable) -> list[_First]:
    """Return the assignments that begin all of a variable's lives; none if a use may see a value of another one."""
    declaration = variable.declaration
    if declaration is None or variable.value is not None or variable.array or declaration.parent is None:
        return []
    if _in_macro(scopes.tree, variable):
        return []
    head = declaration_head(declaration).split()
    if declaration.parent.type != "compound_statement" or any(word in _STORAGE for word in head):
        return []
    found: list[_First] = []
    for use in scopes.uses(variable, scopes.tree.body):
        if use.parent is not None and use.parent.type == "pointer_expression" and text_of(use.parent).startswith("&"):
            return []
        if any(one.scope.holds(span_of(use)) for one in found):
            continue
        first = _assigned(variable, use)
        if first is None:
            return []
        found.append(first)
    return found


def _assigned(variable: CudaVariable, use: Node) -> _First | None:
    """Return the assignment of which a name is the target, if the variable can be declared there."""
    assignment = use.parent
    if assignment is None or assignment.type != "assignment_expression" or field(assignment, "left") != use:
        return None
    value, statement = field(assignment, "right"), assignment.parent
    if text_of(field(assignment, "operator")) != "=" or variable.name in names(value):
        return None
    while statement is not None and statement.type == "comma_expression":
        statement = statement.parent
    block = statement.parent if statement is not None else None
    if statement is None or block is None or value.type == "assignment_expression":
        return None
    if statement.type == "for_statement" and statement.child_by_field_name("initializer") == assignment:
        return _First(variable, use, value, statement, span_of(statement))
    if statement.type != "expression_statement" or block.type != "compound_statement":
        return None
    return _First(variable, use, value, statement, Span(assignment.start_byte, block.end_byte))


def _parts(statement: Node) -> list[Node]:
    """Return what a statement, or the head of a loop, does one after another."""
    if statement.type == "for_statement":
        return [field(statement, "initializer")]
    waiting, found = list(statement.named_children), list[Node]()
    while waiting:
        one = waiting.pop(0)
        if one.type == "comma_expression":
            waiting = [*one.named_children, *waiting]
        elif one.type != "comment":
            found.append(one)
    return found


def _counted_in_head(tree: KernelTree, at: int) -> Sequence[Edit]:
    """Return the edits that make a loop, which begins at a byte offset, count in its head; none if it cannot."""
    loop = next(n for n in walk(tree.body) if n.type == "while_statement" and n.start_byte == at)
    body, scopes = field(loop, "body"), Scopes(tree)
    conditions = list(condition_parts(field(loop, "condition"), "&&"))
    statements = [n for n in body.named_children if n.type != "comment"]
    if body.type != "compound_statement" or len(conditions) != 1 or conditions[0].type != "binary_expression":
        return []
    counted, last = bare(field(conditions[0], "left")), statements[-1] if len(statements) > 1 else None
    variable = scopes.of(counted) if counted.type == "identifier" else None
    if last is None or last.type != "expression_statement" or variable is None:
        return []
    update = last.named_children[0]
    if loop_step(update, variable.name) is None or len(variable.changes) != 1 or any(_repeats(loop)):
        return []
    start = _start(scopes, variable, loop)
    if start is None or not span_of(last).holds(span_of(variable.changes[0])):
        return []
    head = f"{declaration_head(start)}{variable.name} = {text_of(field(field(start, 'declarator'), 'value'))}"
    text = tree.file.text
    edits = [
        Edit(whole_line(text, Span(start.start_byte, with_remark(start))), ""),
        Edit(Span(loop.start_byte, body.start_byte), f"for ({head}; {text_of(conditions[0])}; {text_of(update)}) "),
        Edit(whole_line(text, Span(last.start_byte, with_remark(last))), ""),
    ]
    return [*_without_gaps(tree, edits)]


def _start(scopes: Scopes, variable: CudaVariable, loop: Node) -> Node | None:
    """Return the declaration of a loop's variable, if it can stand in the loop's head."""
    start, inside = variable.declaration, span_of(loop)
    if start is None or variable.value is None or start.parent != loop.parent or variable.pointer or variable.array:
        return None
    if len(start.children_by_field_name("declarator")) != 1 or _in_macro(scopes.tree, variable):
        return None
    if not all(inside.holds(span_of(n)) for n in scopes.uses(variable, scopes.tree.body)):
        return None
    if start.next_named_sibling == loop:
        return start
    read = [scopes.of(n) for n in walk(variable.value) if n.type == "identifier"]
    effects = [n for n in walk(variable.value) if n.type in _EFFECTS and not _is_place(n)]
    return None if effects or any(one is not None and one.changes for one in read) else start


def _is_place(node: Node) -> bool:
    """Return True for `blockIdx.x` and its like, which do not change."""
    return node.type == "field_expression" and text_of(node).split(".")[0] in (
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
    )


def _repeats(loop: Node) -> Iterator[Node]:
    """Yield the statements that begin a loop's next turn ahead of its end."""
    for node in walk(loop):
        if node.type == "continue_statement" and next(n for n in around(node) if n.type in LOOPS) == loop:
            yield node
