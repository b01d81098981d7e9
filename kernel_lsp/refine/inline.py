"""CUDA text inside the strings of a Python file, shown as a CUDA file through `device_view`."""

from collections.abc import Iterable

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import device_view
from kernel_lsp.source.text import Edit, Span, apply_edits

_BLANK = ord(" ")


def as_cuda(base: Candidate) -> Candidate:
    """Return a Python file with kernels in its strings as a CUDA file in which all positions are the same."""
    view = SourceFile(base.kernel.path, device_view(base.kernel.text))
    return Candidate(Language.CUDA, view, None, base.label, base.origin)


def stands(base: Candidate, seen: Candidate, span: Span) -> bool:
    """Return True if a span of the view, from the beginning of its line, is the file's own text.

    After an escape the columns of the view and of the file differ.
    """
    text, shown = base.kernel.text.encode(), seen.kernel.text.encode()
    start = text.rfind(b"\n", 0, span.start) + 1
    pairs = zip(text[start : span.end], shown[start : span.end], strict=True)
    return text[span.start : span.end] == shown[span.start : span.end] and all(b in (a, _BLANK) for a, b in pairs)


def edited(base: Candidate, seen: Candidate, edits: Iterable[Edit]) -> str | None:
    """Return the file's text after edits of its view; None where an edit does not fit or needs an escape."""
    edits = list(edits)
    if any("\\" in edit.text or not stands(base, seen, edit.span) for edit in edits):
        return None
    return apply_edits(base.kernel.text, edits)
