"""Turns a candidate's text into edits of the user's file, also of a file that has changed since."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import PurePath

from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def minimal_edits(old: str, new: str) -> tuple[Edit, ...]:
    r"""Return edits that turn `old` into `new`: of each changed run of lines only the characters that differ.

    `apply_edits(old, minimal_edits(old, new)) == new`. No edit begins or ends between a ``\r`` and its ``\n``, where an
    editor has no position.
    """
    a, b = _LINE.findall(old), _LINE.findall(new)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    a_end, b_end = len(a) - tail, len(b) - tail
    offsets = list(accumulate((len(line.encode()) for line in a), initial=0))
    matcher = difflib.SequenceMatcher(None, a[head:a_end], b[head:b_end], autojunk=False)
    edits: list[Edit] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        was, now = a[head + i1 : head + i2], b[head + j1 : head + j2]
        # With as many lines as before, they are most often the same lines, each a little changed.
        pairs = zip(was, now, strict=True) if len(was) == len(now) else [("".join(was), "".join(now))]
        at = offsets[head + i1]
        for one, other in pairs:
            edits += _trimmed(at, one, other)
            at += len(one.encode())
    return tuple(edits)


def unified_diff(old: str, new: str, path: PurePath) -> str:
    r"""Return the change in the format of `git apply` and `patch -p1`; empty if there is none.

    Lines end at ``\n`` alone, as for these tools, so that a ``\r`` stays part of its line.
    """
    name = path.as_posix().lstrip("/")
    a, b = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    lines = difflib.unified_diff(a, b, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def relocate(edits: Iterable[Edit], judged: str, current: str, kernels: Sequence[Kernel]) -> tuple[Edit, ...] | None:
    """Return edits of `judged` moved to where the same text stands in `current`; None if it no longer stands there.

    The kernels and the lines that the edits touch must stand in `current` unchanged, character for character, though
    perhaps elsewhere. Of several equal places the one is taken that a line-by-line comparison of the whole files
    assigns. Changes to other code that the kernel uses are not looked at.

    Args:
        edits: against `judged`.
        judged: the text whose verdict is to be applied.
        current: the text as the user has it now.
        kernels: those of `judged` that must be unchanged.
    """
    edits = sorted(edits)
    if judged == current:
        return tuple(edits)
    old, now = judged.encode(), current.encode()
    moved: list[Edit] = []
    for region in regions(old, edits, kernels):
        start = _moved_to(region, old, now, judged, current)
        if start is None:
            return None
        shift = start - region.start
        inside = (edit for edit in edits if region.holds(edit.span))
        moved += (Edit(Span(e.span.start + shift, e.span.end + shift), e.text) for e in inside)
    moved.sort()
    return None if any(a.span.end > b.span.start for a, b in pairwise(moved)) else tuple(moved)


def regions(data: bytes, edits: Iterable[Edit], kernels: Sequence[Kernel]) -> list[Span]:
    """Return the spans of the kernels and of the whole lines that other edits touch; overlapping ones are merged."""
    found: list[Span] = []
    for span in sorted([*(kernel.span for kernel in kernels), *(edit.span for edit in edits)]):
        start = data.rfind(b"\n", 0, span.start) + 1
        end = data.find(b"\n", span.end)
        span = Span(start, len(data) if end < 0 else end + 1)
        if found and span.start < found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _trimmed(at: int, old: str, new: str) -> Iterator[Edit]:
    """Yield the edit that turns `old`, which begins at byte `at`, into `new`, without common prefix and suffix."""
    if old == new:
        return
    head = _common(old, new)
    head -= old[head - 1 : head + 1] == "\r\n"
    tail = _common(old[head:][::-1], new[head:][::-1])
    tail -= tail > 0 and old[len(old) - tail - 1 : len(old) - tail + 1] == "\r\n"
    start = at + len(old[:head].encode())
    yield Edit(Span(start, start + len(old[head : len(old) - tail].encode())), new[head : len(new) - tail])


def _moved_to(region: Span, old: bytes, now: bytes, judged: str, current: str) -> int | None:
    """Return the offset at which a region of the old text begins in the new one; None if it is not unique or not
    there.
    """
    text = old[region.start : region.end]
    places = [match.start() for match in re.finditer(re.escape(text), now)]
    if text and len(places) == 1:
        return places[0]
    # Of several places take the one that the comparison of the whole files, line by line, assigns.
    changes = minimal_edits(judged, current)
    if any(c.span.start < region.end and region.start < c.span.end for c in changes):
        return None
    if any(c.span.start == c.span.end and region.start < c.span.start < region.end for c in changes):
        return None
    before = (c for c in changes if c.span.end <= region.start)
    start = region.start + sum(len(c.text.encode()) - (c.span.end - c.span.start) for c in before)
    return start if now[start : start + len(text)] == text else None
