"""Each module of the compiler stands in the room of its subject; imports between rooms run one way."""

from pathlib import Path

import pytest

from kernel_lsp import compiler
from tests.rooms import rooms_used, unnamed_modules

FOLDER = Path(compiler.__file__).parent
ROOMS = ("host", "cuda", "triton", "fakes", "builds", "headers", "ptx", "machine_code", "toolchain")
"""Folders, each of which may use those behind it."""
pytestmark = pytest.mark.fast


def test_every_module_has_a_room() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/*.py")} == set(ROOMS)
    assert {path.name for path in FOLDER.glob("*.py")} == {"__init__.py", "language.py"}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_use_those_behind_them(room: str) -> None:
    assert rooms_used(FOLDER, room) <= {*ROOMS[ROOMS.index(room) :], "language"}


def test_what_languages_answer_uses_no_room() -> None:
    assert "kernel_lsp.compiler" not in (FOLDER / "language.py").read_text()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room: str) -> None:
    assert unnamed_modules(FOLDER / room) == set(), "name them in the docstring of the room"
