"""The tools of a strategy: build, check, race and judge candidates, and record the search.

A strategy decides what is tried next. The results are decided here, by races that rank and by full judgements; only a
variant with the verdict FASTER is ever suggested.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Never

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.inputs.check import check
from kernel_lsp.judge.race import RaceResult, race
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.sampling import CaseSample, sample_version
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.split import Split
from kernel_lsp.judge.stages.load import enter
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict
from kernel_lsp.refine.guards.guarded import GUARD, CaseResult, SplitVariant, offer_guarded
from kernel_lsp.refine.outcome import (
    Exchange,
    ModelTurn,
    OnExchange,
    OnProgress,
    OnTried,
    Received,
    Refinement,
    Tried,
)
from kernel_lsp.refine.prediction import Predictor
from kernel_lsp.refine.progress import Best, SearchProgress, Talking
from kernel_lsp.refine.proposer import Facts, Feedback, Proposer
from kernel_lsp.refine.proposers import MakeProposers, find_proposers, tuners_for
from kernel_lsp.refine.pruning import reason_to_drop
from kernel_lsp.runner.shield import start, together
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels

NEAR_ROOFLINE = 0.92
"""Share of what memory was seen to give from which on there is nothing left to win by moving bytes better."""
_RACE = 8  # candidates in one race
_CHECKS_AT_ONCE = 4
_JUDGEMENTS = 3  # after one race
_WORTH_A_JUDGEMENT = 0.985  # largest ratio to the best so far
_RESERVE_SECONDS = 4.0  # kept for a last judgement
_OFTEN = 0.5  # least seconds between two reports of mere counts
_GUARDS = 4  # variants of a search for which a condition is looked for
_ERRORS = 3  # of a compiler, quoted with their line


@dataclass(frozen=True, slots=True)
class _Checked:
    """A built candidate: loaded and right, or why it failed."""

    candidate: Candidate
    facts: Facts | None
    subject: Subject | None
    ruling: Ruling | None
    log: str = ""


class Workbench:
    """One search: races in one session or several on equal GPUs, full judgements in the first.

    Of those whose sessions share a GPU one at a time runs anything on it. With `predicts` right candidates get a
    predicted time where there is no GPU, for somebody who is shown it.
    """

    def __init__(
        self,
        session: Session,
        budget: float,
        *,
        on_progress: OnProgress,
        on_tried: OnTried,
        on_exchange: OnExchange,
        on_confirmed: Callable[[Verdict], None] | None,
        seed: int,
        wishes: Sequence[str] = (),
        spent: float = 0.0,
        others: Sequence[Session] = (),
        predicts: bool = False,
    ) -> None:
        self._others = others  # which may become more
        self.session, self.budget, self.seed, self.spent = session, budget, seed, spent
        self.result = Refinement()
        self.talking, self.wishes = Talking(), wishes
        self.notes: list[str] = []
        self._on_progress, self._on_tried, self._on_exchange = on_progress, on_tried, on_exchange
        self._on_confirmed = on_confirmed
        self._random = random.Random(seed)
        self._makers = find_proposers(session.settings.refine.proposers, session.device)
        self._started = time.perf_counter()
        self._counts = {"proposed": 0, "built": 0, "correct": 0, "raced": 0}
        self._seen: set[str] = set()
        self._judged: dict[str, Verdict] = {}
        self._feedback: dict[str, Feedback] = {}
        self._ratio = 1.0  # of the best confirmed variant to the baseline
        self._best: Best | None = None
        self._splits: dict[str, SplitVariant] = {}
        self._guarded: set[str] = set()
        self._predictor = Predictor(session) if predicts else None
        self._doing, self._shown = "starting", self._started
        self._measuring = session.pool.turns.measuring  # models generate and compilers build meanwhile

    @property
    def timed(self) -> bool:
        """True if candidates can be timed here."""
        return self.session.gpu is not None and self.session.measured is not None

    @property
    def candidates(self) -> int:
        """Return the number of candidates proposed so far."""
        return self._counts["proposed"]

    @property
    def best_ratio(self) -> float:
        """Return the time of the best confirmed variant over the baseline's; 1 without one."""
        return self._ratio

    def left(self) -> float:
        """Return the seconds of the budget that are left to start new work."""
        return self.budget - _RESERVE_SECONDS - self.spent - (time.perf_counter() - self._started)

    def out_of_time(self) -> str | None:
        """Return why the search ends before it began: what came before it took the time; None where some is left."""
        if self.left() > 0:
            return None
        took = f"building and measuring the kernel took {self.spent:.0f} s of the {self.budget:g} s in `refine.budget`"
        return f"{took}, so nothing was tried"

    def settled(self) -> str | None:
        """Return why the search can end: the workload is too weak, or the roofline is reached; None to go on."""
        measured = self.session.measured
        if not self.timed or measured is None:
            return None
        if measured.profile.weak:
            return f"the workload cannot tell right from wrong: {measured.profile.weak[0]}; nothing was tried"
        share = self._roofline_share(self.result.best)
        if share is not None and share >= NEAR_ROOFLINE:
            return f"already at {share:.0%} of what this GPU's memory gives; nothing worth it is left"
        return None

    def finish(self, why: str) -> None:
        """End the search and set its reason, one sentence on the result."""
        result = self.result
        result.seconds = time.perf_counter() - self._started
        if result.best is not None:
            result.reason = result.best.reason
        elif why:
            result.reason = why
        elif not self.timed:
            counts = self._counts
            found = f"of {counts['proposed']} candidates {counts['built']} build"
            right = f" and {counts['correct']} are right" if counts["correct"] else ""
            result.reason = f"nothing can be timed here, as this machine has no GPU: {found}{right}"
        else:
            fell = self._falls()
            result.reason = f"no variant is faster beyond doubt; {fell}" if fell else "there was nothing to try"
        result.notes = tuple(self.notes)

    def show(self, doing: str) -> None:
        """Report the current activity to the observer."""
        self._doing, self._shown = doing, time.perf_counter()
        elapsed = self.spent + self._shown - self._started
        self._on_progress(
            SearchProgress(
                doing, elapsed=elapsed, budget=self.budget, best=self._best, talking=self.talking, **self._counts
            )
        )

    def show_again(self) -> None:
        """Report it again with new figures, at most every half second."""
        if time.perf_counter() - self._shown > _OFTEN:
            self.show(self._doing)

    async def try_out(self, candidate: Candidate) -> Feedback:
        """Return the feedback for one candidate: built, checked and, if right, raced and perhaps judged in full.

        `ratio` in the feedback is relative to the user's own file.
        """
        self._seen.add(candidate.digest)
        self._counts["proposed"] += 1
        if not self.timed:
            return (await self.judge_in_full(candidate))[0]
        raced = await self._race([candidate], (), 1.0)
        await self._judge_leaders([(s.ratio, s.subject.candidate) for s in raced if s.ratio is not None])
        await self.guard_best_split()
        unbuilt = Feedback(Stage.BUILD, Outcome.TIMED_OUT, message="the time was up before it was built")
        return self._feedback.get(candidate.digest, unbuilt)

    async def tune(self, candidate: Candidate, ratio: float, seconds: float) -> tuple[Candidate, Feedback] | None:
        """Return the best setting found for a right candidate in at most `seconds`; None where its own is the best.

        One that was confirmed to be the fastest so far is preferred to what a race says of others.
        """
        before = self.result.variant
        reached = await self._climb(candidate, ratio, (tuners_for(self.session.device),), min(seconds, self.left()))
        found = reached[0] if reached is not None else None
        if (confirmed := self.result.variant) is not before:
            found = confirmed
        return None if found is None else (found, self._feedback[found.digest])

    async def climb(self, base: Candidate, ratio: float, seconds: float) -> tuple[Candidate, float] | None:
        """Improve one file with the proposers of the settings; return the best variant and its ratio to the user's.

        None when nothing helps.
        """
        self._seen.add(base.digest)
        return await self._climb(base, ratio, self._makers, seconds)

    async def check_proposed(self, base: Candidate, seconds: float) -> None:
        """Judge the proposals for one file as far as that is possible without a GPU."""
        until = time.perf_counter() + seconds
        self._seen.add(base.digest)
        proposers = self._proposers(base, self._makers)
        while time.perf_counter() < until and (proposed := await self._propose(proposers)):
            self.show(f"checking {len(proposed)} candidates; nothing can be timed here")
            for candidate in proposed:
                if time.perf_counter() > until:
                    break
                await self.judge_in_full(candidate, proposers)
                self.show(f"checked {candidate.label}")

    def heard(self, turn: ModelTurn) -> None:
        """Report a turn of a model before its answer is tried out, which may take minutes and may be killed."""
        self._on_exchange(Exchange(turn))

    def exchanged(self, turn: ModelTurn, received: Received, told: str) -> None:
        """Report a turn of a model with its outcome; `told` is what the model is told about that."""
        digest = received.tried.digest if received.tried else ""
        outcome = self._feedback.get(digest) if received.tried else received.outcome
        self._on_exchange(Exchange(turn, received.candidate, outcome, self._judged.get(digest), told))

    async def judge_in_full(
        self, candidate: Candidate, proposers: Sequence[Proposer] = ()
    ) -> tuple[Feedback, Verdict | None]:
        """Return the feedback of a full judgement without a race before it, and the verdict unless it cannot be built.

        Raises:
            UnjudgedError: something broke that says nothing of the candidate.
        """
        built = await self._build(candidate)  # cached for the judgement
        if isinstance(built, Ruling):
            feedback = Feedback(built.stage, built.outcome, message=built.reason)
            self._note(Tried(candidate, feedback))
            for proposer in proposers:
                proposer.tell(candidate, feedback)
            return feedback, None
        async with self._measuring:
            verdict = await self.session.judge(candidate)
            right = verdict.verdict is Outcome.UNTIMED and verdict.stage is Stage.CORRECT
            predicted = await self._predictor.ratio(candidate, built) if right and self._predictor else None
        self._counts["built"] += verdict.verdict is not Outcome.BUILD_FAILED
        self._counts["correct"] += right
        feedback = replace(_feedback(verdict), facts=_facts(built) if built.ok else None, predicted=predicted)
        if not built.ok:
            feedback = replace(feedback, log=_errors(built, candidate))
        self._judged[candidate.digest] = verdict
        self._note(Tried(candidate, feedback, verdict))
        for proposer in proposers:
            proposer.tell(candidate, feedback)
        return feedback, verdict

    async def _climb(
        self, base: Candidate, base_ratio: float, makers: Sequence[MakeProposers], seconds: float
    ) -> tuple[Candidate, float] | None:
        until = time.perf_counter() + seconds
        proposers = self._proposers(base, makers)
        standings: list[tuple[float, Candidate]] = []
        while time.perf_counter() < until:
            proposed = await self._propose(proposers)
            if not proposed:
                break
            raced = await self._race(proposed, proposers, base_ratio)
            standings += [(s.ratio, s.subject.candidate) for s in raced if s.ratio is not None]
            await self._judge_leaders(sorted(standings, key=lambda s: s[0]))
            await self.guard_best_split()
            standings = sorted((s for s in standings if not self._rejected(s[1])), key=lambda s: s[0])
        if not standings or standings[0][0] > base_ratio * _WORTH_A_JUDGEMENT:
            return None
        return standings[0][1], standings[0][0]

    def _proposers(self, base: Candidate, makers: Sequence[MakeProposers]) -> list[Proposer]:
        """Return the proposers in the order of the settings: rewrites first, as the final structure is then tuned."""
        wanted = self.session.target.kernel
        there = [k.name for k in find_kernels(base.kernel.text, base.kernel.path)]  # a model's file has others
        names = [wanted.name] if wanted and wanted.name in there else self._launched(there)
        return [proposer for make in makers for proposer in make(base, names, self.seed)]

    def _launched(self, names: list[str]) -> list[str]:
        """Return the kernels that the workload launches; all of them where that is not known."""
        measured = self.session.measured
        plans = measured.baseline.built.plans if measured is not None else ()
        launched = {launch.kernel.split("<")[0].strip() for plan in plans for launch in plan.launches}
        return [name for name in names if name in launched] or names

    async def _propose(self, proposers: Sequence[Proposer]) -> list[Candidate]:
        """Return the next few candidates, from each proposer in turn, without earlier ones.

        Where judging takes much of the GPU's memory they race one by one: each holds inputs and outputs of its own.
        """
        found: list[Candidate] = []
        measured = self.session.measured
        large = measured is not None and measured.harness.large
        most = (1 if large else _RACE) * (1 + len(self._others))
        for proposer in proposers:
            while len(found) < most and (more := await proposer.next(most - len(found))):
                fresh = [c for c in more if c.digest not in self._seen]
                self._seen.update(c.digest for c in fresh)
                found += fresh
        self._counts["proposed"] += len(found)
        return found

    async def _race(
        self, candidates: Sequence[Candidate], proposers: Sequence[Proposer], base_ratio: float
    ) -> list[RaceResult]:
        """Build, check and race candidates, and tell the proposers the outcome of each.

        Each session has its share of them, which races against the baseline there.
        """
        self.show(f"building {len(candidates)} candidates")
        sessions = (self.session, *self._others)[: len(candidates)]
        shares = [(session, candidates[place :: len(sessions)]) for place, session in enumerate(sessions)]
        building = {c.digest: start(self._build(c, session)) for session, share in shares for c in share}
        await asyncio.wait(building.values(), timeout=max(self.left(), 1.0))
        races: list[Coroutine[object, Never, list[RaceResult]]] = []
        async with self._measuring:
            for session, share in shares:
                built = [c for c in share if building[c.digest].done()]  # the others ran out of time
                builds = [building[c.digest].result() for c in built]
                races.append(self._race_built(session, built, builds, proposers, base_ratio))
            return [result for results in await together(races) for result in results]

    async def built(self, candidate: Candidate) -> Built | None:
        """Return the build of a candidate, from the cache if it was tried; None where it does not build."""
        built = await self._build(candidate)
        return None if isinstance(built, Ruling) or not built.ok else built

    async def _build(self, candidate: Candidate, session: Session | None = None) -> Built | Ruling:
        """Return a build, or a ruling on why this machine cannot build it; the search goes on then."""
        session = session or self.session
        try:
            return await session.builders.build(session.target.workload, candidate)
        except CannotJudgeError as error:
            return Ruling(Outcome.BUILD_FAILED, Stage.BUILD, error.message)

    async def _race_built(
        self,
        session: Session,
        candidates: Sequence[Candidate],
        builds: Sequence[Built | Ruling],
        proposers: Sequence[Proposer],
        base_ratio: float,
        *,
        again: bool = False,
    ) -> list[RaceResult]:
        """Check and race; those whose process ends without a message once more, as another process may have killed it.

        `again` is set where it is their second time.
        """
        good = sum(isinstance(b, Built) and b.ok for b in builds)
        self._counts["built"] += 0 if again else good
        self.show(f"checking {good} candidates")
        room = asyncio.Semaphore(_CHECKS_AT_ONCE)
        checked = await asyncio.gather(
            *(self._check(session, c, b, room) for c, b in zip(candidates, builds, strict=True))
        )
        ready = [c.subject for c in checked if c.subject is not None]
        standings: list[RaceResult] = []
        try:
            if ready:
                self.show(f"racing {len(ready)} candidates")
                standings = await race(session, ready, self._random)
                self._counts["raced"] += len(ready)
        finally:
            for subject in ready:
                await _leave(session, subject)
        for standing in standings:
            self._keep_cases(standing.subject.candidate, [CaseResult(c.ratio, c.interval) for c in standing.cases])
        by_digest = {s.subject.candidate.digest: s for s in standings}
        results = [(entry, by_digest.get(entry.candidate.digest)) for entry in checked]
        rulings = [_ruling_on(*result) for result in results]
        dead = [] if again else [at for at, ruling in enumerate(rulings) if ruling is not None and ruling.died]
        for at, (entry, standing) in enumerate(results):
            if at not in dead:
                self._tell(entry, standing, proposers, base_ratio)
        if dead:
            kept = [one for at, (_, one) in enumerate(results) if at not in dead and one is not None]
            texts, theirs = [candidates[at] for at in dead], [builds[at] for at in dead]
            return kept + await self._race_built(session, texts, theirs, proposers, base_ratio, again=True)
        return standings

    async def _check(
        self, session: Session, candidate: Candidate, built: Built | Ruling, room: asyncio.Semaphore
    ) -> _Checked:
        measured = session.measured
        assert measured is not None, "the caller checks that there is a GPU"
        if isinstance(built, Ruling):
            return _Checked(candidate, None, None, built)
        if not built.ok:
            ruling = Ruling(Outcome.BUILD_FAILED, Stage.BUILD, built.first_error)
            return _Checked(candidate, None, None, ruling, _errors(built, candidate))
        facts = _facts(built)
        if (why := self._prune(built, measured.baseline.built)) is not None:
            return _Checked(candidate, facts, None, Ruling(Outcome.BUILD_FAILED, Stage.BUILD, why))
        async with room:
            entered = await enter(measured.harness, candidate, built)
            if isinstance(entered, Ruling):
                return _Checked(candidate, facts, None, entered)
            try:
                findings = await check(measured.harness, entered, measured.profile, quick=True)
            except BaseException:
                await _leave(session, entered)
                raise
        if findings.ruling is not None:
            await _leave(session, entered)
            return _Checked(candidate, facts, None, findings.ruling)
        self._counts["correct"] += 1
        return _Checked(candidate, facts, entered, None)

    def _prune(self, built: Built, baseline: Built) -> str | None:
        """Return why the build alone rules a candidate out, or None.

        Only a single kernel is compared with the baseline's.
        """
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
        self, entry: _Checked, standing: RaceResult | None, proposers: Sequence[Proposer], base_ratio: float
    ) -> None:
        ruling = _ruling_on(entry, standing)
        if ruling is not None:
            feedback = Feedback(
                ruling.stage,
                ruling.outcome,
                message=ruling.reason,
                facts=entry.facts,
                log=entry.log,
                mismatch=ruling.mismatch,
            )
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
        """Judge the leader in full when it is clearly better than the confirmed best, and the next if that fails."""
        judged = 0
        for ratio, candidate in standings:
            if ratio > self._ratio * _WORTH_A_JUDGEMENT or judged == _JUDGEMENTS or self.left() < 0:
                return
            if candidate.digest in self._judged:
                continue
            judged += 1
            if (await self.judge_to_offer(candidate)).verdict is Outcome.FASTER:
                return

    async def judge_to_offer(self, candidate: Candidate, split: Split | None = None) -> Verdict:
        """Judge a candidate in full and keep the verdict; a FASTER one that beats the best so far becomes the best.

        `split` becomes part of its evidence.
        """
        self.show(f"judging {candidate.label}")
        async with self._measuring:
            verdict = await self.session.judge(candidate, on_confirmed=self._on_confirmed)
        if split is not None:
            verdict = verdict.with_split(split)
        known = self._feedback.get(candidate.digest)
        self._judged[candidate.digest] = verdict
        self._note(Tried(candidate, replace(_feedback(verdict), facts=known.facts if known else None), verdict))
        if not verdict.verdict.is_failure:
            timed = [CaseResult(1 / c.speedup, (1 / c.interval[1], 1 / c.interval[0])) for c in verdict.cases]
            self._keep_cases(candidate, timed)
        if verdict.verdict is Outcome.FASTER and verdict.speedup is not None and verdict.interval is not None:
            if self.result.seconds_to_first is None:
                self.result.seconds_to_first = time.perf_counter() - self._started
            if 1 / verdict.speedup < self._ratio:
                self._ratio = 1 / verdict.speedup
                self.result.best, self.result.variant = verdict, candidate
                self._best = Best(candidate.label, verdict.speedup, verdict.interval, confirmed=True)
        return verdict

    async def guard_best_split(self) -> None:
        """Have the variant that wins most on some cases, and loses on others, judged behind a condition.

        It must promise more than the best so far. Each is tried once, and a few in a search.
        """
        delta = self.session.settings.judge.delta
        waiting = [
            one
            for digest, one in self._splits.items()
            if digest not in self._guarded and one.is_split(delta) and not self._rejected(one.candidate)
        ]
        best = min(waiting, key=lambda one: one.potential(delta), default=None)
        if best is None or len(self._guarded) >= _GUARDS or self.left() < 0:
            return
        if best.potential(delta) > self._ratio * _WORTH_A_JUDGEMENT:
            return
        self._guarded.add(best.candidate.digest)
        self.show(f"looking for a condition under which {best.candidate.label} wins")
        split = await offer_guarded(self, best)
        if not split.predicate:
            self.notes.append(_unguarded(split))

    async def compiled(self, candidate: Candidate) -> Built | str:
        """Return the build of a candidate, from the cache if it was tried; or why there is none, with lines."""
        built = await self._build(candidate)
        if isinstance(built, Ruling):
            return built.reason
        return built if built.ok else _errors(built, candidate) or built.first_error

    async def checked(self, candidate: Candidate) -> Feedback:
        """Return whether a candidate is right, without timing it; without a GPU by a full judgement."""
        self._seen.add(candidate.digest)
        self._counts["proposed"] += 1
        if not self.timed:
            return (await self.judge_in_full(candidate))[0]
        built = await self._build(candidate)
        async with self._measuring:
            entry = await self._check(self.session, candidate, built, asyncio.Semaphore(1))
            if entry.subject is not None:
                await _leave(self.session, entry.subject)
        if (ruling := entry.ruling) is None:
            return Feedback(Stage.CORRECT, Outcome.UNTIMED, message="It is right. It was not timed.", facts=entry.facts)
        said = ruling.stage, ruling.outcome
        return Feedback(*said, message=ruling.reason, facts=entry.facts, log=entry.log, mismatch=ruling.mismatch)

    async def sampled(self, candidate: Candidate, built: Built) -> CaseSample | None:
        """Return a few blocks of a candidate's largest case on the emulator; None where it cannot run them."""
        measured = self.session.measured
        if measured is None:
            return None
        async with self._measuring:
            if measured.looks is not None:
                return await measured.looks.sampled(candidate, built)
            return await sample_version(measured.harness, candidate, built)

    async def builds(self, candidate: Candidate) -> bool:
        """Return True if a candidate of a few that are proposed here builds."""
        self._seen.add(candidate.digest)
        self._counts["proposed"] += 1
        built = await self.built(candidate)
        self._counts["built"] += built is not None
        return built is not None

    async def keep_split(self, variant: Candidate, split: Split) -> None:
        """Keep the results by case of a variant that is not offered in the evidence of its verdict."""
        verdict = self._judged.get(variant.digest)
        if verdict is None:
            await self.judge_to_offer(variant, split)
            return
        self._judged[variant.digest] = verdict.with_split(split)
        self._note(Tried(variant, self._feedback[variant.digest], self._judged[variant.digest]))

    def _keep_cases(self, candidate: Candidate, cases: Sequence[CaseResult]) -> None:
        """Keep what a candidate took on each case; a later measurement counts."""
        measured = self.session.measured
        whole = measured is not None and len(cases) == len(measured.cases)
        if whole and len(cases) > 1 and not candidate.origin.startswith(GUARD):
            self._splits[candidate.digest] = SplitVariant(candidate, tuple(cases))

    def _rejected(self, candidate: Candidate) -> bool:
        """Return True if a full judgement found a candidate wrong that had been right in a race."""
        verdict = self._judged.get(candidate.digest)
        return verdict is not None and verdict.stage is not Stage.TIMED

    def _roofline_share(self, verdict: Verdict | None) -> float | None:
        """Return the least share of memory bandwidth over cases limited by it; of the baseline without a verdict."""
        measured = self.session.measured
        assert measured is not None, "the caller checks that there is a GPU"
        if verdict is not None:
            shares = [case.roofline_share for case in verdict.cases]
        else:
            shares = [case.roofline_share(measured.harness.bandwidth, case.baseline_us) for case in measured.cases]
        return None if not shares or None in shares else min(s for s in shares if s is not None)

    def _falls(self) -> str:
        """Return the outcomes of failed candidates as text, the most frequent first."""
        counts: dict[str, int] = {}
        for tried in self.result.tried:
            if tried.verdict is None:
                counts[tried.feedback.verdict.value] = counts.get(tried.feedback.verdict.value, 0) + 1
        return ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda item: -item[1]))

    def _note(self, tried: Tried) -> None:
        self._feedback[tried.candidate.digest] = tried.feedback
        self.result.tried.append(tried)
        self._on_tried(tried)


