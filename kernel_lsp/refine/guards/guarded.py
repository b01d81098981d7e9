"""Offer variants that win on a part of the cases behind a condition: find it, try it on fresh sizes, have it judged.

The file with the condition is judged as a whole, as any other candidate: what the condition costs is measured with it.
"""

import ast
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.judge.fresh_sizes import FreshResult, FreshSize, try_sizes
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.split import FreshCase, Split, SplitCase
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.refine.guards.predicate import Predicate, QuantityKind, Side, Term, at_the_win, find_predicates
from kernel_lsp.refine.guards.site import Guards, NotGuardedError, SeenCase, VariantChange
from kernel_lsp.refine.language import refine_part
from kernel_lsp.source.candidate import Candidate

_T = TypeVar("_T")
log = logging.getLogger("kernel-lsp")

GUARD = "guard:"
"""Beginning of the origin of a guarded candidate; the variant's own follows."""
_CONDITIONS = 2  # that are tried for one variant, besides their tighter forms
_UNIT = 64  # largest power of two that fresh sizes are kept multiples of


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: time of a candidate over the baseline's, with its interval."""

    ratio: float
    interval: tuple[float, float]

    def side(self, delta: float) -> Side:
        """Return the result of the case: a gain counts from `delta` on."""
        if self.interval[1] < 1 and self.ratio <= 1 - delta:
            return Side.WINS
        return Side.LOSES if self.interval[0] > 1 else Side.EITHER


@dataclass(frozen=True, slots=True)
class SplitVariant:
    """A right candidate whose timed cases do not agree."""

    candidate: Candidate
    cases: tuple[CaseResult, ...]

    def sides(self, delta: float) -> tuple[Side, ...]:
        """Return the result of each case."""
        return tuple(case.side(delta) for case in self.cases)

    def is_split(self, delta: float) -> bool:
        """Return True if some cases win and some lose."""
        return {Side.WINS, Side.LOSES} <= set(self.sides(delta))

    def potential(self, delta: float) -> float:
        """Return the best ratio that a condition can reach: as measured where it wins, 1 elsewhere; geometric mean."""
        won = [math.log(case.ratio) for case in self.cases if case.side(delta) is Side.WINS]
        return math.exp(math.fsum(won) / len(self.cases))


class Bench(Protocol):
    """As much of a workbench as is needed here."""

    @property
    def session(self) -> Session:
        """The session."""
        ...

    async def judge_to_offer(self, candidate: Candidate, split: Split | None = None) -> Verdict:
        """Return the verdict on a candidate, which is offered if it is FASTER."""
        ...

    async def builds(self, candidate: Candidate) -> bool:
        """Return True if a candidate builds."""
        ...

    async def keep_split(self, variant: Candidate, split: Split) -> None:
        """Keep the results of a variant for which there is no offer with its verdict."""
        ...


async def offer_guarded(bench: Bench, variant: SplitVariant) -> Split:
    """Have a variant that wins on some cases only judged behind a condition; return what was found.

    Without a condition that holds, nothing is offered, and the results by case are kept with the variant's verdict.
    """
    found = await _Search(bench, variant).run()
    if not found.predicate:
        await bench.keep_split(variant.candidate, found)
    return found


