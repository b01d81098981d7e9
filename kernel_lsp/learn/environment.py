"""One kernel as an environment of a policy: what the policy is asked, and what the judge says of its answers.

The judge runs in its own processes, and a policy learns nothing of it but the feedback of a search.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import WorkloadError
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.profile import Profile
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, format_for, make_task, normalised
from kernel_lsp.refine.journal import Journal
from kernel_lsp.refine.model_session import brief
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.store.store import Store

_CUT_OFF = "The answer was cut off before it ended. Answer in less space."
_UNCHANGED = "The answer is the kernel as it stands. Change something."


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer with what the judge said.

    Attributes:
        candidate: the one in the answer; None where it broke the rules of its format.
        outcome: the feedback of a full judgement; a text says why there is no candidate, None that nothing was decided.
        verdict: of that judgement; None without one.
    """

    candidate: Candidate | None
    outcome: Feedback | str | None
    verdict: Verdict | None = None


Memory = dict[str, Awaitable[JudgedAnswer]]
"""What was judged of a kernel, by the digest of the text without comments and layout."""


class KernelJudge(Protocol):
    """Judges candidates for one kernel, wherever that is."""

    @property
    def target(self) -> Target:
        """Return the kernel."""
        ...

    @property
    def gpu(self) -> Gpu | None:
        """Return the GPU, or one of its kind; None for the emulator."""
        ...

    @property
    def briefing(self) -> Briefing:
        """Return the facts on the kernel as it stands."""
        ...

    @property
    def whole(self) -> bool:
        """Return True while it can judge."""
        ...

    async def judge(self, candidate: Candidate) -> tuple[Feedback, Verdict | None]:
        """Return the feedback of a full judgement, and the verdict unless the candidate cannot be built.

        Raises:
            UnjudgedError: something broke that says nothing of the candidate.
        """
        ...


class SessionJudge:
    """Judges in an open session.

    Args:
        session: of the kernel.

    Raises:
        WorkloadError: the kernel itself is wrong, or its workload cannot tell right from wrong.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        target, measured = session.target, session.measured
        if measured is None:
            raise WorkloadError(f"nothing can be judged here: {session.unmeasured}", target.source.path)
        if (ruling := measured.profile.findings.ruling) is not None:
            fix = "Fix the kernel or its workload first; `kernel-lsp check` shows more."
            raise WorkloadError(f"the kernel itself fails: {ruling.reason}", target.source.path, fix=fix)
        require_telling(target, measured.profile.weak)
        self._bench = Workbench(
            session,
            float("inf"),
            on_progress=lambda _: None,
            on_tried=lambda _: None,
            on_exchange=lambda _: None,
            on_confirmed=None,
            seed=0,
        )

    @property
    def target(self) -> Target:
        """Return the kernel."""
        return self._session.target

    @property
    def gpu(self) -> Gpu | None:
        """Return the session's GPU; None for the emulator."""
        return self._session.gpu

    @property
    def briefing(self) -> Briefing:
        """Return the facts on the kernel as it stands."""
        return brief(self._session, ())

    @property
    def whole(self) -> bool:
        """Return True while the session can judge."""
        return self._session.whole

    async def judge(self, candidate: Candidate) -> tuple[Feedback, Verdict | None]:
        """Return the result of a full judgement; see `KernelJudge.judge`."""
        return await self._bench.judge_in_full(candidate)


class KernelEnvironment:
    """A kernel with its judge. Make it with `open_environment`, or by `kernel_lsp.learn.judges`."""

    def __init__(self, judge: KernelJudge, profile: Profile, settings: Settings, store: Store, memory: Memory) -> None:
        self.profile, self.target, self.gpu = profile, judge.target, judge.gpu
        self.prompts = Prompts(format_for(self.target.source, profile, settings.refine.write), settings.model.templates)
        self.task = make_task(self.target, profile, self.prompts)
        self.briefing = judge.briefing
        self.journal = Journal(store, self.target, settings, judge.gpu)
        self._judge, self._store, self._memory = judge, store, memory

    @property
    def whole(self) -> bool:
        """Return True while answers can be judged."""
        return self._judge.whole

    async def receive(self, answer: ModelAnswer) -> JudgedAnswer:
        """Return the judgement of an answer: in full, and once for each text however often and when it is given.

        A text that is timed anew each time would be paid for its luck.
        """
        if not answer.complete:
            return JudgedAnswer(None, _CUT_OFF)
        try:
            candidate = self.task.candidate(answer)
        except RejectedAnswer as rejection:
            return JudgedAnswer(None, str(rejection))
        text = normalised(candidate)
        if text == normalised(self.target.baseline):
            return JudgedAnswer(None, _UNCHANGED)
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in self._memory:
            self._memory[key] = asyncio.ensure_future(self._judged(candidate))
        judging = self._memory[key]
        judged = await asyncio.shield(judging)
        if judged.outcome is None:
            self._memory.pop(key, None)  # nobody's fault: another trajectory may try again
        return judged

    async def _judged(self, candidate: Candidate) -> JudgedAnswer:
        try:
            feedback, verdict = await self._judge.judge(candidate)
        except UnjudgedError:
            return JudgedAnswer(candidate, None)
        if verdict is not None:
            self._store.save_verdict(verdict.model_dump(mode="json"))
        return JudgedAnswer(candidate, feedback, verdict)


@asynccontextmanager
async def open_environment(
    target: Target,
    profile: Profile,
    settings: Settings,
    store: Store,
    pool: Pool,
    memory: Memory,
) -> AsyncGenerator[KernelEnvironment]:
    """Open the session of a kernel, with its baseline measured.

    Args:
        target: the kernel.
        profile: of the policy.
        settings: in force at its file.
        store: takes verdicts and turns.
        pool: of workers, on the GPU that judges.
        memory: what was judged of this kernel before; it is added to.

    Raises:
        WorkloadError: the kernel itself is wrong, or its workload cannot tell right from wrong.
        KernelLspError: the kernel, its workload or the profile cannot be used.
    """
    async with open_session(target, settings, pool) as session:
        yield KernelEnvironment(SessionJudge(session), profile, settings, store, memory)


def require_telling(target: Target, weak: Sequence[str]) -> None:
    """Check that no trivial answer passes a target's workload; `weak` are those that do, as sentences.

    Raises:
        WorkloadError: one does.
    """
    if weak:
        raise WorkloadError(f"the workload cannot tell right from wrong: {weak[0]}", target.workload.source.path)


def target_of(name: str, settings: Settings) -> Target:
    """Return the target that a command line names: `path` or `path::kernel`.

    Raises:
        SourceError, WorkloadError: there is no such kernel, or no workload.
    """
    path, _, kernel = name.partition("::")
    return make_target(Path(path), kernel or None, problems=settings.kernelbench.root, folders=settings.workloads)
