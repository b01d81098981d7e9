"""The quick fix that every rule has: silence a finding where it stands."""

from collections.abc import Iterator, Sequence

from lsprotocol import types

from kernel_lsp.lsp.catalog import QUICK_FIX
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.rule_pages import rules_of
from kernel_lsp.source.python import is_python


def ignores(document: Document, findings: Sequence[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """Yield, for each finding that can be silenced, an action that puts an ignore above its line.

    There it holds whatever the line ends with. A line that continues the one above gets none.
    """
    data, starts = document.lines.data, document.lines.starts
    lines = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    mark = b"#" if is_python(document.path) else b"//"
    for finding in findings:
        at = finding.range.start.line
        if at >= len(lines) or (at and lines[at - 1].rstrip().endswith(b"\\")):  # of an older text, or continued
            continue
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t"))]
        end = b"\r\n" if lines[at].endswith(b"\r\n") else b"\n"
        place = types.Position(at, 0)
        for rule in rules_of([finding]):
            if rule.silenceable:
                comment = indent + mark + f" kernel-lsp: ignore[{rule.id}]".encode() + end
                action = types.CodeAction(f"Ignore {rule.id} on this line", QUICK_FIX, diagnostics=[finding])
                edit = types.TextEdit(types.Range(place, place), comment.decode())
                action.edit = types.WorkspaceEdit(changes={document.uri: [edit]})
                yield action
