"""Examines and times kernel files in lanes, for a check that looks up, keeps and reports their results elsewhere."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kernel_lsp.check.dependencies import Dependencies
from kernel_lsp.check.examination import examine
from kernel_lsp.check.record import CaseTime, Examination
from kernel_lsp.check.timed import time_alone
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.pool.calls import LaneCalls, NumberedRecord
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.protocol import Work
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.spec import WorkloadFile


class CheckRequest(NumberedRecord):
    """A file to be examined, or one that runs to be timed.

    Attributes:
        source: the kernel file.
        workload: its workload, if it has one.
        others: paths of the headers and modules that these two read.
        run: False to stop after building.
        timed: True for its times alone.
    """

    source: SourceFile
    workload: WorkloadFile | None
    others: tuple[Path, ...]
    run: bool
    timed: bool


class CheckResult(NumberedRecord):
    """The result of examining a file, or its times, and the seconds that it took in its lane."""

    examination: Examination | None = None
    emulation: Emulation | None = None
    times: tuple[CaseTime, ...] = ()
    seconds: float


async def check_in_lane(
    lane: Lane, request: CheckRequest, tell: Callable[[CheckResult], None], _ahead: CheckRequest | None
) -> None:
    """Examine or time a file; see `Work.attend`."""
    started = time.perf_counter()
    name, source, workload = request.source.path.name, request.source, request.workload
    if request.timed:
        assert workload is not None, "only what has run is timed"
        assert lane.gpu is not None, "only a GPU is timed"
        lane.say(f"timing {name}")
        times = await time_alone(lane.pool, source, workload, lane.settings, lane.gpu)
        tell(CheckResult(number=request.number, times=times, seconds=time.perf_counter() - started))
        return
    lane.say(f"checking {name}")
    builders = Builders(lane.pool, lane.settings, lane.builders.device)  # of the whole file as it stands
    try:
        examination, emulation = await examine(
            source,
            workload,
            lane.pool,
            builders,
            lane.settings,
            lane.gpu,
            run=request.run,
            on_step=lambda step: lane.say(f"checking {name}: {step.doing}"),
        )
    finally:
        builders.close()
    seconds = time.perf_counter() - started
    tell(CheckResult(number=request.number, examination=examination, emulation=emulation, seconds=seconds))


def checked_files(request: CheckRequest) -> Iterable[Path]:
    """Return the files that a check reads, headers too."""
    workload = (request.workload.source.path,) if request.workload else ()
    return {request.source.path, *workload, *request.others}


CHECK_FILE = Work(f"{__name__}:CHECK_FILE", CheckRequest, CheckResult, check_in_lane, checked_files)
CheckCalls = LaneCalls[CheckRequest, CheckResult]


def request_of(depends: Dependencies, *, run: bool, timed: bool = False) -> CheckRequest:
    """Return the request for a file with one of its workloads."""
    others = tuple(file.path for file in depends.others)
    return CheckRequest(source=depends.source, workload=depends.workload, others=others, run=run, timed=timed)
