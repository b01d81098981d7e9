from argparse import Namespace
from pathlib import Path

import pytest

from tests.bench.naive_kernels import summarise, tasks, with_versions
from tests.wild.catalogue import projects

pytestmark = pytest.mark.programs


def judged(task: str, number: str, speedup: float | None, verdict: str = "FASTER") -> dict[str, object]:
    return {"task": task, "number": number, "verdict": verdict, "speedup": speedup, "label": number, "reason": ""}


def test_what_was_found_is_held_against_the_best_right_version_by_hand() -> None:
    rows = [
        {"task": "a", "number": "refined", "seconds_to_first": 9.0, "reason": "found"},
        judged("a", "again", 9.0),
        judged("a", "by hand 2", 10.0),
        judged("a", "by hand 3", 30.0, "WRONG"),
        {"task": "b", "number": "refined", "seconds_to_first": None, "reason": "nothing"},
        judged("b", "by hand 2", 4.0),
        judged("c", "again", 2.0, "WRONG"),
    ]
    figures = summarise(rows)
    assert [figures["by_kernel"][name]["share"] for name in "abc"] == [0.9, 0.25, 1.0]
    assert (figures["at_least_0.8_of_the_best"], figures["below_0.4_of_the_best"]) == (2, 1)
    assert figures["by_kernel"]["b"]["why"] == "nothing"


def test_kernels_with_versions_are_taken(tmp_path: Path) -> None:
    for project in projects():
        for file in project.files:
            place = tmp_path / project.name / file.place
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("")
    found = with_versions(tmp_path)
    assert "llm.c/softmax_forward" in found
    assert not any(paths[0].suffix == ".py" for _, paths in found.values())
    (task,) = tasks(found, Namespace(only=["llm.c/matmul_forward"], budget=120.0))
    assert task["numbers"] == ["refined", "again", "by hand 4"]
