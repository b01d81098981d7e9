"""The quick fixes of findings: one that was checked, the rule's page, and silencing the finding where it stands."""

from collections.abc import Iterable, Iterator, Sequence

from lsprotocol import types

from kernel_lsp.lsp.catalog import CHECK, PREFIX, QUICK_FIX
from kernel_lsp.lsp.checks import JudgedFix
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.rule_pages import rules_of
from kernel_lsp.source.python import is_python


def judged(
    document: Document, fixes: Iterable[JudgedFix], findings: Sequence[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    """Yield the fixes of these findings that were checked, as edits, after which the file is checked anew."""
    for fix in fixes:
        fixed = [one for one in findings if one.code == fix.rule and one.range.start.line == fix.line]
        if fixed:
            action = types.CodeAction(f"{fix.title} (checked)", QUICK_FIX, diagnostics=fixed, is_preferred=True)
            edits = [types.TextEdit(document.range(edit.span), edit.text) for edit in fix.edits]
            action.edit = types.WorkspaceEdit(changes={document.uri: edits})
            action.command = types.Command("Check", PREFIX + CHECK.name, arguments=[document.uri])
            yield action


def explanations(findings: Sequence[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """Yield an action for each rule of the findings that shows its page."""
    for rule in rules_of(findings):
        title = f"Explain {rule.id}: {rule.name}"
        action = types.CodeAction(title, QUICK_FIX, diagnostics=[f for f in findings if f.code == rule.id])
        action.command = types.Command(title, f"{PREFIX}explain", arguments=[rule.id])
        yield action


def ignores(document: Document, findings: Sequence[types.Diagnostic]) -> Iterator[types.CodeAction]:
    """Yield, for each finding that can be silenced, an action that puts an ignore above its line.

    There it holds whatever the line ends with. A line that continues the one above gets none.
    """
    data, starts = document.lines.data, document.lines.starts
    lines = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    mark = b"#" if is_python(document.path) else b"//"
    silenced: set[tuple[str, int]] = set()
    for finding in findings:
        at = finding.range.start.line
        if at >= len(lines) or (at and lines[at - 1].rstrip().endswith(b"\\")):  # of an older text, or continued
            continue
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t"))]
        end = b"\r\n" if lines[at].endswith(b"\r\n") else b"\n"
        place = types.Position(at, 0)
        for rule in rules_of([finding]):
            if rule.silenceable and (rule.id, at) not in silenced:
                silenced.add((rule.id, at))  # one comment is enough for all findings of a rule on a line
                comment = indent + mark + f" kernel-lsp: ignore[{rule.id}]".encode() + end
                here = [f for f in findings if f.code == rule.id and f.range.start.line == at]
                action = types.CodeAction(f"Ignore {rule.id} on this line", QUICK_FIX, diagnostics=here)
                edit = types.TextEdit(types.Range(place, place), comment.decode())
                action.edit = types.WorkspaceEdit(changes={document.uri: [edit]})
                yield action