class _Search:
    """The search of one variant's condition."""

    def __init__(self, bench: Bench, variant: SplitVariant) -> None:
        self._bench, self._variant, session = bench, variant, bench.session
        self._session, self._delta = session, session.settings.judge.delta
        self._sides = variant.sides(self._delta)
        self._change = VariantChange(
            session.target.baseline, variant.candidate, session.target.workload, seen_cases(session)
        )

    async def run(self) -> Split:
        try:
            guards = refine_part(self._change.base.language).guards
            if guards is None:
                return self._split(note=f"nothing is guarded in {self._change.base.language} files")
            return await self._first_that_holds(guards)
        except NotGuardedError as error:
            return self._split(note=f"it cannot be guarded: {error}")

    async def _first_that_holds(self, guards: Guards) -> Split:
        quantities = self._plainly(lambda: guards.quantities(self._change))
        refused: list[str] = []
        refuted = False
        for first in islice(find_predicates(quantities, self._sides), _CONDITIONS):
            for predicate in dict.fromkeys((first, at_the_win(first, self._sides))):
                made = self._candidate(guards, predicate)
                if not await self._bench.builds(made):
                    refused.append(f"with `{predicate}` it does not build")
                    continue
                fresh, unconfirmed = await self._confirm(made, predicate)
                failed = next((one for one in fresh if one.failed), None)
                if failed is not None:
                    refused.append(f"`{predicate}` does not hold on fresh sizes: {failed.case} {failed.failed}")
                    refuted = refuted or failed.path == "new"  # else its code lies badly, which says nothing of others
                    continue
                if refuted and not fresh:  # sizes speak against such a border, and none can speak for this one
                    refused.append(f"`{predicate}` cannot be tried on fresh sizes")
                    continue
                split = self._split(predicate, fresh, "; ".join(filter(None, (*refused, unconfirmed))))
                verdict = await self._bench.judge_to_offer(made, split)
                if verdict.verdict is Outcome.FASTER:
                    return split
                refused.append(f"the file with `{predicate}` is {verdict.verdict} as a whole: {verdict.reason}")
        return self._split(note="; ".join(refused) or "no condition of one or two terms separates them")

    def _plainly(self, make: Callable[[], _T]) -> _T:
        """Return what is made of the texts; a defect in that, such as edits that overlap, ends this variant alone."""
        try:
            return make()
        except (LookupError, ValueError, RecursionError) as error:
            log.error("no guard could be written for `%s`", self._variant.candidate.label, exc_info=error)
            raise NotGuardedError("its text is not plain enough") from error

    def _candidate(self, guards: Guards, predicate: Predicate) -> Candidate:
        base, variant = self._change.base, self._change.variant
        text = self._plainly(lambda: guards.write(self._change, predicate, self._why(predicate)))
        label = f"guarded: {predicate}; {variant.label}"
        return self._session.target.version(text, label, f"{GUARD}{variant.origin}", base.launch and base.launch.text)

    def _why(self, predicate: Predicate) -> str:
        """Return the comment above the condition, in two sentences."""
        new = [at for at in range(len(self._sides)) if predicate.holds_on(at)]
        old = [at for at in range(len(self._sides)) if at not in new]
        where = f" on {self._session.gpu.name}" if self._session.gpu else ""
        return (
            f"Measured{where}: this path is {self._range(new)} as fast as the other for {self._names(new)}. "
            f"For {self._names(old)} it would be {self._range(old)}: there the code below stays."
        )

    def _range(self, cases: Sequence[int]) -> str:
        speedups = sorted(1 / self._variant.cases[at].ratio for at in cases)
        low, high = f"{speedups[0]:.2f}x", f"{speedups[-1]:.2f}x"
        return low if low == high else f"{low} to {high}"

    def _names(self, cases: Sequence[int]) -> str:
        return "; ".join(self._name(at) for at in cases)

    def _name(self, at: int) -> str:
        assert self._session.measured is not None, "it was timed"
        return self._session.measured.harness.cases[self._session.measured.cases[at].draw.case]

    async def _confirm(self, made: Candidate, predicate: Predicate) -> tuple[tuple[FreshCase, ...], str]:
        """Return the results on fresh sizes on both sides of the border, and what could not be confirmed."""
        assert self._session.measured is not None, "it was timed"
        numbers = [case.draw.case for case in self._session.measured.cases]
        sizes = fresh_sizes(predicate, self._change.cases, self._sides)
        if not sizes:
            return (), "no fresh sizes can be made on both sides of it, so it rests on the cases alone"
        asked = [FreshSize(numbers[at], changes) for at, changes, _ in sizes]
        results = await try_sizes(self._session, made, asked)
        kept = [(one, path) for one, (_, _, path) in zip(results, sizes, strict=True) if not one.skipped]
        skipped = [one.skipped for one in results if one.skipped]
        fresh = tuple(_fresh_case(one, path, self._delta) for one, path in kept)
        return fresh, f"fresh sizes that were not tried: {'; '.join(dict.fromkeys(skipped))}" if skipped else ""

    def _split(self, predicate: Predicate | None = None, fresh: tuple[FreshCase, ...] = (), note: str = "") -> Split:
        cases = [
            SplitCase(
                case=self._name(at),
                side=side.value,
                speedup=1 / measured.ratio,
                interval=(1 / measured.interval[1], 1 / measured.interval[0]),
                path="" if predicate is None else "new" if predicate.holds_on(at) else "old",
            )
            for at, (measured, side) in enumerate(zip(self._variant.cases, self._sides, strict=True))
        ]
        variant = self._variant.candidate
        return Split(
            variant=variant.label,
            digest=variant.digest,
            predicate="" if predicate is None else str(predicate),
            cases=tuple(cases),
            fresh=fresh,
            note=note,
        )


