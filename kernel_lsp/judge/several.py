"""Judge several candidates of one target: the baseline is measured once, and a failed candidate stops no other."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import KernelLspError, RunnerError
from kernel_lsp.judge.inputs.findings import RUN_ERRORS
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.spec import find_launch


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """A candidate's file, with the candidate read from it or why it cannot be used."""

    path: Path
    candidate: Candidate | None
    problem: KernelLspError | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The result for a candidate's file with one workload: a verdict, or why it could not be judged."""

    path: Path
    workload: Path
    verdict: Verdict | None
    problem: KernelLspError | None = None


def read_entry(target: Target, path: Path, *, own_launch: bool = True) -> CandidateFile:
    """Return the version of the target's kernel in a file.

    Args:
        target: what it is a version of.
        path: the file; the file is the problem where it cannot be used.
        own_launch: whether a workload file beside it brings the `launch`; else the baseline's is used.
    """
    try:
        source = read_source(path)
        if target.workload.problem:
            return CandidateFile(path, target.answer(source, path.name, "user"))
        launch = find_launch(source) if own_launch else None
        if launch is None:
            return CandidateFile(path, target.version(source.text, path.name, "user"))
        # Beside the workload its imports mean the same; from another folder the text replaces the workload's own.
        beside = launch.path if launch.path.parent.samefile(target.workload.source.path.parent) else None
        return CandidateFile(path, target.version(source.text, path.name, "user", launch.text, beside))
    except KernelLspError as error:
        return CandidateFile(path, None, error)


async def judge_each(
    target: Target,
    entries: Sequence[CandidateFile],
    settings: Settings,
    on_begin: Callable[[Path], None],
    on_judged: Callable[[Judged], None],
    on_decision: Callable[[Decision], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Judge candidates in order.

    `on_begin` is called before each candidate, `on_judged` after each, and `say` with early messages for the user.
    After a candidate that could not be judged, for example because a process of the judge died, the session is opened
    anew.

    Raises:
        KernelLspError: the baseline or the workload cannot be used, or workers cannot be started.
    """
    workload = target.workload.source.path
    waiting: deque[tuple[Path, Candidate]] = deque()
    for entry in entries:
        if entry.candidate is None:
            on_judged(Judged(entry.path, workload, None, entry.problem))
        else:
            waiting.append((entry.path, entry.candidate))
    while waiting:
        async with open_session(target, settings, say=say) as session:
            while waiting:
                path, candidate = waiting.popleft()
                on_begin(path)
                try:
                    on_judged(Judged(path, workload, await session.judge(candidate, on_decision)))
                except RUN_ERRORS as error:
                    known = error if isinstance(error, KernelLspError) else RunnerError(str(error), path)
                    on_judged(Judged(path, workload, None, known))
                    break
