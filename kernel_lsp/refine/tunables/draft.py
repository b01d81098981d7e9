"""A space of settings under construction: quantities by name, the places that depend on them, and ties."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from kernel_lsp.refine.tunables.space import (
    FORMULA,
    Kind,
    Limit,
    SiteFile,
    Space,
    Tunable,
    TunableSite,
    Value,
    evaluate,
    names_in,
)
from kernel_lsp.refine.tunables.syntax import Number, NumberRole
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.text import Span

_NAME = re.compile(r"[A-Za-z_]\w*")
# Numbers of the problem or the machine: with another value the kernel computes something else.
_PROBLEM = re.compile(
    r"(?i)warp_?size|lane|^full|mask|bins?$|hist|class|vocab|channel|hidden|head|^d$|dim_?k?$|embed|radi(us|x)|^k(size|ernel)"
    r"|max_|^n_|^num_(?!threads|blocks|warps|stages)|^(is|has|use|do|even)_|version|align|byte|bits|dtype|rank|eps|seed|shift"
)
_SIZE = re.compile(
    r"(?i)block|tile|threads?|^b?[mnk]s?$|^[bt][mnk]$|^bs$|unroll|item|per_|vec|chunk|stage|group_|work|coarse|rows?$|cols?$|step"
)
_ORDER = list(Kind)
_PER_THREAD = re.compile(r"(?i)^t[mnk]$|unroll|item|per_thread|vec|stage|work|coarse")


def is_size(name: str, value: int) -> bool:
    """Return True if a constant looks like a tunable size, by its name, else by being a power of two."""
    if value < 1 or (_PROBLEM.search(name) and not re.search(r"(?i)block|tile", name)):
        return False
    return bool(_SIZE.search(name)) or (value >= 16 and value & (value - 1) == 0)


def around(value: int, low: int, high: int, reach: int = 3) -> tuple[int, ...]:
    """Return `value` halved and doubled up to `reach` times, within bounds, ascending."""
    halves = (value >> step for step in range(1, reach + 1) if value % (1 << step) == 0)
    doubles = (value << step for step in range(1, reach + 1))
    return tuple(sorted({value, *(number for number in (*halves, *doubles) if low <= number <= high)}))


@dataclass
class Quantity:
    """A tunable number that may still be tied to others."""

    name: str
    kind: Kind
    value: Value
    title: str
    choices: tuple[Value, ...] = ()
    ordered: bool = True
    absent: str = "none"


@dataclass
class Draft:
    """The findings so far.

    Attributes:
        quantities: by name.
        derived: formulas that the kernel file itself makes of its constants, with their values.
        sites: text by place and span; the first finder of a span keeps it.
        insertions: texts that are not there yet.
        limits: bounds on formulas.
        ties: name -> the name it was tied to.
        blocks: formula of each block dimension; None where it is not known.
    """

    quantities: dict[str, Quantity] = field(default_factory=dict)
    derived: dict[str, int] = field(default_factory=dict)
    sites: dict[tuple[SiteFile, Span], str] = field(default_factory=dict)
    insertions: list[TunableSite] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    ties: dict[str, str] = field(default_factory=dict)
    blocks: list[str | None] = field(default_factory=list)

    def add(self, quantity: Quantity) -> str:
        """Register a quantity under its name, made unique, and return that."""
        name, count = quantity.name, 2
        while name in self.quantities or name in self.ties:
            name, count = f"{quantity.name}_{count}", count + 1
        if name != quantity.name:
            quantity.name = name
        self.quantities[name] = quantity
        return name

    def site(self, place: SiteFile, span: Span, text: str) -> None:
        """Register `text` at `span`, unless that span is already registered."""
        self.sites.setdefault((place, span), text)

    def resolved(self, name: str) -> str:
        """Return the name that stands for `name` after all ties."""
        while name in self.ties:
            name = self.ties[name]
        return name

    def tie(self, names: Sequence[str]) -> str:
        """Merge several equal quantities into one, and return its name."""
        first, *others = dict.fromkeys(self.resolved(name) for name in names)
        for other in others:
            self.ties[other] = first
            self.quantities[first].kind = min(
                self.quantities[first].kind, self.quantities.pop(other).kind, key=_ORDER.index
            )
        return first

    def worth(self, formula: str) -> int | None:
        """Return the value of a formula in the baseline; None if it has none."""
        values = {name: q.value for name, q in self.quantities.items() if isinstance(q.value, int)}
        return evaluate(self.renamed(formula), values)

    def renamed(self, formula: str) -> str:
        """Return `formula` in terms of the quantities that are left."""
        return _NAME.sub(lambda match: self.resolved(match[0]), formula)

    def equal(self, value: int) -> list[str]:
        """Return names of the kernel's quantities with this value, counts of work per thread last."""
        names = [name for name, quantity in self._sizes() if quantity.value == value]
        return [name for name in names if not _PER_THREAD.search(name)] or names

    def formula(self, value: int, axis: int | None) -> str | None:
        """Return a formula for `value` from the quantities, block dimension `axis` first; None without one."""
        block = self.blocks[axis] if axis is not None and axis < len(self.blocks) else None
        if block is not None and self.worth(block) == value:
            return block
        if names := self.equal(value):
            return self.tie(names)
        for formula, worth in self.derived.items():
            if worth == value:
                return formula
        for formula in self._products(block):
            if self.worth(formula) == value:
                return formula
        if block is not None and (size := self.worth(block)) and value > size and value % size == 0:
            return f"{block} * {value // size}"
        return None

    def _sizes(self) -> list[tuple[str, Quantity]]:
        return [item for item in self.quantities.items() if item[1].kind in {Kind.BLOCK, Kind.SIZE}]

    def _products(self, block: str | None) -> Iterator[str]:
        names = [name for name, quantity in self._sizes() if quantity.value != 1]
        if block is not None:
            yield from (f"{block} * {name}" for name in names if name not in _NAME.findall(block))
        yield from (f"{left} * {right}" for left, right in combinations(names, 2))

    def link(self, place: SiteFile, number: Number, axis: int | None) -> bool:
        """Replace a literal of a grid or of a shared memory size by a formula of the tunables that it depends on.

        Return False, with nothing replaced, if no formula gives its value.
        """
        if (place, number.span) in self.sites:
            return True
        if number.value < 2:
            return False
        named = self.resolved(number.name) if number.name else None
        if named in self.quantities and self.quantities[named].value == number.value:
            self.site(place, number.span, f"{{{named}}}")
            return True
        rounding = number.role is NumberRole.ROUNDING
        if rounding and (formula := self.formula(number.value + 1, axis)) is not None:
            self.site(place, number.span, f"{{{formula} - 1}}")
            return True
        if (formula := self.formula(number.value, axis)) is not None:
            self.site(place, number.span, f"{{{formula}}}")
            return True
        return False

    def insert(self, place: SiteFile, at: int | Span, text: str, when: str = "") -> None:
        """Register `text` as a possible insertion at a byte, or in the place of a span; `when` is as in the site."""
        span = at if isinstance(at, Span) else Span(at, at)
        self.insertions.append(TunableSite(place, span, text, when))

    def space(self, base: Candidate) -> Space:
        """Return the finished space; quantities without a choice or a place keep their numbers."""
        live = {name: q for name, q in self.quantities.items() if len(q.choices) > 1}
        found = [*(TunableSite(place, span, text) for (place, span), text in self.sites.items()), *self.insertions]
        sites = [replace(site, text=self._settled(site.text, live)) for site in sorted(found)]
        used = {name for site in sites for name in site.names}
        tunables = [
            Tunable(q.name, q.kind, q.value, q.choices, q.title, q.ordered, q.absent)
            for q in live.values()
            if q.name in used
        ]
        return Space(
            base=base,
            tunables=tuple(sorted(tunables, key=lambda tunable: _ORDER.index(tunable.kind))),
            sites=tuple(site for site in sites if site.names),
            limits=tuple(Limit(self._final(limit.formula, live), limit.low, limit.high) for limit in self.limits),
        )

    def _settled(self, text: str, live: Mapping[str, Quantity]) -> str:
        """Return `text` over the live quantities only; formulas that no longer vary become numbers."""

        def settle(match: re.Match[str]) -> str:
            formula = self._final(match[1], live)
            return f"{{{formula}}}" if names_in(formula) else str(evaluate(formula, {}))

        return FORMULA.sub(settle, text)

    def _final(self, formula: str, live: Mapping[str, Quantity]) -> str:
        def final(match: re.Match[str]) -> str:
            name = self.resolved(match[0])
            return name if name in live else str(self.quantities[name].value)

        return _NAME.sub(final, formula)
