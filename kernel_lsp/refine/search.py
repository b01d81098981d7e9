"""The search for a faster variant: rewrites and settings are raced, the best is judged, the judge has the last word.

The search climbs. It races the rewrites and the first settings of the file as it stands, takes the best of them as the
next file to improve, and goes on from there until nothing helps, the roofline is reached or the time is spent. Each
time a race shows a clearly better candidate it is judged in full; only a FASTER verdict is ever offered.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernel_lsp.build.plan import Launch
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge import correctness
from kernel_lsp.judge.bench import Subject
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.correctness import Failure
from kernel_lsp.judge.pipeline import Session, enter
from kernel_lsp.judge.race import Standing, race
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict
from kernel_lsp.refine.progress import Best, Progress
from kernel_lsp.refine.proposer import Facts, Feedback, Proposer
from kernel_lsp.refine.proposers import find_proposers
from kernel_lsp.refine.pruning import reason_to_drop
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Language

NEAR_ROOFLINE = 0.92
"""Share of the measured copy bandwidth from which on there is nothing left to win by moving bytes better."""
_RACE = 8  # candidates in one race
_CHECKS_AT_ONCE = 4
_JUDGEMENTS = 3  # after one race
_WORTH_A_JUDGEMENT = 0.985  # ratio to the best so far
_RESERVE_SECONDS = 4.0  # kept for the judgement of what is found last


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate and what became of it."""

    candidate: Candidate
    feedback: Feedback
    verdict: Verdict | None = None


@dataclass
class Refinement:
    """The outcome of a search.

    Attributes:
        best: the verdict on the best variant, FASTER and confirmed; None when there is none.
        variant: its text.
        tried: every candidate in the order in which it was decided.
        reason: one sentence: what was found, or why nothing was.
        seconds: wall time of the search, without the baseline's measurement, which opens the session.
        seconds_to_first: wall time to the first FASTER verdict.
        cancelled: whether it was stopped before it was done.
    """

    best: Verdict | None = None
    variant: Candidate | None = None
    tried: list[Tried] = field(default_factory=list[Tried])
    reason: str = ""
    seconds: float = 0.0
    seconds_to_first: float | None = None
    cancelled: bool = False


OnProgress = Callable[[Progress], None]
OnTried = Callable[[Tried], None]


async def refine(
    session: Session,
    *,
    budget: float,
    on_progress: OnProgress = lambda _: None,
    on_tried: OnTried = lambda _: None,
    seed: int = 0,
) -> Refinement:
    """Search for a faster variant of the session's target for at most `budget` seconds.

    Cancelling the task stops the search at once; call it through `refine_until_stopped` to keep what was found.

    The baseline must be right. Where there is no GPU, candidates are built and checked, and nothing is found faster.

    Raises:
        ConfigurationError: a proposer that the settings name cannot be used.
        RunnerError: the baseline's own process failed while it was timed.
    """
    search = _Search(session, budget, on_progress, on_tried, seed)
    await search.run()
    return search.result


