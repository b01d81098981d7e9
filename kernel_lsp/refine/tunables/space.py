"""The space of settings of one kernel: its tunables, the places of their numbers, and the text of any setting.

Numbers depend on each other: the block size of a launch is also the divisor of its grid, that divisor less one, an
array's extent, a template argument. So a place in the text (`TunableSite`) holds a text with formulas over the
tunables, such as `{BLOCK - 1}`. Each setting of the tunables then gives one consistent candidate.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.python import expression_ast
from kernel_lsp.source.text import Edit, Span, apply_edits


class Kind(StrEnum):
    """The kind of a tunable, in the order in which trying it tends to pay."""

    AUTOTUNE = "autotune"
    BLOCK = "block"
    WARPS = "warps"
    SIZE = "size"
    STAGES = "stages"
    GRID = "grid"
    MIN_BLOCKS = "min blocks"
    UNROLL = "unroll"
    REGISTERS = "registers"
    LOOP = "loop"
    CACHE = "cache"


class SiteFile(StrEnum):
    """The file of a candidate that a site stands in."""

    KERNEL = "kernel"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Written:
    """A value that is source text, such as a list of autotune configs, with a short name for people."""

    name: str
    code: str

    def __str__(self) -> str:
        """Return the short name."""
        return self.name


Value = int | Written
Settings = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Tunable:
    """One parameter of the search space.

    Attributes:
        name: identifier used in formulas and settings, unique in its space.
        kind: what it turns.
        current: value in the baseline; 0 stands for "not written there" or "computed there".
        choices: values to try, the current one among them; ascending unless `ordered` is false.
        title: what a person calls it.
        ordered: whether neighbouring choices are alike, so that a trend may be followed.
        absent: how 0 is shown.
    """

    name: str
    kind: Kind
    current: Value
    choices: tuple[Value, ...]
    title: str
    ordered: bool = True
    absent: str = "none"

    def shown(self, value: Value) -> str:
        """Return `value` as text for the user."""
        return self.absent if value == 0 else str(value)


@dataclass(frozen=True, slots=True, order=True)
class TunableSite:
    """A stretch of one file that depends on tunables.

    Attributes:
        place: the file.
        span: the stretch; an empty one is a place to insert at.
        text: what may stand there, with formulas over the names of tunables in braces.
        when: a further tunable that it depends on, which need not be in the text.
    """

    place: SiteFile
    span: Span
    text: str
    when: str = ""

    @property
    def names(self) -> frozenset[str]:
        """Return the tunables that it depends on."""
        return names_in(" ".join((*formulas(self.text), self.when)))


@dataclass(frozen=True, slots=True)
class Limit:
    """A formula that must stay within bounds, for instance the number of threads in a block."""

    formula: str
    low: int
    high: int


FORMULA = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Mod: operator.mod,
}


def names_in(formula: str) -> frozenset[str]:
    """Return the names that a formula mentions."""
    return frozenset(_NAME.findall(formula))


def formulas(text: str) -> list[str]:
    """Return the formulas in a site's text."""
    return FORMULA.findall(text)


def evaluate(formula: str, values: Mapping[str, int]) -> int | None:
    """Return the value of a formula: integers, names of `values`, `+ - * // % << >>` and parentheses.

    It is None if the formula has anything else, or a name without a value, or divides by zero.
    """

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](value(left), value(right))
            case _:
                raise ValueError(formula)

    try:
        return value(expression_ast(formula))
    except (SyntaxError, KeyError, ValueError, ZeroDivisionError):
        return None


@dataclass(frozen=True)
class Space:
    """All settings of one kernel.

    Attributes:
        base: the version whose numbers are turned.
        tunables: what can be turned, most promising first.
        sites: where the numbers stand in `base`; no two overlap.
        limits: what every setting must keep.
    """

    base: Candidate
    tunables: tuple[Tunable, ...]
    sites: tuple[TunableSite, ...]
    limits: tuple[Limit, ...] = ()

    @cached_property
    def current(self) -> dict[str, Value]:
        """Return the settings of the baseline."""
        return {tunable.name: tunable.current for tunable in self.tunables}

    def form(self, settings: Settings) -> Candidate | None:
        """Return the candidate with these settings; tunables not mentioned keep their current value.

        Returns:
            None when the settings break a limit or a formula has no positive value.
        """
        values = self.current | dict(settings)
        changed = {name for name, value in values.items() if value != self.current[name]}
        numbers = {name: value for name, value in values.items() if isinstance(value, int)}
        for limit in self.limits:
            reach = evaluate(limit.formula, numbers)
            if reach is not None and not limit.low <= reach <= limit.high:
                return None
        edits: dict[SiteFile, list[Edit]] = {SiteFile.KERNEL: [], SiteFile.LAUNCH: []}
        for site in self.sites:
            # A zero means that the whole text is absent.
            if not site.names & changed or any(values[name] == 0 for name in site.names):
                continue
            text = _written(site.text, values, numbers)
            if text is None:
                return None
            edits[site.place].append(Edit(site.span, text))
        return Candidate(
            language=self.base.language,
            kernel=_edited(self.base.kernel, edits[SiteFile.KERNEL]),
            launch=_edited(self.base.launch, edits[SiteFile.LAUNCH]) if self.base.launch else None,
            label=self._label(values),
            origin="tuner",
        )

    def _label(self, values: Settings) -> str:
        changes = ", ".join(
            f"{tunable.title} {tunable.shown(tunable.current)} -> {tunable.shown(values[tunable.name])}"
            for tunable in self.tunables
            if values[tunable.name] != tunable.current
        )
        return "; ".join(part for part in ("" if self.base.label == "baseline" else self.base.label, changes) if part)


def _written(text: str, values: Settings, numbers: Mapping[str, int]) -> str | None:
    """Return `text` with its formulas replaced by their values; None if one has no positive value."""
    parts: list[str] = []
    at = 0
    for formula in FORMULA.finditer(text):
        parts.append(text[at : formula.start()])
        value = values.get(formula[1])
        if isinstance(value, Written):
            parts.append(value.code)
        else:
            number = evaluate(formula[1], numbers)
            if number is None or number < 1:
                return None
            parts.append(str(number))
        at = formula.end()
    return "".join([*parts, text[at:]])


def _edited(file: SourceFile, edits: list[Edit]) -> SourceFile:
    return SourceFile(file.path, apply_edits(file.text, edits)) if edits else file
