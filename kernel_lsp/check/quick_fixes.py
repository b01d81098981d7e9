"""Mechanical fixes of what a check finds in CUDA kernels: guards for accesses out of bounds, barriers for races.

A fix is text, made from the place of the finding and the kernel's parameters. It may be wrong: `judged` checks the
fixed file as it checked the file, and returns only fixes that leave less to find and nothing new.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TYPE_CHECKING

from kernel_lsp.check.checker import Checker
from kernel_lsp.check.record import FileReport
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.rules import memory
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.grammar import parse_cuda
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import source_part
from kernel_lsp.source.text import Edit, Lines, Span, apply_edits
from kernel_lsp.source.trees import span_of, text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_TRIED = 4  # fixes of one finding that are checked; each check takes seconds
_INTEGER = re.compile(
    r"(?:const\s+)?(?:unsigned\s+)?(?:int|long|long long|size_t|u?int(?:32|64)_t|unsigned)(?:\s+const)?"
)
_STRICTER = {"<=": "<", ">": ">="}
"""Comparisons that let one index too many through, and what they should be."""


@dataclass(frozen=True, slots=True)
class QuickFix:
    """A mechanical fix of a finding.

    Attributes:
        rule: the finding's.
        line: the finding's, from 1.
        title: what is done, for a person.
        edits: of the file, at its byte offsets.
    """

    rule: str
    line: int
    title: str
    edits: tuple[Edit, ...]


def find_quick_fixes(source: SourceFile, finding: Diagnostic) -> Iterator[QuickFix]:
    """Yield fixes of a finding, the most likely first; none for a rule without a mechanical fix."""
    maker = _MAKERS.get(finding.code or "")
    lines = Lines(source.text.encode())
    at = lines.offset(finding.line, finding.column)
    for kernel in find_kernels(source.text, source.path):
        if maker is None or source_part(kernel.language).python or not kernel.body.start <= at < kernel.body.end:
            continue
        root = parse_cuda(source.text.encode()).root_node
        statement = _statement(root, lines.offset(finding.line, 1), lines.offset(finding.line, 1 << 30), kernel.body)
        if statement is not None:
            for title, edits in maker(source.text.encode(), kernel, statement):
                yield QuickFix(finding.code or "", finding.line, title, tuple(edits))


def is_fixable(finding: Diagnostic) -> bool:
    """Return True for an error of a rule that has mechanical fixes."""
    return finding.severity is Severity.ERROR and finding.code in _MAKERS


async def judged(checker: Checker, source: SourceFile, report: FileReport) -> list[QuickFix]:
    """Return for each error of a report the first fix that leaves less errors and no new kind of them.

    Args:
        checker: runs the fixed files.
        source: the file that was checked.
        report: what was found.
    """
    before = _errors(report)
    found: list[QuickFix] = []
    seen: set[tuple[str | None, int]] = set()
    for finding in report.diagnostics:
        if finding.severity is not Severity.ERROR or (finding.code, finding.line) in seen:
            continue
        seen.add((finding.code, finding.line))
        for fix in islice(find_quick_fixes(source, finding), _TRIED):
            fixed = SourceFile(source.path, apply_edits(source.text, fix.edits))
            after = _errors(await checker.check(fixed))
            if after.total() < before.total() and after.keys() <= before.keys():
                found.append(fix)
                break
    return found


def _errors(report: FileReport) -> Counter[str | None]:
    return Counter(one.code for one in report.diagnostics if one.severity is Severity.ERROR)


def _statement(root: "Node", start: int, end: int, body: Span) -> "Node | None":
    """Return the first statement of a kernel's body that begins in a line's bytes, or the innermost one around them."""
    around: Node | None = None
    for node in walk(root):
        inside = body.start < node.start_byte and node.end_byte < body.end
        if not inside or not (node.type.endswith("_statement") or node.type == "declaration"):
            continue
        if node.type == "compound_statement":
            continue
        if start <= node.start_byte <= end:
            return node
        if node.start_byte <= start and end <= node.end_byte:
            around = node
    return around


def _guards(data: bytes, kernel: Kernel, statement: "Node") -> Iterator[tuple[str, list[Edit]]]:
    """Yield comparisons made stricter, then guards of the statement by whole-number parameters and their products."""
    root = parse_cuda(data).root_node
    bounds = [p.name for p in kernel.parameters if _INTEGER.fullmatch(p.type.strip())]
    for node in walk(root):
        sign = node.child_by_field_name("operator") if node.type == "binary_expression" else None
        right = node.child_by_field_name("right")
        inside = kernel.body.start < node.start_byte and node.end_byte < statement.end_byte
        if sign is None or right is None or not inside or text_of(right) not in bounds:
            continue
        if (stricter := _STRICTER.get(text_of(sign))) is not None:
            yield f"Compare with `{stricter} {text_of(right)}`", [Edit(span_of(sign), stricter)]
    if statement.type != "expression_statement":
        return
    body = data[kernel.body.start : kernel.body.end].decode()
    for index in _indices(statement):
        for bound in _limits(index, bounds, body):
            guard = f"if ({index} < {bound}) "
            start = Span(statement.start_byte, statement.start_byte)
            yield f"Guard with `{guard.strip()}`", [Edit(start, guard)]


def _limits(index: str, sizes: list[str], body: str) -> list[str]:
    """Return sizes and products of two, the likeliest first: an index that is split into row and column has both."""
    products = [f"{one} * {other}" for one, other in combinations(sizes, 2)]
    is_split = re.search(rf"\b{index}\s*[%/](?!/)", body) is not None
    return [*products, *sizes] if is_split else [*sizes, *products]


def _indices(statement: "Node") -> list[str]:
    """Return the subscripts in a statement that are plain variables, each once."""
    found = [
        text_of(inner)
        for node in walk(statement)
        if node.type == "subscript_argument_list"
        for inner in node.named_children
        if inner.type == "identifier"
    ]
    return list(dict.fromkeys(found))


def _barriers(data: bytes, kernel: Kernel, statement: "Node") -> Iterator[tuple[str, list[Edit]]]:
    """Yield a barrier before the statement, then one at the end of the loop around it."""
    outer = statement
    while outer.parent is not None and outer.parent.type != "compound_statement":
        outer = outer.parent  # the body of an `if` without braces
    yield "Wait with `__syncthreads()` before this line", [_line_before(data, outer.start_byte)]
    loop = outer.parent
    while loop is not None and kernel.body.start <= loop.start_byte:
        if loop.type in ("for_statement", "while_statement"):
            body = loop.child_by_field_name("body")
            if body is not None and body.type == "compound_statement":
                title = "Wait with `__syncthreads()` at the end of the loop"
                yield title, [_line_before(data, body.end_byte - 1, deeper="    ")]
            return
        loop = loop.parent


def _line_before(data: bytes, at: int, deeper: str = "") -> Edit:
    """Return the edit that puts a barrier on a line of its own before the line of a byte."""
    start = data.rfind(b"\n", 0, at) + 1
    indent = data[start:at]
    if indent.strip():  # something stands before it on its line
        return Edit(Span(at, at), "__syncthreads(); ")
    return Edit(Span(start, start), f"{indent.decode()}{deeper}__syncthreads();\n")


_MAKERS = {memory.OUT_OF_BOUNDS.id: _guards, memory.SHARED_RACE.id: _barriers}
"""The rules that have mechanical fixes, and the functions that yield these."""
