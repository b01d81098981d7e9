"""Rounds of fine-tuning are refused before they begin where they cannot be done, and see their own turns alone."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.model import app
from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.learn.collect import NothingToLearnError, collect
from kernel_lsp.learn.prune import Rules
from kernel_lsp.learn.rounds import plan_rounds
from kernel_lsp.model.adapters import content_of, publish
from kernel_lsp.store.store import open_store
from tests.served_model.scale import write_scale
from tests.unit.learn.made_up import told
from tests.unit.learn.test_planning_a_training import model_in


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def plan(folder: Path, name: str = "mine", rounds: int = 2, **settings):
    wanted = {"paths.data": folder / "data", "refine.untimed": True, "learn.held_out": 0.0, "model.name": "tiny"}
    wanted |= {"model.endpoint": "unix:/nowhere", "model.profile": "general"} | settings
    model = folder / "model"
    model = model if model.is_dir() else model_in(model)
    return plan_rounds([str(write_scale(folder))], name, load_settings(overrides=wanted)[0], rounds, model)


def test_what_is_planned_is_what_the_settings_say(tmp_path):
    planned = plan(tmp_path, **{"learn.turns": 3, "learn.temperature": 0.5})
    assert (planned.job.turns, planned.job.temperature, planned.job.rounds) == (3, 0.5, 2)
    assert planned.job.keep == "right", "nothing can be FASTER where nothing is timed"
    assert planned.needed > 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"learn.held_out": 0.999999}, "held out of training"),
        ({"learn.collect": False}, "learn.collect"),
        ({"learn.length": 20000}, "the model reads 16,384 at most"),
    ],
)
def test_what_cannot_be_trained_is_said(tmp_path, changed, said):
    with pytest.raises(ConfigurationError, match=said):
        plan(tmp_path, **changed)


def test_a_name_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be the name of an adapter"):
        plan(tmp_path, name="../other")


def test_without_a_gpu_it_says_so_unless_told_that_nothing_is_timed(tmp_path):
    with pytest.raises(CannotJudgeError, match="no GPU"):
        plan(tmp_path, **{"refine.untimed": False})


def test_a_run_that_is_taken_up_may_have_more_rounds_and_nothing_else(tmp_path):
    planned = plan(tmp_path)
    planned.folder.mkdir(parents=True)
    (planned.folder / "job.json").write_text(planned.job.model_dump_json())
    assert plan(tmp_path, rounds=3).is_begun
    with pytest.raises(ConfigurationError, match="`mine` was trained otherwise: turns was 4"):
        plan(tmp_path, **{"learn.turns": 2})


@pytest.mark.parametrize("words", [[], ["dataset", "--on", "a.cu"], ["dataset", "--rounds", "2"]])
def test_either_a_dataset_or_kernels_are_trained_on(words):
    done = CliRunner().invoke(app, ["train", "sft", *words])
    assert isinstance(done.exception, ConfigurationError)
    assert "Either a dataset or kernels" in done.exception.message


def test_a_round_collects_its_own_turns_alone(tmp_path):
    with open_store(tmp_path / "data") as store:
        for session, number in (("ours", 1), ("ours", 2), ("theirs", 1)):
            told(store, tmp_path, session, number, kernel=session, low=1.0 + number)
        found = collect(store, tmp_path / "dataset", Rules(), 0.0, {"ours": 1})
        assert (found.turns, found.train) == (1, 1)
        assert '"turn": 1' in (tmp_path / "dataset/train.jsonl").read_text(), "the later turn is of an earlier run"
        with pytest.raises(NothingToLearnError):
            collect(store, tmp_path / "dataset", Rules(), 0.0, {})


def test_what_is_published_is_whole_and_the_latest(tmp_path):
    for number in ("1", "2"):
        weights = tmp_path / number
        weights.mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (weights / name).write_text(number)
        (tmp_path / "adapter.draft").mkdir()
        assert publish(weights, tmp_path) == content_of(tmp_path / "adapter") == content_of(weights)
    assert (tmp_path / "adapter/adapter_config.json").read_text() == "2"
    assert not (tmp_path / "adapter.draft").exists()
