"""What compiles starts with the session only where its texts are going to be compiled."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.lsp.start import trusted_start
from kernel_lsp.lsp.trust import Trust


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user trusts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    work.mkdir()
    Trust().add(work)
    return work


def _start(**params: Any) -> tuple[Path | None, dict[str, Any]] | None:
    return trusted_start(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode())


@pytest.mark.parametrize(
    ("said", "starts"), [({"trusted": True}, True), ({"trusted": False}, False), ({"trusted": 1}, False), ({}, False)]
)
def test_the_clients_word_decides_where_it_gives_one(tmp_path: Path, folder: Path, said: Any, starts: bool) -> None:
    assert folder != tmp_path
    assert (_start(rootUri=tmp_path.as_uri(), initializationOptions=said) is not None) == starts


def test_a_folder_that_the_user_trusts_is_enough_but_for_a_client_that_does_not(folder: Path) -> None:
    assert _start(rootUri=folder.as_uri()) == (folder, {})
    assert _start(rootUri=folder.as_uri(), initializationOptions={"trusted": False}) is None
    assert _start(rootUri=None) is None, "a client without a folder"


def test_the_first_folder_and_the_settings_are_read(folder: Path, tmp_path: Path) -> None:
    folders = [{"uri": one.as_uri(), "name": ""} for one in (folder, tmp_path)]
    options = {"trusted": True, "runner": {"warm_minutes": 0}, "gpu": None}
    found = _start(rootUri=tmp_path.as_uri(), workspaceFolders=folders, initializationOptions=options)
    assert found == (folder, {"runner.warm_minutes": 0})
    assert _start(initializationOptions={"trusted": True}) == (None, {})


@pytest.mark.parametrize(
    "params", [{"workspaceFolders": 7}, {"workspaceFolders": [{}]}, {"workspaceFolders": [7]}, {"rootUri": 7}]
)
def test_malformed_parameters_start_nothing(params: dict[str, Any]) -> None:
    assert _start(initializationOptions={"trusted": True}, **params) is None