def seen_cases(session: Session) -> tuple[SeenCase, ...]:
    """Return what is known of the timed cases."""
    assert session.measured is not None, "there is a GPU"
    plans: Mapping[int, tuple[Launch, ...]] = {}
    if session.baseline_built is not None:
        plans = {plan.case: plan.launches for plan in session.baseline_built.plans}
    written = not session.target.workload.captured
    names = session.measured.harness.cases
    return tuple(
        SeenCase(
            _whole_numbers(names[case.draw.case]) if written else {},
            case.draw.arguments,
            plans.get(case.draw.case, ()),
        )
        for case in session.measured.cases
    )


def fresh_sizes(
    predicate: Predicate, cases: Sequence[SeenCase], sides: Sequence[Side]
) -> list[tuple[int, dict[str, int], str]]:
    """Return sizes near the border that are not listed: the case to change, its changes, and the path they take.

    For each term about a parameter of the cases there is one for either side, made of the case nearest to the border
    there: for a threshold the listed sizes' unit away from it, for a divisor the same remainder one divisor on.
    """
    found: list[tuple[int, dict[str, int], str]] = []
    for term in predicate.terms:
        name = term.quantity.parameter
        if not name or term.quantity.kind is not QuantityKind.SIZE or isinstance(term.value, str):
            continue
        listed = {case.parameters[name] for case in cases}
        for side in (Side.WINS, Side.LOSES):
            of_side = [
                at
                for at, one in enumerate(sides)
                if one is side and term.holds(_value(term, at)) == (side is Side.WINS)
            ]
            if not of_side:
                continue
            base = min(of_side, key=lambda at, term=term: abs(_value(term, at) - int(term.value)))
            value = _fresh_value(term, _value(term, base), listed, inside=side is Side.WINS)
            if value is not None:
                found.append((base, {name: value}, _path(predicate, base, {name: value})))
    return found


def _fresh_value(term: Term, near: int, listed: set[int], *, inside: bool) -> int | None:
    """Return a size that is not listed, on the side of a term that `inside` names; None where there is none above 0."""
    border = int(term.value)
    if term.operator == "%":
        return next(
            value for value in range(near + border, near + border * (len(listed) + 2), border) if value not in listed
        )
    unit = math.gcd(_UNIT, *listed)
    upwards = (term.operator == ">=") == inside
    value = -(-border // unit) * unit if upwards else (border - 1) // unit * unit
    while value in listed:
        value += unit if upwards else -unit
    return value if value > 0 else None


def _value(term: Term, at: int) -> int:
    return int(term.quantity.values[at])


def _path(predicate: Predicate, base: int, changes: Mapping[str, int]) -> str:
    held = [t.holds(changes.get(t.quantity.parameter, t.quantity.values[base])) for t in predicate.terms]
    return "new" if (all(held) if predicate.joined == "and" else any(held)) else "old"


def _fresh_case(result: FreshResult, path: str, delta: float) -> FreshCase:
    failed = result.ruling.reason if result.ruling is not None else ""
    if result.ratio is not None and result.interval is not None and result.interval[0] > 1 and result.ratio > 1 + delta:
        failed = f"is slower there ({1 / result.ratio:.2f}x)"
    return FreshCase(
        case=result.case,
        path=path,
        speedup=None if result.ratio is None else 1 / result.ratio,
        interval=None if result.interval is None else (1 / result.interval[1], 1 / result.interval[0]),
        failed=failed,
    )


def _whole_numbers(case: str) -> dict[str, int]:
    """Return the entries of a case's text that are whole numbers."""
    with contextlib.suppress(SyntaxError, ValueError):
        call = ast.parse(f"dict({case})", mode="eval").body
        if isinstance(call, ast.Call):
            return {
                one.arg: one.value.value
                for one in call.keywords
                if one.arg and isinstance(one.value, ast.Constant) and type(one.value.value) is int
            }
    return {}
