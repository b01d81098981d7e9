"""The work of one job, in a process of its own: refine, write a kernel for a module, check, record a baseline, compare,
judge one rewrite.

Parameters: `work`, `path`, `kernel` (or null), `label` (of a rewrite; the language of a module's kernel; or null),
`texts` (open files as they are in the editor, by path) and `settings` (the tree as JSON). Events: `{"doing": text}`,
`{"progress": refine.progress.Progress}`, `{"verdict": judge.verdict.Verdict}`, sent when it has been stored, and
`{"notice": text}`. The result has `reason`, one sentence; `verdict`, the id of the one that it rests on, or null; of a
search its `notes`, sentences on what was left out; and for a check or a baseline its `report`.

Before a job is known the process may be asked to `prepare`, the only parameter then: its workers begin to import.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Any

from kernel_lsp.check import FileReport, check, record_baseline
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, find_device
from kernel_lsp.errors import RunnerError, SourceError
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.session import open_session, pool_on
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import CheckStatus, Verdict
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.refine.run import refine_target
from kernel_lsp.report.machine import check_json, refinement_json
from kernel_lsp.report.units import interval_text
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import read_source
from kernel_lsp.source.revision import committed_text
from kernel_lsp.store.store import Store, open_store


class _Work:
    """What every kind of work is given."""

    def __init__(self, params: dict[str, Any], emit: Emit, store: Store, pool: Pool) -> None:
        self.path = Path(params["path"])
        self.kernel: str | None = params["kernel"]
        self.label: str | None = params["label"]
        self.texts = {Path(path): str(text) for path, text in params["texts"].items()}
        self.settings = Settings.model_validate(params["settings"])
        self.store, self.emit, self.pool = store, emit, pool

    @property
    def source(self) -> SourceFile:
        return SourceFile(self.path, self.texts[self.path]) if self.path in self.texts else read_source(self.path)

    def target(self) -> Target:
        settings = self.settings
        return make_target(
            self.path,
            self.kernel,
            texts=self.texts,
            problems=settings.kernelbench.root,
            folders=settings.workloads,
        )

    def doing(self, what: str) -> None:
        self.emit({"doing": what})

    def decided(self, verdict: Verdict) -> None:
        self.store.save_verdict(verdict.model_dump(mode="json"))
        self.tell(verdict)

    def tell(self, verdict: Verdict) -> None:
        self.emit({"verdict": verdict.model_dump(mode="json")})


@asynccontextmanager
async def opened() -> AsyncGenerator[Handler]:
    """The handler; each job has a process of its own, and workers that end with the job."""
    async with AsyncExitStack() as stack:
        pool: Pool | None = None

        async def handle(params: dict[str, Any], emit: Emit) -> Any:
            nonlocal pool
            with _said_what_cannot_be_written():
                settings = Settings.model_validate(params["settings"])
                gpu = choose_gpu(settings.gpu)
                if pool is None or pool.gpu != (gpu.uuid if gpu else None):  # settings may have changed since then
                    pool = await stack.enter_async_context(pool_on(gpu, settings))
                if params["work"] == "prepare":
                    pool.preload(Flavour.BUILD, Flavour.GPU if pool.gpu else Flavour.EMULATE)
                    return None
                try:
                    return await _run(params, emit, pool)
                finally:
                    await pool.close()

        yield handle


async def _run(params: dict[str, Any], emit: Emit, pool: Pool) -> Any:
    with open_store(Settings.model_validate(params["settings"]).paths.data) as store:
        try:
            return await _WORKS[params["work"]](_Work(params, emit, store, pool))
        finally:
            for notice in store.notices:
                emit({"notice": notice})


@contextmanager
def _said_what_cannot_be_written() -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else None
        cure = "Make room there, or name other folders with `paths.cache` and `paths.data`."
        raise RunnerError(f"This cannot be written: {error.strerror or error}.", where, cure=cure) from error


async def _refine(work: _Work) -> Any:
    work.doing("building and measuring the baseline")
    found = await refine_target(
        work.target(),
        work.settings,
        work.store,
        asyncio.Event(),
        pool=work.pool,
        on_progress=lambda progress: work.emit({"progress": asdict(progress)}),
        on_verdict=work.tell,
    )
    result = json.loads(refinement_json(found, ""))
    return {
        "reason": found.reason,
        "verdict": found.best.id if found.best else None,
        "notes": found.notes,
        "tried": result["tried"],
    }


async def _lower(work: _Work) -> Any:
    """A kernel for a module, in the language that `label` names."""
    refine = work.settings.refine.model_copy(update={"write": work.label})
    work.settings = work.settings.model_copy(update={"refine": refine})
    return await _refine(work)


async def _check(work: _Work) -> Any:
    work.doing("checking")
    [report] = await check([work.source], work.settings)
    passed = sum(one.status is CheckStatus.PASSED for one in report.checks)
    return _checked(report, f"nothing is wrong: {passed} checks passed")


async def _baseline(work: _Work) -> Any:
    """What the file on the disk costs now is what later checks hold it to; one with errors is not recorded."""
    work.doing("checking and timing")
    [report] = await check([read_source(work.path)], work.settings, record=True)
    written = record_baseline([report]) if report.resources else []
    count = len(report.resources)
    kernels = f"{count} kernel{' is' if count == 1 else 's are'}"
    return _checked(
        report, f"{kernels} recorded in {written[0]}" if written else "there is no kernel that compiles alone"
    )


def _checked(report: FileReport, well: str) -> Any:
    """A report and what to say of it: `well`, unless there are errors."""
    said = json.loads(check_json([report]))["files"][0]
    failed = [one["message"] for one in said["diagnostics"] if one["severity"] == "error"]
    return {"reason": failed[0] if failed else well, "verdict": None, "report": said}


async def _compare(work: _Work) -> Any:
    """The file of the last commit as the baseline, the text in the editor as the candidate."""
    now = work.target()
    before = SourceFile(work.path, committed_text(work.path))
    workload, launch = now.workload, None
    if not workload.in_kernel_file and workload.has_launch:
        try:
            launch = committed_text(workload.source.path)
        except SourceError:  # it is new, and so the launch of both
            launch = None
    target = replace(now, source=before, launch_text=launch)
    return await _judge(work, target, target.version(now.source.text, "since the last commit", "user"))


async def _rewrite(work: _Work) -> Any:
    """One rewrite of the kernel, found again by its label."""
    target, device = work.target(), find_device(work.settings.gpu, work.settings.arch)
    for kernel in [target.kernel] if target.kernel else target.kernels:
        for candidate in find_rewrites(target.baseline, kernel, device):
            if candidate.label == work.label:
                return await _judge(work, target, candidate)
    raise SourceError(f"`{work.label}` does not apply to the kernel as it is now.", work.path)


async def _judge(work: _Work, target: Target, candidate: Candidate) -> Any:
    def show(decision: Decision) -> None:
        speedup = decision.interval.speedup
        found = f": {interval_text((speedup.lower, speedup.upper))}x" if isfinite(speedup.upper) else ""
        work.doing(f"timing, block {decision.blocks}{found}")

    work.doing("building and measuring the baseline")
    async with open_session(target, work.settings, work.pool, say=work.doing) as session:
        work.doing("building, running and checking the candidate")
        verdict = await session.judge(candidate, show)
    work.decided(verdict)
    return {"reason": verdict.reason, "verdict": verdict.id, "outcome": verdict.verdict}


_WORKS: dict[str, Callable[[_Work], Awaitable[Any]]] = {
    "refine": _refine,
    "lower": _lower,
    "check": _check,
    "baseline": _baseline,
    "compare": _compare,
    "rewrite": _rewrite,
}
