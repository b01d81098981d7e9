"""While one problem is judged, the session of the next one opens, and one measures at a time."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from kernel_lsp.bench import attend
from kernel_lsp.bench.plan import Comparisons, make_plan
from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.target import make_target
from kernel_lsp.pool.kept import Kept
from kernel_lsp.pool.lane import Lane
from kernel_lsp.runner.turns import GpuTurns
from kernel_lsp.workload.suite import find_problems, find_samples
from tests.unit.bench.bench_results import result
from tests.unit.bench.kernelbench_command import CANDIDATES, PROBLEMS


@pytest.fixture
def requests(tmp_path):
    (tmp_path / "candidates").mkdir()
    for sample in sorted(CANDIDATES.glob("level_1_problem_*"))[:6]:
        shutil.copy(sample, tmp_path / "candidates")
    plan = make_plan(find_problems(PROBLEMS), find_samples(tmp_path / "candidates"), load_settings()[0], (), {})
    by_problem = {}
    for job in plan.jobs:
        by_problem.setdefault(job.problem, []).append(job)
    return [attend.ProblemRequest(jobs=tuple(jobs), known=(), asked=Comparisons(False)) for jobs in by_problem.values()]


@pytest.mark.asyncio
async def test_the_next_problems_session_opens_while_this_ones_candidates_are_judged(requests, monkeypatch):
    if len(requests) < 2:
        requests.append(requests[0])
    log, turns = [], GpuTurns()

    class Session:
        async def judge(self, candidate, **_):
            assert turns.measuring.locked()
            log.append("judge")
            return SimpleNamespace(made_in=lambda where: None)

    @asynccontextmanager
    async def session(target, settings=None, *, keep=True):
        log.append(f"open {target.source.path.name}")
        yield Session()
        assert not keep
        log.append("close")

    async def build(*_):
        return None

    monkeypatch.setattr(attend, "_result", lambda job, verdict, lane: result(job.key))
    monkeypatch.setattr(attend, "ResultPart", lambda **_: None)
    lane = SimpleNamespace(
        say=lambda _: None,
        pool=SimpleNamespace(allow=lambda **_: None, turns=turns),
        builders=SimpleNamespace(build=build, forget=lambda _: None),
        session=session,
        foresee=lambda target: log.append(f"foresee {target.source.path.name}"),
        where=None,
        gpu=None,
    )
    now, following = requests[:2]
    await attend.judge_problem(lane, now, lambda _: None, following)
    names = [make_target(request.jobs[0].problem.path).source.path.name for request in (now, following)]
    assert log == [f"open {names[0]}", f"foresee {names[1]}", *["judge"] * len(now.jobs), "close"]


@pytest.fixture
def settings():
    return load_settings()[0]


@pytest.fixture
def opened(monkeypatch):
    """The file, settings, pool and builders of each session that a lane opens."""
    log = []

    @asynccontextmanager
    async def opening(target, settings, pool, builders):
        log.append((target.source.path.name, settings, pool, builders))
        await asyncio.sleep(0)
        yield SimpleNamespace(whole=True, settings=settings)

    monkeypatch.setattr("kernel_lsp.pool.lane.open_session", opening)
    return log


@asynccontextmanager
async def a_lane(settings):
    async with Kept(lambda: 1.0, lambda session: session.whole) as kept:
        yield Lane(None, "pool", "builders", settings, None, print, kept, None)


@pytest.mark.asyncio
async def test_a_lane_opens_sessions_ahead_on_its_own_workers(requests, settings, opened):
    target = make_target(requests[0].jobs[0].problem.path)
    async with a_lane(settings) as lane:
        lane.foresee(target)
        await asyncio.sleep(0.02)
        async with lane.session(target, keep=False) as session:
            assert session.whole
    assert opened == [(target.source.path.name, settings, "pool", "builders")]


@pytest.mark.asyncio
async def test_a_session_that_was_opened_on_plain_inputs_judges_no_candidate(requests, settings, opened):
    target = make_target(requests[0].jobs[0].problem.path)
    async with a_lane(settings) as lane:
        lane.foresee(target, settings.on_plain_inputs)  # and another lane took that task
        await asyncio.sleep(0.02)
        async with lane.session(target) as session:
            assert session.settings.judge.families == []
    assert [settings.judge.families for _, settings, *_ in opened] == [["normal"], []]
