"""Find the simplest condition that sends cases that win to a new path and cases that lose to the old one.

Pure: values and results in, a condition out. Cases without a clear result may go either way. In order of simplicity:

1. one threshold on a size;
2. one divisibility of a size;
3. one alignment of an address;
4. one type of elements;
5. two of these, joined by `and`, then by `or`.

The first kind that separates the cases is taken. Of several conditions of a kind the one with the largest margin wins:
for a threshold the logarithm of the ratio between the sizes that it lies between. The threshold itself is the power of
two nearest to their geometric middle, or, where none lies between them, a multiple of the largest power of two that
does (`roundest`); `at_the_win` moves it to the size that wins. Of several divisors the largest of at most 16 wins, as
unseen sizes then rather keep the old path.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise

DIVISORS = (16, 8, 4, 2, 32, 64, 128, 256)
"""In the order in which they are tried: elements of a vector first, then lengths of tiles."""
_ALIGNMENTS = (16, 8, 4)


class Side(StrEnum):
    """The result of a case: it wins or loses beyond doubt, or neither."""

    WINS = "wins"
    LOSES = "loses"
    EITHER = "either"


class QuantityKind(StrEnum):
    """The kind of a quantity, which decides what a condition may compare."""

    SIZE = "size"
    ADDRESS = "address"
    DTYPE = "dtype"


@dataclass(frozen=True, slots=True)
class GuardQuantity:
    """Something that a condition may ask.

    Attributes:
        text: as code writes it where the condition stands.
        name: as a person calls it.
        kind: what a condition may compare.
        values: its value on each case: whole numbers, or names of types.
        parameter: the parameter of the workload's cases that it equals; empty if it equals none.
    """

    text: str
    name: str
    kind: QuantityKind
    values: tuple[int | str, ...]
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison: `>=` or `<` with a threshold, `%` for divisibility, `==` or `!=` with a type."""

    quantity: GuardQuantity
    operator: str
    value: int | str

    def holds(self, value: int | str) -> bool:
        """Return True if it holds for a value of its quantity."""
        if isinstance(value, str) or isinstance(self.value, str):
            return (value == self.value) == (self.operator == "==")
        return {">=": value >= self.value, "<": value < self.value, "%": value % self.value == 0}[self.operator]

    def render(self, subject: str, value: str = "") -> str:
        """Return its text about a subject; `value` is how code writes a type."""
        if self.operator == "%":
            return f"{subject} % {self.value} == 0"
        return f"{subject} {self.operator} {value or self.value}"


@dataclass(frozen=True, slots=True)
class Predicate:
    """One term, or two joined by `and` or `or`."""

    terms: tuple[Term, ...]
    joined: str = "and"

    def holds_on(self, case: int) -> bool:
        """Return True if it sends a case, by its number, to the new path."""
        held = [term.holds(term.quantity.values[case]) for term in self.terms]
        return all(held) if self.joined == "and" else any(held)

    def __str__(self) -> str:
        """Return it as a person would say it: `rows >= 4096`."""
        return f" {self.joined} ".join(term.render(term.quantity.name) for term in self.terms)


@dataclass(frozen=True, slots=True)
class _Ranked:
    term: Term
    margin: float


def find_predicates(quantities: Sequence[GuardQuantity], sides: Sequence[Side]) -> Iterator[Predicate]:
    """Yield the conditions of the simplest kind that separates the cases, best first; none where nothing does.

    A uniform workload, on which no case wins or none loses, has none.

    Args:
        quantities: what may be asked, those to prefer first; each has a value for every case.
        sides: the result of each case.
    """
    wins = [case for case, side in enumerate(sides) if side is Side.WINS]
    losses = [case for case, side in enumerate(sides) if side is Side.LOSES]
    if not wins or not losses:
        return
    kinds = [_thresholds, _divisors, _alignments, _types]
    every = [[found for q in quantities for found in make(q, wins + losses)] for make in kinds]
    for ranked in every:
        fitting = [r for r in ranked if _separates(Predicate((r.term,)), wins, losses)]
        if fitting:
            fitting.sort(key=lambda r: -r.margin)
            yield from (Predicate((r.term,)) for r in fitting)
            return
    ranked = [r for of_kind in every for r in of_kind]
    for joined in ("and", "or"):
        pairs = list(_pairs(ranked, joined, wins, losses))
        if pairs:
            pairs.sort(key=lambda pair: -pair[1])
            yield from (predicate for predicate, _ in pairs)
            return


