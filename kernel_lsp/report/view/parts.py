"""The parts of a report as frozen records: sections of facts, tables, texts and plots, without markup or styles.

A terminal leaves out plots, sections that are not `brief`, and what a reader has to open (`More`).
"""

from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.report.view.plots import Plot


class Tone(StrEnum):
    """The tone of a text: a gain, neutral, something to look at, a failure, or an aside."""

    GOOD = "good"
    PLAIN = "plain"
    DOUBT = "doubt"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class TonedText:
    """A text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


Cell = str | tuple[TonedText, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head.
        figure: whether it holds figures, which are aligned to the right.
        wide: whether it is left out where there is little room.
    """

    title: str
    figure: bool = True
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells.

    Attributes:
        caption: what the figures are.
        long_names: whether the first column's names can be so long that each needs a line of its own.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    long_names: bool = False


@dataclass(frozen=True, slots=True)
class FactList:
    """Names, each with facts as short items; a name without items is not shown."""

    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two."""

    text: str


class CodeKind(StrEnum):
    """The kind of a text that keeps its lines."""

    LOG = "log"
    DIFF = "diff"
    COMMANDS = "commands"
    TALK = "talk"


@dataclass(frozen=True, slots=True)
class Code:
    """A text that keeps its lines."""

    text: str
    kind: CodeKind


@dataclass(frozen=True, slots=True)
class More:
    """Parts that a reader can open by their title; `shown` if they are open from the start."""

    title: str
    parts: "tuple[Part, ...]"
    shown: bool = False


Part = Paragraph | FactList | Table | Code | Plot | More


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Parts under a heading.

    Attributes:
        name: by which other programs find it.
        title: the heading; empty where the parts speak for themselves.
        brief: whether it belongs to the short form that a terminal shows.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    brief: bool = True


@dataclass(frozen=True, slots=True)
class Head:
    """The answer.

    Attributes:
        title: what was looked at.
        answer: in a word or two, in `tone`.
        figure: the number that matters most; empty where there is none.
        certainty: how sure that is.
        reason: one sentence.
        about: where it comes from, in short items.
    """

    title: str
    answer: str
    tone: Tone
    figure: str = ""
    certainty: str = ""
    reason: str = ""
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A whole report: the answer, then its evidence, most important first."""

    head: Head
    sections: tuple[ReportSection, ...]
