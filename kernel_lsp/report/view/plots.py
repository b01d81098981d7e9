"""Plots as data: axes, and marks at points. `page/page.js` draws them all, and knows of no plot in particular."""

from dataclasses import dataclass
from enum import StrEnum


class Ink(StrEnum):
    """The meaning of a colour."""

    TEXT = "text"
    BASELINE = "baseline"
    CANDIDATE = "candidate"
    DOUBT = "doubt"
    LIMIT = "limit"


class Shape(StrEnum):
    """The shape drawn at the points of a mark.

    A RANGE is a thick line from `x` to `x2`, a BAND the ground between them; a RULE goes through the plot at its `x` or
    its `y`, or from `x` to `x2` at its `y`. A LABEL without `x` stands at the right edge, one without `y` at the top.
    """

    DOT = "dot"
    RANGE = "range"
    BAND = "band"
    BAR = "bar"
    LINE = "line"
    RULE = "rule"
    ARROW = "arrow"
    LABEL = "label"


@dataclass(frozen=True, slots=True)
class Point:
    """One place in a plot.

    Attributes:
        x, y: a figure, or a name on an axis of names.
        x2, y2: the other end of what is long.
        series: that it belongs to, which gives it its colour.
        text: a label's text; of other shapes what a reader is told who points at it.
        filled: whether a dot is filled.
    """

    x: float | str | None = None
    y: float | str | None = None
    x2: float | None = None
    y2: float | None = None
    series: str | None = None
    text: str = ""
    filled: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """Points drawn in one shape; `ink` colours those of no series."""

    shape: Shape
    points: tuple[Point, ...]
    ink: Ink = Ink.TEXT
    dashed: bool = False
    emphasis: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: what it measures.
        names: what stands on an axis without figures, in order.
        low, high: its ends; where they are not given the points say them.
        log: whether it is logarithmic.
        ticks: about how many; None leaves that to the drawer.
        format: of the figures at the ticks, in d3's notation.
    """

    label: str = ""
    names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: int | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot.

    Attributes:
        name: by which its place is found.
        caption: what it shows, for readers of all kinds.
        series: each with what its colour stands for; None takes the next of the palette.
    """

    name: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    series: tuple[tuple[str, Ink | None], ...] = ()
