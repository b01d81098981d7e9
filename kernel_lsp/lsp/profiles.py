"""The last profile of each kernel: what the emulator counted, moved along with the text while it is edited."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.moving import line_moves
from kernel_lsp.lsp.wire import from_json


@dataclass(frozen=True, slots=True)
class CountedLine:
    """One costly line of a kernel.

    Attributes:
        line: its number in the profiled file, from 1; 0 if it is of another file.
        place: its place in another file; empty otherwise.
        code: the line; empty for another file's.
        hint: its shares in a few words.
        counts: as the columns of the table show them.
    """

    line: int
    place: str
    code: str
    hint: str
    counts: tuple[str, ...]

    @property
    def row(self) -> str:
        """Return it as a row of the table, in Markdown."""
        code = "``{}``".format(self.code.replace("|", "\\|")) if self.code else ""
        return f"| {' | '.join((str(self.line or self.place), *self.counts, code))} |"


@dataclass(frozen=True, slots=True)
class CountedKernel:
    """The profile of one kernel.

    Attributes:
        name: of the kernel, without template arguments.
        about: who counted and on which cases, in a sentence or two.
        titles: of the columns of counts.
        lines: the costly ones.
    """

    name: str
    about: str
    titles: tuple[str, ...]
    lines: tuple[CountedLine, ...]

    @property
    def table(self) -> str:
        """Return the table of its costly lines, in Markdown."""
        head = f"| {' | '.join(('Line', *self.titles, 'Code'))} |"
        rule = f"| --: |{' --: |' * len(self.titles)} --- |"
        return "\n".join((self.about, "", head, rule, *(one.row for one in self.lines)))


@dataclass(slots=True)
class _Profile:
    """The kernels as they were profiled, and as they are in a later text."""

    taken: Document
    kernels: tuple[CountedKernel, ...]
    now: Document
    moved: tuple[CountedKernel, ...]


class Profiles:
    """The profiles of this session, by text."""

    def __init__(self) -> None:
        self._found: dict[str, _Profile] = {}

    def take(self, document: Document, found: Iterable[dict[str, Any]]) -> None:
        """Take profiles as their job's result has them; those of the same text's other kernels are kept."""
        fresh = {one.name: one for one in (from_json(each, CountedKernel) for each in found)}
        before = self._found.get(document.uri)
        kept = before.kernels if before is not None and before.taken.text == document.text else ()
        kernels = tuple(({one.name: one for one in kept} | fresh).values())
        self._found[document.uri] = _Profile(document, kernels, document, kernels)

    def of(self, document: Document) -> tuple[CountedKernel, ...]:
        """Return the profiles of a text's kernels, without the lines that were changed since."""
        found = self._found.get(document.uri)
        if found is None:
            return ()
        if document.text == found.taken.text:  # also once an edit was undone
            found.now, found.moved = found.taken, found.kernels
        elif document.text != found.now.text:
            found.moved = tuple(_moved(one, found.now, document) for one in found.moved)
            found.now = document
        return found.moved


def _moved(kernel: CountedKernel, before: Document, after: Document) -> CountedKernel:
    moves = line_moves(before, after)
    placed = [(one, moves(one.line - 1, one.line - 1) if one.line else 0) for one in kernel.lines]
    lines = tuple(replace(one, line=one.line + moved if one.line else 0) for one, moved in placed if moved is not None)
    about = kernel.about if kernel.about.endswith(_OLDER) else kernel.about + _OLDER
    return replace(kernel, about=about, lines=lines)


_OLDER = " The text was edited since."
