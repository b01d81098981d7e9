"""Inlay hints at the ends of lines, each kind only where its setting asks for it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.documents import Document

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server

Hint = tuple[int, str, str]
"""A line from 1, the hint, and what it means."""

Source = Callable[["Server", Document], Iterable[Hint]]

SOURCES: dict[str, Source] = {}
"""The setting of each kind of hint, and the function that makes a text's."""


def inlay_hints(ls: "Server", params: types.InlayHintParams) -> list[types.InlayHint]:
    """The hints of the lines asked for."""
    document = ls.documents.read(params.text_document.uri)
    editor = ls.settings.at(document.path).editor
    lines = range(params.range.start.line + 1, params.range.end.line + 2)
    found: list[types.InlayHint] = []
    for setting, source in SOURCES.items():
        if not getattr(editor, setting):
            continue
        for line, text, meaning in source(ls, document):
            if line in lines:
                end = document.position(document.lines.offset(line, 1 << 30))
                found.append(types.InlayHint(end, text, tooltip=meaning, padding_left=True))
    return found
