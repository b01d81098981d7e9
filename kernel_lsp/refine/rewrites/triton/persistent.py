"""Make Triton programs persistent: each takes many program numbers in turn, so that loads run ahead of the work."""

import re
from collections.abc import Iterator
from itertools import pairwise

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.triton.ast_triton import TritonTree
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_SHAPES = ((16, 1), (4, 3))  # programs for each multiprocessor, stages of the loop


def _launches(tree: TritonTree) -> list[tuple[Node, Node]] | None:
    """Return the first grid component and the arguments of each launch in the file.

    None when a grid is not spelt out, or a launch stands in the kernel or in another launch: their edits would overlap.
    """
    found: list[tuple[Node, Node]] = []
    for node in walk(tree.root):
        if node.type != "call" or field(node, "function").type != "subscript":
            continue
        subscript = field(node, "function")
        if text_of(field(subscript, "value")) != tree.kernel.name:
            continue
        grid = field(subscript, "subscript")
        if grid.type != "tuple" or not grid.named_children:
            return None
        found.append((grid.named_children[0], field(node, "arguments")))
    spans = sorted(span_of(node) for node in (tree.body, *(node for pair in found for node in pair)))
    return None if any(one.end > other.start for one, other in pairwise(spans)) else found


def _moved_parameters(tree: TritonTree) -> list[tuple[Node, str]] | None:
    """Return parameters that the kernel advances by `+=` at its top level; None when one is changed in another way."""
    parameters = {p.name for p in tree.kernel.parameters}
    top = [s.named_children[0] for s in tree.body.named_children if s.type == "expression_statement"]
    found: list[tuple[Node, str]] = []
    for target, _ in tree.assignments:
        name = text_of(target)
        if not {text_of(n) for n in walk(target) if n.type == "identifier"} & parameters:
            continue
        statement = target.parent
        once = all(name != other for _, other in found)
        if statement is None or statement not in top or statement.type != "augmented_assignment" or not once:
            return None
        if text_of(field(statement, "operator")) != "+=":
            return None
        found.append((statement, name))
    return found


def _body(tree: TritonTree, moved: list[tuple[Node, str]], program: str) -> str:
    edits: list[Edit] = []
    start, end = tree.body.start_byte, tree.body.end_byte
    for statement, name in moved:
        edits.append(Edit(_at(field(statement, "left"), start), f"{name}_here"))
        operator = next(c for c in statement.children if text_of(c) == "+=")
        edits.append(Edit(_at(operator, start), f"= {name} +"))
        later = (n for n in walk(tree.body) if n.type == "identifier" and n.start_byte >= statement.end_byte)
        edits += [Edit(_at(n, start), f"{name}_here") for n in later if text_of(n) == name]
    # The interpreter's loop variable is a plain int without a tensor's methods.
    edits += [
        Edit(_at(call, start), f"tl.cast({program}, tl.int32)")
        for call in tree.calls("program_id")
        if re.fullmatch(r"\((axis=)?0\)", "".join(text_of(field(call, "arguments")).split()))
    ]
    data = tree.file.text.encode()[start:end].decode()
    return apply_edits(data, edits).replace("\n", "\n    ")


def _at(node: Node, origin: int) -> Span:
    return Span(node.start_byte - origin, node.end_byte - origin)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel as a loop over program numbers, with some programs for each multiprocessor.

    Only where the launch is in the same file with an explicit grid, and the kernel neither returns early nor reads the
    number of programs.

    Args:
        kernel_file: file of the kernel.
        workload_file: file of the workload, if it is another one.
        kernel: the kernel.
        device: the one that the candidates are for.
    """
    try:
        tree = TritonTree(kernel_file, kernel)
        launches, moved = _launches(tree), _moved_parameters(tree)
        text = text_of(tree.body)
        asks = "tl.program_id(0)" in text or "tl.program_id(axis=0)" in text
        if not launches or moved is None or not asks or "num_programs" in text or kernel.autotuned:
            return
        if any(n.type == "return_statement" for n in walk(tree.body)):
            return
        program, total = "program", "total_programs"
        if {program, total} & {text_of(n) for n in walk(tree.root) if n.type == "identifier"}:
            return
        first = next(n for n in tree.body.named_children)
        docstring = first.type == "expression_statement" and first.named_children[0].type == "string"
        if docstring:
            return
        pad = " " * first.start_point[1]
        parameters = field(tree.function, "parameters")
        plain = [n for n in parameters.named_children if n.type == "identifier"]
        body = _body(tree, moved, program)
    except LookupError:
        return
    after = plain[-1].end_byte if plain else parameters.start_byte + 1
    for each, stages in _SHAPES:
        ahead = f", num_stages={stages}" if stages > 1 else ""
        loop = f"for {program} in tl.range(tl.program_id(0), {total}, tl.num_programs(0){ahead}):\n{pad}    {body}"
        edits = [
            Edit(Span(after, after), f", {total}" if plain else f"{total}, "),
            Edit(span_of(tree.body), "\n".join(line.rstrip() for line in loop.split("\n"))),
        ]
        for grid, given in launches:
            count = text_of(grid)
            edits.append(Edit(span_of(grid), f"min({count}, {each * device.multiprocessors})"))
            end = given.named_children[-1].end_byte
            edits.append(Edit(Span(end, end), f", {total}={count}"))
        file = SourceFile(kernel_file.path, apply_edits(kernel_file.text, edits))
        label = f"{each} persistent programs for each multiprocessor" + (f", {stages} stages" if stages > 1 else "")
        yield Candidate(kernel.language, file, workload_file, label, "rewrite:persistent")
