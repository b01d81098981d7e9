"""`kernel-lsp model` where nothing can be served."""

import json
from importlib.metadata import entry_points

import pytest
import typer
from typer.testing import CliRunner

from kernel_lsp.cli import model as model_commands
from kernel_lsp.cli.model import SERVED, app
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.model.errors import NoVllmError, NoWeightsError, RefusedConnectionError

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _a_bare_machine(tmp_path, monkeypatch):
    for variable in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable.lower()))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)


def said(*arguments):
    done = RUNNER.invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_profiles_are_listed():
    assert "kevin-32b" in said("list")
    assert {"kevin-32b", "general"} <= {profile["id"] for profile in json.loads(said("list", "--json"))}


def test_a_login_without_a_runtime_folder_is_no_cause_for_a_warning(monkeypatch, recwarn):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    said("status")
    assert not recwarn.list


def test_the_commands_of_the_server_are_those_that_its_absence_names():
    served = typer.main.get_group(entry_points(group="kernel_lsp.commands")["model"].load())
    assert set(served.commands) == set(SERVED)


def test_adapters_that_are_missing_are_named():
    assert "no adapter was trained here" in said("adapters")
    assert said("adapters", "--json").strip() == "[]"
    for call in (["adapters", "remove", "mine"], ["eval", "mine", "a.cu"]):
        with pytest.raises(ConfigurationError, match="no adapter `mine`"):
            said(*call)


def test_without_the_server_each_of_its_commands_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(model_commands, "entry_points", lambda **_: ())
    assert "needs kernel-model-server" in said("--help")
    for command in SERVED:
        with pytest.raises(ConfigurationError, match="not installed") as caught:
            said(command, "--gpus", "2", "kevin-32b")
        assert "pip install -e 'server" in str(caught.value)
    assert "no model server is running" in said("status")


def test_nothing_is_running():
    assert "no model server is running" in said("status")
    assert json.loads(said("status", "--json")) == []
    assert "no model server is running" in said("stop")
    with pytest.raises(ConfigurationError, match="`tiny` is running"):
        said("stop", "tiny")


def test_what_is_missing_is_said():
    with pytest.raises(NoWeightsError, match="hf download cognition-ai/Kevin-32B"):
        said("serve", "kevin-32b")
    with pytest.raises(NoWeightsError, match="no such folder"):
        said("serve", "./nothing")
    with pytest.raises(CannotJudgeError, match="no GPU"):
        said("fit", "kevin-32b")
    with pytest.raises(ConfigurationError, match="no profile `kevin`"):
        said("serve", "kevin")


def test_a_model_without_vllm(tmp_path, monkeypatch):
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    monkeypatch.setenv("KERNEL_LSP_MODEL_PYTHON", str(tmp_path / "python"))
    with pytest.raises(NoVllmError, match="cannot be asked for vLLM"):
        said("serve", "./m")


@pytest.mark.parametrize("option", [("--adapter", "x"), ("--dtype", "int3")])
def test_options_that_are_none(tmp_path, option):
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigurationError):
        said("serve", "./m", *option)


def test_only_a_server_that_answers_here_is_adopted(tmp_path):
    with pytest.raises(RefusedConnectionError, match="No model server listens"):
        said("serve", "m", "--adopt", f"unix:{tmp_path / 'nobody'}")
    with pytest.raises(ConfigurationError, match="on another machine"):
        said("serve", "m", "--adopt", "http://models.example.org/v1")


def test_consent_is_given_and_withdrawn():
    assert said("allow") == ""
    assert said("allow", "gpu-box.example.org") == "gpu-box.example.org\n"
    assert said("allow", "gpu-box.example.org", "--withdraw") == ""
