"""Moves diagnostics of an older text to where their lines are in a newer one."""

from collections.abc import Sequence

from lsprotocol import types

from kernel_lsp.lsp.documents import Document

BEFORE = " (before your edit)"
"""Ends the message of a finding about an older text."""


def moved(found: Sequence[types.Diagnostic], before: Document, after: Document) -> list[types.Diagnostic]:
    """Return the diagnostics of `before` as they hold in `after`, marked as older; those on changed lines are left out.

    The lines between the texts' common beginning and common end count as changed.
    """
    old, new = before.lines.data.splitlines(), after.lines.data.splitlines()
    shortest = min(len(old), len(new))
    first = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    last = next((n for n in range(shortest - first) if old[-1 - n] != new[-1 - n]), shortest - first)
    kept: list[types.Diagnostic] = []
    for one in found:
        if one.range.end.line < first:
            kept.append(_at(one, 0))
        elif one.range.start.line >= len(old) - last:
            kept.append(_at(one, len(new) - len(old)))
    return kept


def _at(found: types.Diagnostic, lines: int) -> types.Diagnostic:
    start, end = found.range.start, found.range.end
    return types.Diagnostic(
        types.Range(
            types.Position(start.line + lines, start.character), types.Position(end.line + lines, end.character)
        ),
        found.message if found.message.endswith(BEFORE) else found.message + BEFORE,
        found.severity,
        code=found.code,
        code_description=found.code_description,
        source=found.source,
        data=found.data,
    )
