"""Searches for answers to problems: one lane per GPU, problem after problem.

Of each problem the best right answer is kept: the fastest if it could be timed, even if slower than the problem's
model. It becomes a file under KernelBench's name and is then judged like any candidate, in a session that knows nothing
of the search: a lucky timing of the search is not in its result.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_lsp.bench.plan import conditions_of
from kernel_lsp.bench.records import Ledger, Search, comparison_of, key_of
from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Stage
from kernel_lsp.model.endpoint import find_endpoint
from kernel_lsp.model.errors import ModelError
from kernel_lsp.model.profile import find_profile
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.local import run_lanes
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.refine.outcome import Refinement, Tried
from kernel_lsp.refine.run import refine_target, require_answer, require_gpu, require_way
from kernel_lsp.source.files import read_source
from kernel_lsp.store.store import Store
from kernel_lsp.workload.suite import ProblemFile, Sample, sample_name


@dataclass(frozen=True, slots=True)
class Task:
    """A problem to search; `key` names its result, `place` is the file for its answer."""

    problem: ProblemFile
    key: str
    place: Path

    @property
    def label(self) -> str:
        """Return `level 1 problem 19`."""
        return f"level {self.problem.level} problem {self.problem.number}"

    @property
    def sample(self) -> Sample:
        """Return the answer, as a candidate."""
        return Sample(self.problem.level, self.problem.number, "", 0, self.place)


@dataclass
class Searching:
    """The state of all searches.

    Attributes:
        tasks: all tasks.
        found: finished searches, by key.
        troubles: problems that could not be searched to the end, each with the reason.
        doing: present activity of each lane.
    """

    tasks: tuple[Task, ...]
    found: dict[str, Search]
    troubles: dict[str, str] = field(default_factory=dict[str, str])
    doing: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def in_order(self) -> list[Search]:
        """Return the finished searches in the order of the problems."""
        return [self.found[task.key] for task in self.tasks if task.key in self.found]

    @property
    def samples(self) -> list[Sample]:
        """Return the answers, as candidates."""
        done = ((task, self.found.get(task.key)) for task in self.tasks)
        return [task.sample for task, search in done if search is not None and search.answer is not None]


Show = Callable[[Searching], None]


def plan_searches(
    problems: Sequence[ProblemFile], folder: Path, settings: Settings, gpus: Sequence[Gpu]
) -> tuple[Task, ...]:
    """Return a task for each problem.

    Args:
        problems: those that were asked for.
        folder: where the answers are written.
        settings: those in force; the search's, the judge's and the model's are part of what a search rests on.
        gpus: what is searched on; of one kind.

    Raises:
        SourceError: a problem cannot be read.
        CannotJudgeError: there is no GPU, and the settings do not say that a search may do without.
        ConfigurationError: the strategy asks no model.
        ModelError: none is served, it may not be asked, or it does not write the language that is asked for.
    """
    require_gpu(settings)
    sources = [read_source(problem.path) for problem in problems]
    for source in sources:
        require_way(source, settings)
    endpoint = find_endpoint(settings)
    rules, place, there = conditions_of(settings, gpus, versions(), "refine")
    rules |= {
        "model": endpoint.model,
        "profile": find_profile(endpoint.profile).model_dump(mode="json"),
        "templates": settings.model.templates,
    }
    return tuple(
        Task(
            problem,
            key_of(source.text, "", rules, place, there),
            folder / sample_name(problem.level, problem.number, 0),
        )
        for problem, source in zip(problems, sources, strict=True)
    )


async def search_problems(
    tasks: Sequence[Task],
    settings: Settings,
    ledger: Ledger,
    store: Store,
    gpus: Sequence[Gpu] = (),
    show: Show = lambda _: None,
) -> Searching:
    """Run the searches missing from the ledger, and write every answer; may be killed at any time and called again.

    Args:
        tasks: the problems to search.
        settings: those in force.
        ledger: keeps finished searches.
        store: takes verdicts and the steps of searches.
        gpus: one lane each; none is the emulator.
        show: called whenever something has changed.

    Raises:
        ConfigurationError: another file stands in an answer's place, or an answer cannot be written.
        ModelError: the model does not answer.
    """
    known = ledger.searches()
    searching = Searching(tuple(tasks), {task.key: known[task.key] for task in tasks if task.key in known})
    for task in tasks:
        _require_room(task, searching.found.get(task.key))
    for task in tasks:
        _write(task, searching.found.get(task.key))
    todo = [task for task in tasks if task.key not in searching.found]
    if not todo:
        return searching
    await require_answer(settings)

    def say(lane: str, what: str) -> None:
        searching.doing[lane] = what
        show(searching)

    async def attend(lane: Lane, task: Task) -> None:
        search = await _search(lane, task, store)
        ledger.append(search)
        searching.found[task.key] = search
        _write(task, search)
        show(searching)

    def fail(task: Task, error: KernelLspError) -> None:
        searching.troubles[task.label] = str(error)

    await run_lanes(TaskQueue(todo, fail), gpus, settings, attend, say)
    return searching


def best_right(found: Refinement) -> Tried | None:
    """Return the best right candidate: the fastest, or the first of those that were not timed; None if none was right.

    Candidates judged in full precede those that only ran in a race, whose checks are fewer.
    """
    latest = {tried.candidate.digest: tried for tried in found.tried}  # a judged candidate was raced before
    right = [tried for tried in latest.values() if _is_right(tried)]
    return min(right, key=lambda tried: (tried.verdict is None, tried.feedback.ratio or float("inf")), default=None)


def _is_right(tried: Tried) -> bool:
    if tried.verdict is not None:
        return comparison_of(tried.verdict).right
    return tried.feedback.stage is Stage.TIMED and tried.feedback.ratio is not None


async def _search(lane: Lane, task: Task, store: Store) -> Search:
    """Run one search to its end and return its result.

    Raises:
        ModelError: the server failed before any candidate was right.
    """
    problem, settings = task.problem, lane.settings
    name = f"level {problem.level} {problem.name}"
    await require_answer(settings)  # before a baseline is measured in vain for a server that is gone
    lane.say(f"{name}: building and measuring the baseline")
    lane.pool.allow(read={problem.path.parent})
    started = time.monotonic()
    found = await refine_target(
        make_target(problem.path),
        settings,
        store,
        asyncio.Event(),
        pool=lane.pool,
        builders=lane.builders,
        on_progress=lambda progress: lane.say(f"{name}: {progress.doing}, {progress.correct} correct"),
    )
    latest = {tried.candidate.digest: tried for tried in found.tried}
    for tried in latest.values():
        lane.builders.forget(tried.candidate)
    best = best_right(found)
    if best is None and found.notes:  # for a module the only notes are the server's failures
        raise ModelError(" ".join((f"{found.reason}.", *found.notes)), problem.path)
    return Search(
        key=task.key,
        level=problem.level,
        number=problem.number,
        problem=problem.name,
        model=find_endpoint(settings).model,
        answer=best.candidate.kernel.text if best else None,
        origin=best.candidate.origin if best else "",
        reason=found.reason,
        notes=found.notes,
        outcomes=dict(Counter(str(tried.feedback.verdict) for tried in latest.values()).most_common()),
        seconds=time.monotonic() - started,
        gpu=lane.gpu.name if lane.gpu else None,
    )


def _require_room(task: Task, search: Search | None) -> None:
    """Check that an answer's file is missing, or holds the answer of this search."""
    if not task.place.exists():
        return
    if search is None or search.answer is None or read_source(task.place).text != search.answer:
        fix = "Name another folder with --propose, or judge what lies in this one with --candidates."
        raise ConfigurationError("This file already exists, from elsewhere.", task.place, fix=fix)


def _write(task: Task, search: Search | None) -> None:
    if search is None or search.answer is None or task.place.exists():
        return
    try:
        task.place.parent.mkdir(parents=True, exist_ok=True)
        draft = task.place.with_suffix(".draft")
        draft.write_bytes(search.answer.encode())
        draft.replace(task.place)
    except OSError as error:
        raise ConfigurationError(f"The answer cannot be written: {error.strerror}.", task.place) from None
