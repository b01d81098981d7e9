"""A run of reinforcement learning is refused before it begins where it would teach cheating or cannot be done."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import CannotJudgeError, ConfigurationError, WorkloadError
from kernel_lsp.learn import strength
from kernel_lsp.learn.environment import target_of
from kernel_lsp.learn.grpo_plan import plan_grpo, require_strong
from kernel_lsp.learn.tasks import PolicyTask
from kernel_lsp.mutation_testing import Fate, FileStrength, Mutant
from kernel_lsp.store.store import open_store
from tests.served_model.scale import write_scale
from tests.unit.learn.made_adapters import made_adapter
from tests.unit.learn.test_planning_a_training import model_in


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def plan(folder: Path, *kernels: str, name: str = "mine", start: str | None = None, **settings):
    wanted = {"paths.data": folder / "data", "refine.untimed": True, "learn.held_out": 0.0, "model.name": "tiny"}
    wanted |= {"model.endpoint": "unix:/nowhere", "model.profile": "general"} | settings
    model = model_in(folder / "model")
    named = kernels or (str(write_scale(folder)),)
    return plan_grpo(named, name, load_settings(overrides=wanted)[0], 2, start, model)


def test_what_is_planned_is_what_the_settings_say(tmp_path):
    planned = plan(tmp_path, **{"learn.turns": 3, "learn.gamma": 0.5})
    assert (planned.job.turns, planned.job.gamma, planned.job.trajectories) == (3, 0.5, 16)
    assert planned.job.start is None
    assert planned.place == "the processor"


def test_a_kernel_that_is_held_out_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="held out of training"):
        plan(tmp_path, **{"learn.held_out": 0.999999})


def test_a_project_that_opted_out_is_not_learned_from(tmp_path):
    with pytest.raises(ConfigurationError, match=r"learn.collect"):
        plan(tmp_path, **{"learn.collect": False})


def test_one_kernel_under_two_names_is_refused(tmp_path):
    kernel = str(write_scale(tmp_path))
    with pytest.raises(ConfigurationError, match="the same as"):
        plan(tmp_path, kernel, kernel)


def test_a_model_elsewhere_is_not_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_lsp.model.endpoint.allowed_hosts", lambda: ("gpu.example.org",))
    with pytest.raises(ConfigurationError, match="server of this machine only"):
        plan(tmp_path, **{"model.endpoint": "http://gpu.example.org"})


def test_an_adapter_of_another_model_is_not_taken_up(tmp_path):
    made_adapter(tmp_path / "data", "first", base="another")
    with pytest.raises(ConfigurationError, match="adapter of another model"):
        plan(tmp_path, start="first")


def test_nothing_is_paid_where_nothing_can_be_timed_unless_told_so(tmp_path):
    with pytest.raises(CannotJudgeError, match="no GPU"):
        plan(tmp_path, **{"refine.untimed": False})


@pytest.mark.parametrize("name", ["", "../other", "a b"])
def test_a_name_that_is_no_folder_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="cannot be the name of an adapter"):
        plan(tmp_path, name=name)


@pytest.mark.asyncio
async def test_a_workload_that_misses_bugs_is_refused(tmp_path, monkeypatch):
    settings = load_settings(overrides={"learn.strength": 0.9})[0]
    target = target_of(str(write_scale(tmp_path)), settings)
    bug = Mutant("bound", "scale", 3, "a bound", Fate.CAUGHT)
    report = FileStrength(target.source.path, "emulator", mutants=(bug,) * 9 + (replace(bug, fate=Fate.SURVIVED),) * 2)

    async def measured(*_, **__) -> list[FileStrength]:
        return [report]

    monkeypatch.setattr(strength, "measure_strength", measured)
    planned = replace(plan(tmp_path), tasks=(PolicyTask("k", target, frozenset({"k"}), "named", named=True),))
    with open_store(tmp_path / "data") as store:
        with pytest.raises(WorkloadError, match="catches 82% of planted bugs, and 90% are needed"):
            await require_strong(planned, settings, store)
        report = replace(report, mutants=report.mutants[:10])
        await require_strong(planned, settings, store)
