"""Let a thread that adds up several outputs one after another add them up side by side.

Loops of few turns count a thread's outputs, and the innermost loop adds the terms of one of them. Here the loop over
the terms comes first and the sums lie in registers, so that a value that several outputs need is loaded once for all
of them. Each sum has the same terms in the same order as before. The functions that a kernel calls or is given are
looked at as well as its own body.

Arrays that are stored to are taken for others than those that the terms are loaded from, as in `restrict`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    body_unit,
    comment_free,
    declared_names,
    function_names,
    indent_at,
    statements_of,
)
from kernel_lsp.refine.rewrites.reading.reductions import ZERO
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import SerialLoop, serial_loop
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_MOST_SUMS = 64  # of a thread: 8 x 8 leave half of its registers to the terms
_CHANGES = ("assignment_expression", "update_expression", "call_expression", "lambda_expression")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class _Outputs:
    """Loops over a thread's outputs, around the loop that adds up one of them.

    Attributes:
        loops: from the outermost one on.
        sizes: their numbers of turns.
        declared: for each loop the declarations at the start of its body.
        sum: the declaration of the sum.
        name: of the sum.
        terms: the loop over its terms.
        term: what that loop adds, as text.
        tail: the statements after it, which store.
    """

    loops: tuple[SerialLoop, ...]
    sizes: tuple[int, ...]
    declared: tuple[tuple[Node, ...], ...]
    sum: Node
    name: str
    terms: SerialLoop
    term: str
    tail: tuple[Node, ...]


def _find(scopes: Scopes, outermost: Node) -> _Outputs | None:
    """Return the loops over outputs that begin with a `for` statement; None for any other."""
    loops, sizes, declared, node = list[SerialLoop](), list[int](), list[tuple[Node, ...]](), outermost
    while (loop := serial_loop(scopes, node)) is not None and (size := _turns(loop)) is not None:
        statements = [one for one in statements_of(loop.body) if not _is_pragma(one)]
        ahead = [one for one in statements if one.type == "declaration"]
        rest = statements[len(ahead) :]
        if statements[: len(ahead)] != ahead or not rest or rest[0].type != "for_statement":
            return None
        loops.append(loop)
        sizes.append(size)
        declared.append(tuple(ahead))
        node = rest[0]
        if len(rest) > 1:
            break
    else:
        return None
    terms = serial_loop(scopes, node)
    if not declared[-1] or terms is None or not 1 < math.prod(sizes) <= _MOST_SUMS:
        return None
    *places, (*indices, total) = declared
    known = (*places, tuple(indices))
    return _checked(_Outputs(tuple(loops), tuple(sizes), known, total, "", terms, "", tuple(rest[1:])))


def _is_pragma(node: Node) -> bool:
    """Return True for `#pragma unroll`, of which the new loops have their own."""
    return node.type == "preproc_call" and text_of(node).split()[:2] == ["#pragma", "unroll"]


def _turns(loop: SerialLoop) -> int | None:
    """Return how often a loop runs, if its text says so."""
    count = text_of(loop.limit)
    plain = comment_free(loop.start) == "0" and count.isdigit() and text_of(field(loop.condition, "operator")) == "<"
    return int(count) if plain and loop.variable.declaration is not None else None


def _checked(found: _Outputs) -> _Outputs | None:
    """Return loops over outputs with the name of their sum and its term, if the sums can be added up side by side."""
    declarator = found.sum.child_by_field_name("declarator")
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if declarator is None or value is None or ZERO.fullmatch(text_of(value)) is None:
        return None
    name, added = text_of(field(declarator, "declarator")), statements_of(found.terms.body)
    if _WORD.fullmatch(name) is None or len(found.sum.children_by_field_name("declarator")) != 1 or len(added) != 1:
        return None
    step = _step(added[0])
    if step.type != "assignment_expression" or text_of(field(step, "left")) != name:
        return None
    term, sums = field(step, "right"), text_of(field(step, "operator")) == "+="
    places = [node for group in found.declared for node in group]
    own = {loop.variable.name for loop in found.loops} | {one for node in places for one in declared_names(node)}
    bounds = (found.terms.start, found.terms.limit)
    if not sums or any(map(_changes, (term, *bounds, *places))):
        return None
    if (own | {name}) & (_words(*bounds) | {found.terms.variable.name}):  # each sum has turns of its own
        return None
    if name in _words(term) or not all(map(_stores, found.tail)):
        return None
    if _words(*map(_stored_to, found.tail)) & _words(term, *bounds, *places):  # what one sum stores another may load
        return None
    return replace(found, name=name, term=text_of(term))


def _declares(declaration: Node) -> set[str]:
    return {text_of(node) for node in walk(declaration) if node.type == "identifier"}


def _words(*nodes: Node) -> set[str]:
    return {word for node in nodes for word in _WORD.findall(text_of(node))}


def _changes(node: Node) -> bool:
    """Return True if an expression may do more than compute a value, or a declaration makes more than a plain one."""
    return any(inner.type in _CHANGES for inner in walk(node)) or "static" in _words(node)


def _step(statement: Node) -> Node:
    """Return the expression of a statement."""
    return statement.named_children[0] if statement.type == "expression_statement" else statement


def _stored_to(statement: Node) -> Node:
    """Return the array of a statement that stores to one of its elements."""
    return field(field(_step(statement), "left"), "argument")


def _stores(statement: Node) -> bool:
    """Return True for a statement that stores to an element of an array, and does nothing else."""
    step = _step(statement)
    if step.type != "assignment_expression" or field(step, "left").type != "subscript_expression":
        return False
    return not any(map(_changes, (field(step, "left"), field(step, "right"))))


def _text(found: _Outputs, pad: str) -> str:
    """Return the text that takes the place of the loops."""
    unit = body_unit(pad)
    element = found.name + "".join(f"[{loop.variable.name}]" for loop in found.loops)
    kind = text_of(field(found.sum, "type"))
    sizes = "".join(f"[{size}]" for size in found.sizes)
    head = text_of(found.terms.node)[: found.terms.body.start_byte - found.terms.node.start_byte].rstrip()
    stores = [re.sub(rf"\b{found.name}\b", element, text_of(one)) for one in found.tail]
    lines = [
        "// The sums of all outputs of a thread side by side: what several of them need is loaded once.",
        f"{kind} {found.name}{sizes} = {{}};",
        f"{head} {{",
        *(unit + line for line in _nest(found, [f"{element} += {found.term};"], unit)),
        "}",
        *_nest(found, stores, unit),
    ]
    return f"\n{pad}".join(lines)


def _nest(found: _Outputs, inner: list[str], unit: str) -> list[str]:
    """Return lines of the loops over the outputs around other lines, with the declarations that these need."""
    lines = inner
    for loop, declared in zip(reversed(found.loops), reversed(found.declared), strict=True):
        for one in reversed(declared):
            if _declares(one) & set(_WORD.findall("\n".join(lines))):
                lines = [text_of(one), *lines]
        head = text_of(loop.node)[: loop.body.start_byte - loop.node.start_byte].rstrip()
        lines = ["#pragma unroll", f"{head} {{", *(unit + line for line in lines), "}"]
    return lines


def _functions(kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel) -> Iterator[KernelTree]:
    """Yield the kernel, and the functions of its file that it calls or is given by name when it is launched."""
    tree = KernelTree(kernel_file, kernel)
    yield tree
    given = workload_file.text if workload_file is not None and kernel.template_parameters else ""
    named = _words(tree.body) | set(_WORD.findall(given))
    for node in walk(tree.root):
        body = node.child_by_field_name("body") if node.type == "function_definition" else None
        if body is None or body.type != "compound_statement" or body.has_error:
            continue
        head = text_of(node)[: body.start_byte - node.start_byte]
        if "__device__" in head and function_names(node) & named:
            yield KernelTree(kernel_file, replace(kernel, body=span_of(body), parameters=()))


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the file with all sums of a thread added up side by side."""
    edits: dict[int, Edit] = {}
    try:
        for tree in _functions(kernel_file, workload_file, kernel):
            scopes = Scopes(tree)
            for node in walk(tree.body):
                within = any(edit.span.start <= node.start_byte < edit.span.end for edit in edits.values())
                if node.type != "for_statement" or within or (found := _find(scopes, node)) is None:
                    continue
                before = node.prev_sibling
                first = before if before is not None and _is_pragma(before) else node
                text = _text(found, indent_at(kernel_file.text, node.start_byte))
                edits[node.start_byte] = Edit(Span(first.start_byte, node.end_byte), text)
    except LookupError:
        return
    if edits:
        done = SourceFile(kernel_file.path, apply_edits(kernel_file.text, list(edits.values())))
        label = "all sums of a thread at once"
        yield Candidate(kernel.language, done, workload_file, label, "rewrite:sums_at_once")