def _ruling_on(entry: _Checked, standing: RaceResult | None) -> Ruling | None:
    """Return why a candidate failed, when it was checked or in the race; None if it did not."""
    return entry.ruling or (standing.ruling if standing else None)


async def _leave(session: Session, subject: Subject) -> None:
    assert session.measured is not None, "the caller checks that there is a GPU"
    await session.measured.harness.leave(subject)


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


def _feedback(verdict: Verdict) -> Feedback:
    """Return a full judgement as feedback. `ratio` is relative to the user's own file."""
    return Feedback(
        verdict.stage,
        verdict.verdict,
        1 / verdict.speedup if verdict.speedup else None,
        (1 / verdict.interval[1], 1 / verdict.interval[0]) if verdict.interval else None,
        verdict.reason,
        mismatch=verdict.evidence.mismatch,
    )


def _unguarded(split: Split) -> str:
    """Return a sentence on a variant that wins on some cases and is not offered."""
    won = sum(case.side == "wins" for case in split.cases)
    return f"`{split.variant}` is faster on {won} of {len(split.cases)} cases and not offered: {split.note}."


def _errors(built: Built, candidate: Candidate) -> str:
    """Return the first errors of a build, each with the line of source that it names."""
    texts = {file.path.name: file.text.splitlines() for file in (candidate.kernel, candidate.launch) if file}
    found: list[str] = []
    for one in [d for d in built.build.diagnostics if d.severity is Severity.ERROR][:_ERRORS]:
        name = one.path.rpartition("/")[2]
        found.append(f"{name}:{one.line}: error: {one.message}")
        lines = texts.get(name, [])
        if 0 < one.line <= len(lines):
            found.append(f"    {lines[one.line - 1].strip()}")
    return "\n".join(found)