def find_predicate(quantities: Sequence[GuardQuantity], sides: Sequence[Side]) -> Predicate | None:
    """Return the best condition that separates the cases, None where nothing does; see `find_predicates`."""
    return next(find_predicates(quantities, sides), None)


def roundest(low: int, high: int) -> int:
    """Return a round number above `low` and at most `high`, near their geometric middle.

    It is a power of two where one lies there, else a multiple of the largest possible one.

    Raises:
        ValueError: no number lies there.
    """
    if not low < high:
        raise ValueError(f"no number is above {low} and at most {high}")
    middle = math.log(max(low, 1) * max(high, 1)) / 2
    powers = [1 << bits for bits in range(max(high, 0).bit_length()) if low < 1 << bits <= high]
    unit = 1
    while 2 * unit <= high and high // (2 * unit) * (2 * unit) > low:
        unit *= 2
    numbers = powers or range((low // unit + 1) * unit, high + 1, unit)
    return min(numbers, key=lambda number: (abs(math.log(max(number, 1)) - middle), -number))


def at_the_win(predicate: Predicate, sides: Sequence[Side]) -> Predicate:
    """Return a condition of one threshold with the border at the size that wins nearest to it; others as they are."""
    term = predicate.terms[0]
    if len(predicate.terms) > 1 or term.operator not in (">=", "<"):
        return predicate
    won = [int(value) for value, side in zip(term.quantity.values, sides, strict=True) if side is Side.WINS]
    border = min(won) if term.operator == ">=" else max(won) + 1
    return Predicate((Term(term.quantity, term.operator, border),))


def _separates(predicate: Predicate, wins: Sequence[int], losses: Sequence[int]) -> bool:
    return all(map(predicate.holds_on, wins)) and not any(map(predicate.holds_on, losses))


def _pairs(
    ranked: Sequence[_Ranked], joined: str, wins: Sequence[int], losses: Sequence[int]
) -> Iterator[tuple[Predicate, float]]:
    """Yield pairs that separate; each term must hold on every win (`and`), or on no loss (`or`)."""

    def may_join(term: Term) -> bool:
        one = Predicate((term,))
        return all(map(one.holds_on, wins)) if joined == "and" else not any(map(one.holds_on, losses))

    for first, second in combinations([r for r in ranked if may_join(r.term)], 2):
        predicate = Predicate((first.term, second.term), joined)
        if _separates(predicate, wins, losses):
            yield predicate, min(first.margin, second.margin)


def _thresholds(quantity: GuardQuantity, cases: Sequence[int]) -> Iterator[_Ranked]:
    if quantity.kind is not QuantityKind.SIZE:
        return
    values = sorted({value for case in cases if isinstance(value := quantity.values[case], int)})
    for low, high in pairwise(values):
        border = roundest(low, high)
        margin = math.log(high / low) if low > 0 else math.inf
        yield _Ranked(Term(quantity, ">=", border), margin)
        yield _Ranked(Term(quantity, "<", border), margin)


def _divisors(quantity: GuardQuantity, cases: Sequence[int]) -> Iterator[_Ranked]:
    if quantity.kind is QuantityKind.SIZE:
        yield from (_Ranked(Term(quantity, "%", d), 1.0 / (1 + DIVISORS.index(d))) for d in DIVISORS)


def _alignments(quantity: GuardQuantity, cases: Sequence[int]) -> Iterator[_Ranked]:
    if quantity.kind is QuantityKind.ADDRESS:
        yield from (_Ranked(Term(quantity, "%", d), 1.0 / (1 + _ALIGNMENTS.index(d))) for d in _ALIGNMENTS)


def _types(quantity: GuardQuantity, cases: Sequence[int]) -> Iterator[_Ranked]:
    if quantity.kind is QuantityKind.DTYPE:
        names = sorted({str(quantity.values[case]) for case in cases})
        yield from (_Ranked(Term(quantity, operator, name), 1.0) for operator in ("==", "!=") for name in names)
