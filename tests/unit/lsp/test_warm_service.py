"""The next job's process: ready before it is asked for, given away once, ended when nobody comes."""

import asyncio
import os
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from kernel_lsp.config.settings import EditorSettings, PathSettings, RunnerSettings, Settings
from kernel_lsp.errors import RunnerError
from kernel_lsp.lsp import warm_service as module
from kernel_lsp.lsp.catalog import CHECK, REFINE
from kernel_lsp.lsp.features.code_actions import CodeActions
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.process import Service
from kernel_lsp.lsp.warm_service import WarmService
from tests.lsp.job_session import below, gone
from tests.softmax_kernel import write_softmax


async def until(happened, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    return found


@pytest.fixture
def tasks():
    return []


def lasting(minutes):
    """Settings that keep a process for so long, with workers that nobody else has."""
    lasting = EditorSettings().model_copy(update={"ready_minutes": minutes})  # a fraction, which people cannot set
    return Settings(editor=lasting, runner=RunnerSettings(warm_minutes=0))


@pytest.fixture
def warm(tasks):
    """Whose process is its service's only one."""
    return WarmService(lambda work: tasks.append(asyncio.ensure_future(work)))


@pytest.mark.thorough
def test_its_workers_import_before_a_job_is_known_and_serve_it(warm, tasks, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    kernel = write_softmax(tmp_path)
    settings = Settings(paths=PathSettings(data=tmp_path / "data", cache=tmp_path / "cache"))
    refine = settings.refine.model_copy(update={"untimed": True, "budget": 5, "strategy": "tuner-only"})
    asked = {"work": "refine", "path": str(kernel), "kernel": None, "label": None, "texts": {}}
    asked["settings"] = settings.model_copy(update={"refine": refine}).model_dump(mode="json")

    async def run():
        warm.keep(lasting(1))
        await tasks[0]
        ready = await until(lambda: warm._service and warm._service.pid)
        zygotes = await until(lambda: below(ready))
        service = warm.take()
        result = await service.ask("job", asked)
        assert service.pid == ready
        after = below(ready)
        service.kill()
        await gone({ready, *zygotes})
        return result, after

    result, after = asyncio.run(run())
    assert after == set(), "workers end with the job"
    assert "nothing" in result["reason"], "perhaps not even tried in so short a time"


def test_there_is_one_and_it_is_given_away_once(warm, tasks):
    async def run():
        warm.keep(lasting(1))
        warm.keep(lasting(1))
        first = warm.take()
        second = warm.take()
        assert first is not second
        assert len(tasks) == 1
        await asyncio.gather(*tasks)
        pid = first.pid
        warm.close()
        assert first.pid == pid, "whoever took it ends it"
        first.kill()
        await gone({pid})

    asyncio.run(run())


def test_it_ends_when_nobody_comes(warm, tasks):
    async def run():
        warm.keep(lasting(1))
        await tasks[0]
        pid = warm._service.pid
        warm.keep(lasting(0.05 / 60))
        await gone({pid}, 10)
        assert warm._service is None

    asyncio.run(run())


def test_none_is_kept_where_none_is_wanted(warm, tasks):
    async def run():
        warm.keep(lasting(0))
        warm.close()

    asyncio.run(run())
    assert tasks == []


def test_one_that_cannot_be_prepared_is_left_to_the_job_to_explain(warm, tasks, monkeypatch):
    class Broken(Service):
        async def ask(self, *_):
            raise RunnerError("no process")

    monkeypatch.setattr(module, "Service", Broken)

    async def run():
        warm.keep(lasting(1))
        await tasks[0]
        assert warm._service is None
        warm.keep(lasting(1))
        taken = warm.take()
        warm.keep(lasting(1))
        await asyncio.gather(*tasks)
        assert taken is not warm._service

    asyncio.run(run())


@pytest.mark.parametrize(
    ("gpu", "busy", "expected"), [(True, False, [7]), (True, True, []), (False, False, []), (None, False, [])]
)
def test_it_is_kept_on_a_machine_with_a_gpu_that_times_nothing(gpu, busy, expected):
    settings = Settings(editor=Settings().editor.model_copy(update={"ready_minutes": 7}))
    jobs = Jobs(Mock(), Mock(), Mock(), Mock(at=lambda _: settings), *[Mock()] * 4)
    jobs.gpu, jobs._warm_service = gpu, Mock()
    jobs._turn = SimpleNamespace(locked=lambda: busy)
    jobs.expect(Mock(path=os.devnull))
    assert [call.args[0].editor.ready_minutes for call in jobs._warm_service.keep.call_args_list] == expected


@pytest.mark.parametrize(("kind", "expected"), [(REFINE, 1), (CHECK, 0)])
def test_it_is_kept_for_a_kernel_whose_offered_job_will_time(kind, expected):
    jobs, readiness = Mock(running=lambda *_: []), Mock(why_not=lambda *_: None)
    offers = CodeActions(*[Mock()] * 4, jobs, Mock(), readiness, Mock())
    [action] = offers._job(kind, Mock(uri="file:///k.cu"), Mock(), "k")
    assert action.command.command == f"kernel-lsp.{kind.name}"
    assert jobs.expect.call_count == expected
