"""Judging several candidates of one target: the baseline is measured once, and none of them stops the others."""

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
class Entry:
    """A candidate's file, and the candidate in it or why there is none."""

    path: Path
    candidate: Candidate | None
    problem: KernelLspError | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a candidate's file with a workload: a verdict, or why it could not be judged."""

    path: Path
    workload: Path
    verdict: Verdict | None
    problem: KernelLspError | None = None


def read_entry(target: Target, path: Path, *, own_launch: bool = True) -> Entry:
    """Return the version of the target's kernel in a file.

    Args:
        target: what it is a version of.
        path: the file; the file is the problem where it cannot be used.
        own_launch: whether a workload file beside it brings the `launch`; else the baseline's is used.
    """
    try:
        source = read_source(path)
        if target.workload.problem:
            return Entry(path, target.answer(source, path.name, "user"))
        launch = find_launch(source) if own_launch else None
        if launch is None:
            return Entry(path, target.version(source.text, path.name, "user"))
        # Beside the workload its imports mean the same; from another folder it takes the workload's place.
        beside = launch.path if launch.path.parent.samefile(target.workload.source.path.parent) else None
        return Entry(path, target.version(source.text, path.name, "user", launch.text, beside))
    except KernelLspError as error:
        return Entry(path, None, error)


async def judge_each(
    target: Target,
    entries: Sequence[Entry],
    settings: Settings,
    on_begin: Callable[[Path], None],
    on_judged: Callable[[Judged], None],
    on_decision: Callable[[Decision], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Judge candidates in order; `on_judged` hears of each as it is done, `on_begin` of each before, `say` what whoever
    waits should know early.

    One that could not be judged, as where a process of the judge's own died, is followed by a session opened anew.

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