async def refine_until_stopped(
    session: Session,
    stop: asyncio.Event,
    *,
    budget: float,
    on_progress: OnProgress = lambda _: None,
    on_tried: OnTried = lambda _: None,
) -> Refinement:
    """`refine`, ended early with what was found so far when `stop` is set."""
    search = _Search(session, budget, on_progress, on_tried, 0)
    running = asyncio.create_task(search.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            search.result.cancelled = True
            await asyncio.gather(running, return_exceptions=True)
            search.finish("it was stopped before anything faster was found")
        else:
            running.result()
    finally:
        stopping.cancel()
        running.cancel()
    return search.result


@dataclass(frozen=True, slots=True)
class _Checked:
    """A candidate that was built: loaded and right, or why it is out."""

    candidate: Candidate
    facts: Facts | None
    subject: Subject | None
    failure: Failure | None


class _Search:
    def __init__(self, session: Session, budget: float, on_progress: OnProgress, on_tried: OnTried, seed: int) -> None:
        self.result = Refinement()
        self._session, self._budget = session, budget
        self._on_progress, self._on_tried = on_progress, on_tried
        self._random = random.Random(seed)
        self._seed = seed
        self._makers = find_proposers(session.settings.refine.proposers)
        self._started = time.perf_counter()
        self._counts = {"proposed": 0, "built": 0, "correct": 0, "raced": 0}
        self._seen: set[str] = set()
        self._judged: dict[str, Verdict] = {}
        self._ratio = 1.0  # of the best confirmed variant to the baseline
        self._best: Best | None = None

    async def run(self) -> None:
        """Climb until nothing helps, the roofline or the budget."""
        target, measured = self._session.target, self._session.measured
        if self._session.gpu is None or measured is None:
            await self._check_all(target.baseline)
            return
        if measured.yard.weak:
            self.finish(f"the workload cannot tell right from wrong: {measured.yard.weak[0]}; nothing was tried")
            return
        if (share := self._roofline_share(None)) is not None and share >= NEAR_ROOFLINE:
            self.finish(f"already at {share:.0%} of what this GPU's memory gives; nothing worth it is left")
            return
        base, base_ratio = target.baseline, 1.0
        self._seen.add(base.digest)
        while self._left() > 0:
            try:
                reached = await self._climb(base, base_ratio)
            except (RunnerError, WorkerFailure):
                if self.result.best is None:
                    raise
                break  # what was found is kept
            if reached is None:
                break
            base, base_ratio = reached
            if (share := self._roofline_share(self.result.best)) is not None and share >= NEAR_ROOFLINE:
                break
        self.finish("")

    def finish(self, why: str) -> None:
        """Close the books and say in one sentence what came of it."""
        result = self.result
        result.seconds = time.perf_counter() - self._started
        if result.best is not None:
            result.reason = result.best.reason
        elif why:
            result.reason = why
        else:
            fell = self._falls()
            result.reason = f"no variant is faster beyond doubt; {fell}" if fell else "there was nothing to try"

    async def _check_all(self, base: Candidate) -> None:
        """Judge what is proposed for one file as far as it can be without a GPU."""
        self._seen.add(base.digest)
        proposers = self._proposers(base)
        while self._left() > 0 and (proposed := await self._propose(proposers)):
            self._show(f"checking {len(proposed)} candidates; nothing can be timed here")
            for candidate in proposed:
                if self._left() < 0:
                    break
                verdict = await self._session.judge(candidate)
                self._counts["built"] += verdict.verdict is not Outcome.BUILD_FAILED
                self._counts["correct"] += verdict.verdict is Outcome.UNTIMED and verdict.stage is Stage.CORRECT
                feedback = Feedback(verdict.stage, verdict.verdict, message=verdict.reason)
                self._note(Tried(candidate, feedback, verdict))
                for proposer in proposers:
                    proposer.tell(candidate, feedback)
                self._show(f"checked {candidate.label}")
        counts = self._counts
        right = f" and {counts['correct']} are right" if base.language is Language.TRITON else "; none was run"
        found = f"of {counts['proposed']} candidates {counts['built']} build{right}"
        self.finish(f"nothing can be timed here, for there is no GPU: {found}")

    async def _climb(self, base: Candidate, base_ratio: float) -> tuple[Candidate, float] | None:
        """Improve one file; the best variant of it and its ratio to the user's file, or None when nothing helps."""
        proposers = self._proposers(base)
        standings: list[tuple[float, Candidate]] = []
        while self._left() > 0:
            proposed = await self._propose(proposers)
            if not proposed:
                break
            raced = await self._race(proposed, proposers, base_ratio)
            standings += [(s.ratio, s.subject.candidate) for s in raced if s.ratio is not None]
            await self._judge_leaders(sorted(standings, key=lambda s: s[0]))
            standings = sorted((s for s in standings if not self._rejected(s[1])), key=lambda s: s[0])
        if not standings or standings[0][0] > base_ratio * _WORTH_A_JUDGEMENT:
            return None
        return standings[0][1], standings[0][0]

    def _proposers(self, base: Candidate) -> list[Proposer]:
        """In the order of the settings: rewrites first, for a setting is best chosen for the structure it will have."""
        target = self._session.target
        names = [k.name for k in target.kernels if target.kernel is None or k.name == target.kernel.name]
        return [proposer for make in self._makers for proposer in make(base, names, self._seed)]

    async def _propose(self, proposers: Sequence[Proposer]) -> list[Candidate]:
        """The next few candidates, from each proposer in turn, none of them seen before."""
        found: list[Candidate] = []
        for proposer in proposers:
            while len(found) < _RACE and (more := await proposer.next(_RACE - len(found))):
                fresh = [c for c in more if c.digest not in self._seen]
                self._seen.update(c.digest for c in fresh)
                found += fresh
        self._counts["proposed"] += len(found)
        return found

    async def _race(
        self, candidates: Sequence[Candidate], proposers: Sequence[Proposer], base_ratio: float
    ) -> list[Standing]:
        """Build, check and race candidates, and tell the proposers what became of each."""
        self._show(f"building {len(candidates)} candidates")
        builders, workload = self._session.builders, self._session.target.workload
        building = {c.digest: asyncio.create_task(builders.build(workload, c)) for c in candidates}
        await asyncio.wait(building.values(), timeout=max(self._left(), 1.0))
        candidates = [c for c in candidates if building[c.digest].done()]  # the time is up for the others
        builds = [building[c.digest].result() for c in candidates]
        self._show(f"checking {sum(b.ok for b in builds)} candidates")
        room = asyncio.Semaphore(_CHECKS_AT_ONCE)
        checked = await asyncio.gather(*(self._check(c, b, room) for c, b in zip(candidates, builds, strict=True)))
        ready = [c.subject for c in checked if c.subject is not None]
        standings: list[Standing] = []
        try:
            if ready:
                self._show(f"racing {len(ready)} candidates")
                standings = await race(self._session, ready, self._random)
                self._counts["raced"] += len(ready)
        finally:
            for subject in ready:
                await self._leave(subject)
        by_digest = {s.subject.candidate.digest: s for s in standings}
        for entry in checked:
            self._tell(entry, by_digest.get(entry.candidate.digest), proposers, base_ratio)
        return standings

    async def _check(self, candidate: Candidate, built: Built, room: asyncio.Semaphore) -> _Checked:
        measured = self._session.measured
        assert measured is not None, "the caller checks that there is a GPU"
        if not built.ok:
            return _Checked(candidate, None, None, Failure(Outcome.BUILD_FAILED, Stage.BUILD, built.first_error))
        self._counts["built"] += 1
        facts = _facts(built)
        if (why := self._prune(built, measured.baseline.built)) is not None:
            return _Checked(candidate, facts, None, Failure(Outcome.BUILD_FAILED, Stage.BUILD, why))
        async with room:
            entered = await enter(measured.bench, candidate, built)
            if isinstance(entered, Failure):
                return _Checked(candidate, facts, None, entered)
            try:
                findings = await correctness.check(measured.bench, entered, measured.yard, quick=True)
            except BaseException:
                await self._leave(entered)
                raise
        if findings.failure is not None:
            await self._leave(entered)
            return _Checked(candidate, facts, None, findings.failure)
        self._counts["correct"] += 1
        return _Checked(candidate, facts, entered, None)

    def _prune(self, built: Built, baseline: Built) -> str | None:
        """Why the build alone rules a candidate out. Only a sole kernel has a baseline's to be compared with."""
        binary, other = built.build.binary, baseline.build.binary
        if binary is None:
            return None
        facts = {k.entry: k for k in binary.kernels}
        twin = other.kernels[0] if other is not None and len(other.kernels) == 1 == len(binary.kernels) else None
        for launch in {_key(x): x for plan in built.plans for x in plan.launches}.values():
            kernel = facts.get(launch.entry or binary.entries.get(launch.kernel, ""))
            if kernel and (why := reason_to_drop(binary.arch, launch, kernel, twin)):
                return why
        return None

    def _tell(
        self, entry: _Checked, standing: Standing | None, proposers: Sequence[Proposer], base_ratio: float
    ) -> None:
        failure = entry.failure or (standing.failure if standing else None)
        if failure is not None:
            feedback = Feedback(failure.stage, failure.outcome, message=failure.reason, facts=entry.facts)
        elif standing is None or standing.ratio is None:
            feedback = Feedback(Stage.TIMED, Outcome.AMBIGUOUS, message="it was not timed", facts=entry.facts)
        else:
            low, high = standing.interval or (standing.ratio, standing.ratio)
            outcome = (
                Outcome.SLOWER if low > 1 else Outcome.NOT_WORTH_IT if standing.ratio > 0.99 else Outcome.AMBIGUOUS
            )
            feedback = Feedback(
                Stage.TIMED,
                outcome,
                standing.ratio,
                (low, high),
                f"{1 / standing.ratio:.3f}x in a race",
                entry.facts,
            )
        self._note(Tried(entry.candidate, feedback))
        relative = feedback if feedback.ratio is None else replace(feedback, ratio=feedback.ratio / base_ratio)
        for proposer in proposers:
            proposer.tell(entry.candidate, relative)

    async def _judge_leaders(self, standings: Sequence[tuple[float, Candidate]]) -> None:
        """Judge the leader in full when it is clearly better than what was confirmed, and the next if that fails."""
        judged = 0
        for ratio, candidate in standings:
            if ratio > self._ratio * _WORTH_A_JUDGEMENT or judged == _JUDGEMENTS or self._left() < 0:
                return
            if candidate.digest in self._judged:
                continue
            judged += 1
            self._show(f"judging {candidate.label}")
            verdict = await self._session.judge(candidate)
            feedback = Feedback(
                verdict.stage,
                verdict.verdict,
                1 / verdict.speedup if verdict.speedup else None,
                (1 / verdict.interval[1], 1 / verdict.interval[0]) if verdict.interval else None,
                verdict.reason,
            )
            self._judged[candidate.digest] = verdict
            self._note(Tried(candidate, feedback, verdict))
            if verdict.verdict is Outcome.FASTER and verdict.speedup is not None and verdict.interval is not None:
                if self.result.seconds_to_first is None:
                    self.result.seconds_to_first = time.perf_counter() - self._started
                if 1 / verdict.speedup < self._ratio:
                    self._ratio = 1 / verdict.speedup
                    self.result.best, self.result.variant = verdict, candidate
                    self._best = Best(candidate.label, verdict.speedup, verdict.interval, confirmed=True)
                return

    def _rejected(self, candidate: Candidate) -> bool:
        """Whether a full judgement found the candidate wrong, where a race had found it right."""
        verdict = self._judged.get(candidate.digest)
        return verdict is not None and verdict.stage is not Stage.TIMED

    def _roofline_share(self, verdict: Verdict | None) -> float | None:
        """Least share of the copy bandwidth over the cases where it is the limit; of the baseline without a verdict."""
        measured = self._session.measured
        assert measured is not None, "the caller checks that there is a GPU"
        if verdict is not None:
            shares = [case.roofline_share for case in verdict.cases]
            return None if not shares or None in shares else min(s for s in shares if s is not None)
        roof = measured.bench.copy_bandwidth
        large = [c for c in measured.cases if c.mode != "graph"]
        if roof is None or len(large) < len(measured.cases) or not large:
            return None
        return min(c.bytes_moved / (c.baseline_us * 1e-6) / roof for c in large)

    def _falls(self) -> str:
        """How the candidates fell, most frequent reason first."""
        counts: dict[str, int] = {}
        for tried in self.result.tried:
            if tried.verdict is None:
                counts[tried.feedback.verdict.value] = counts.get(tried.feedback.verdict.value, 0) + 1
        return ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))

    def _note(self, tried: Tried) -> None:
        self.result.tried.append(tried)
        self._on_tried(tried)

    async def _leave(self, subject: Subject) -> None:
        measured = self._session.measured
        assert measured is not None, "the caller checks that there is a GPU"
        await measured.bench.leave(subject)

    def _left(self) -> float:
        return self._budget - _RESERVE_SECONDS - (time.perf_counter() - self._started)

    def _show(self, doing: str) -> None:
        elapsed = time.perf_counter() - self._started
        self._on_progress(Progress(doing, elapsed=elapsed, budget=self._budget, best=self._best, **self._counts))


def _facts(built: Built) -> Facts:
    found = resources_of(built)
    return Facts(
        max((k.registers for k in found), default=None),
        max((k.spill_bytes for k in found if k.spill_bytes is not None), default=None),
        max((k.shared_bytes for k in found), default=None),
        min((k.occupancy for k in found if k.occupancy is not None), default=None),
    )


def _key(launch: Launch) -> tuple[object, ...]:
    return launch.entry, launch.kernel, launch.block, launch.shared_bytes
