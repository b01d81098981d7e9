"""Moves what was found on lines of an older text to where these lines are in a newer one."""

from collections.abc import Callable, Sequence

from lsprotocol import types

from kernel_lsp.lsp.documents import Document

BEFORE = " (before your edit)"
"""Ends the message of a finding about an older text."""


def moved(found: Sequence[types.Diagnostic], before: Document, after: Document) -> list[types.Diagnostic]:
    """Return the diagnostics of `before` as they hold in `after`, marked as older, without those on changed lines."""
    moves = line_moves(before, after)
    placed = [(one, moves(one.range.start.line, one.range.end.line)) for one in found]
    return [_at(one, lines) for one, lines in placed if lines is not None]


def line_moves(before: Document, after: Document) -> Callable[[int, int], int | None]:
    """Return a function from the first and last of some lines of `before`, from 0, to how many lines they moved by.

    It returns None if they changed. The lines between the texts' common beginning and common end count as changed.
    """
    old, new = before.lines.data.splitlines(), after.lines.data.splitlines()
    shortest = min(len(old), len(new))
    first = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    last = next((n for n in range(shortest - first) if old[-1 - n] != new[-1 - n]), shortest - first)

    def moves(start: int, end: int) -> int | None:
        if end < first:
            return 0
        return len(new) - len(old) if start >= len(old) - last else None

    return moves


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
