"""A rewrite is tried only if a language lists it, and found only in its family's room: whoever forgets that is told."""

from pathlib import Path

import pytest

from kernel_lsp.languages.cuda import refine as cuda
from kernel_lsp.languages.triton import refine as triton
from kernel_lsp.refine import rewrites
from kernel_lsp.refine.rewrites import FIXES
from tests.rooms import rooms_used, unnamed_modules

FOLDER = Path(rewrites.__file__).parent
WRITTEN = {path.stem for path in FOLDER.glob("*/*.py") if "\ndef rewrite(" in path.read_text()}
"""Names of the modules that hold a rewrite."""

ROOMS = ("reductions", "accesses", "products", "copies", "writing", "reading")
"""Folders of CUDA, each of which may use those behind it."""


def test_every_rewrite_is_listed_by_a_language() -> None:
    listed = {one.__module__.rpartition(".")[2] for one in (*cuda.REWRITES, *triton.REWRITES)}
    assert WRITTEN - listed == set(), "add them to `REWRITES` in languages/cuda/refine.py or languages/triton/refine.py"


@pytest.mark.parametrize("rule", FIXES)
def test_what_fixes_a_finding_is_a_rewrite(rule: str) -> None:
    assert set(FIXES[rule]) - WRITTEN == set(), "names in `FIXES` are those of modules in refine/rewrites"


def test_every_module_has_a_room() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/*.py")} == {*ROOMS, "triton"}
    assert [path.name for path in FOLDER.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("room", [*ROOMS, "triton"])
def test_rooms_of_rewrites_use_those_behind_them(room: str) -> None:
    assert rooms_used(FOLDER, room) <= {room, *(ROOMS[ROOMS.index(room) :] if room in ROOMS else ())}


@pytest.mark.parametrize("room", [*ROOMS, "triton"])
def test_a_room_says_what_is_in_it(room: str) -> None:
    assert unnamed_modules(FOLDER / room) == set(), "name them in the docstring of the room"
