"""The client's texts: full sync, with conversion between its positions and our byte offsets."""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lsprotocol import types

from kernel_lsp.errors import SourceError
from kernel_lsp.lsp.uris import path_of
from kernel_lsp.refine.kernel_generation import is_plain_module
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of, read_source
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import suffix_for_editor
from kernel_lsp.source.text import Lines, Span

LARGEST = 2 << 20
"""Characters of the largest text that is parsed: a generated file of more would hold every other request up."""
TOO_LARGE = f"This text is too large: more than {LARGEST >> 20} MiB."

_MODULE = re.compile(rb"^class[ \t]+(Model)\b", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Document:
    """One state of one text; an edit makes another `Document`.

    Attributes:
        uri: as the client writes it.
        path: the file; of a text that is on no disk, a name whose suffix tells its language.
        text: what the client has, lone surrogates replaced by U+FFFD.
        version: the client's number; None for a file that the client has not opened.
        encoding: what the client counts columns in.
        on_disk: whether `path` is a file's.
    """

    uri: str
    path: Path
    text: str
    version: int | None
    encoding: str
    on_disk: bool = True

    @cached_property
    def lines(self) -> Lines:
        """Return its lines, over the text as UTF-8."""
        return Lines(self.text.encode())

    @property
    def is_too_large(self) -> bool:
        """True if nothing is done with the text, for its length."""
        return len(self.text) > LARGEST

    @cached_property
    def language(self) -> Language | None:
        """Return the language of its kernels; None if it is no kernel file, or too large."""
        return None if self.is_too_large else language_of(self.path, self.text)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return its kernels, in order; none of a text that is too large."""
        return () if self.is_too_large else find_kernels(self.text, self.path)

    @cached_property
    def module(self) -> Span | None:
        """Return the span of a plain module's name, for which a kernel can be generated; None for other files."""
        plain = not self.is_too_large and is_plain_module(self.source)
        named = _MODULE.search(self.lines.data) if plain else None
        return Span(*named.span(1)) if named else None

    @property
    def source(self) -> SourceFile:
        """Return it as the record that lower rooms take."""
        return SourceFile(self.path, self.text)

    def offset(self, position: types.Position) -> int:
        """Return the byte offset of a client's position; one past the end of a line or the text becomes that end."""
        if position.line >= len(self.lines.starts):
            return len(self.lines.data)
        start, line = self._line(position.line)
        return start + _bytes_in(line, position.character, self.encoding)

    def position(self, offset: int) -> types.Position:
        """Return the client's position of a byte offset; within a line break, that of the line's end."""
        number, column = self.lines.position(min(offset, len(self.lines.data)))
        _, line = self._line(number - 1)
        return types.Position(number - 1, _units(line[: column - 1], self.encoding))

    def range(self, span: Span) -> types.Range:
        """Return the client's range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def range_at(self, line: int, column: int, end_line: int, end_column: int) -> types.Range:
        """Return the client's range of 1-based lines and UTF-8 columns, with an exclusive end."""
        return self.range(Span(self.lines.offset(line, column), self.lines.offset(end_line, end_column)))

    def span(self, extent: types.Range) -> Span:
        """Return the span of a client's range; a reversed range gives an empty span at its start."""
        start = self.offset(extent.start)
        return Span(start, max(start, self.offset(extent.end)))

    def _line(self, number: int) -> tuple[int, bytes]:
        """Return the offset of line `number`, counted from 0, and its bytes without the line break."""
        starts, data = self.lines.starts, self.lines.data
        end = starts[number + 1] if number + 1 < len(starts) else len(data)
        return starts[number], data[starts[number] : end].rstrip(b"\r\n")


@dataclass
class Documents:
    """The texts that the client has open, by URI."""

    encoding: str = types.PositionEncodingKind.Utf16
    _open: dict[str, Document] = field(default_factory=dict[str, Document])

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._open.values()))

    def open(self, item: types.TextDocumentItem) -> Document:
        """Store a newly opened text; it replaces one that is already open."""
        path, on_disk = _path(item.uri, item.language_id)
        document = Document(item.uri, path, _sound(item.text), item.version, self.encoding, on_disk)
        self._open[item.uri] = document
        return document

    def change(self, uri: str, version: int, changes: list[types.TextDocumentContentChangeEvent]) -> Document | None:
        """Return the text after the client's changes, applied in order; None if it is not open."""
        document = self._open.get(uri)
        if document is None:
            return None
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):  # full sync was agreed on; some send this
                span = document.span(change.range)
                data = document.lines.data
                new = (data[: span.start] + _sound(change.text).encode() + data[span.end :]).decode()
            else:
                new = _sound(change.text)
            document = Document(uri, document.path, new, version, self.encoding, document.on_disk)
        self._open[uri] = document
        return document

    def close(self, uri: str) -> None:
        """Forget a closed text."""
        self._open.pop(uri, None)

    def get(self, uri: str) -> Document | None:
        """Return the open text of a URI, or None."""
        return self._open.get(uri)

    def at(self, path: Path) -> Document | None:
        """Return the open text of a file, or None."""
        return next((document for document in self._open.values() if document.on_disk and document.path == path), None)

    def has(self, path: Path) -> bool:
        """Return True if the file exists on disk or is open in the editor."""
        return path.exists() or self.at(path) is not None

    def read(self, uri: str) -> Document:
        """Return the open text, else the file on disk.

        Raises:
            SourceError: it is not open and cannot be read.
        """
        if (document := self._open.get(uri)) is not None:
            return document
        path, on_disk = _path(uri, "")
        if not on_disk:
            raise SourceError("This text is neither open nor a file.", path)
        return Document(uri, path, read_source(path).text, None, self.encoding)


def _path(uri: str, language: str) -> tuple[Path, bool]:
    """Return the path of a file, or a name for a text without one; and True if it is a file's."""
    if (path := path_of(uri)) is not None and not _is_circle(path):
        return path, True
    last = re.sub(r"[^\w.\-]", "_", uri.rpartition("/")[2].rpartition(":")[2])
    name = Path(last.strip(".")[-100:] or "untitled")
    return name.with_suffix(suffix_for_editor(language) or name.suffix), False


def _is_circle(path: Path) -> bool:
    """Return True for a link that leads back to itself, which is no file and cannot become one by saving."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:  # half of a surrogate pair, which is no name on a disk
        return False
    return False


def _sound(text: str) -> str:
    """Return text that can be encoded as UTF-8: JSON can escape half of a surrogate pair."""
    return _SURROGATE.sub("\ufffd", text) if _SURROGATE.search(text) else text


def _units(line: bytes, encoding: str) -> int:
    """Return the code units of a piece of a line in the client's encoding, without a character cut off at the end."""
    if encoding == types.PositionEncodingKind.Utf8 or line.isascii():
        return len(line)
    text = line.decode(errors="ignore")
    return len(text) if encoding == types.PositionEncodingKind.Utf32 else len(text.encode("utf-16-le")) // 2


def _bytes_in(line: bytes, units: int, encoding: str) -> int:
    """Return the bytes of the first `units` code units of a line; within a character, up to its start."""
    if line.isascii():
        return min(units, len(line))
    if encoding == types.PositionEncodingKind.Utf8:
        return len(line[:units].decode(errors="ignore").encode())
    text = line.decode()
    if encoding == types.PositionEncodingKind.Utf32:
        return len(text[:units].encode())
    return len(text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", errors="ignore").encode())
