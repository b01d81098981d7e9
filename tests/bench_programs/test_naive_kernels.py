import asyncio
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.outcome import Refinement
from tests.bench import naive_kernels
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


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (["refined", "again", "by hand 2"], ["refined", "again", "by hand 2"]),
        (["by hand 2"], ["by hand 2"]),
        (["again"], ["refined", "again"]),
    ],
)
def test_a_run_that_was_cut_off_goes_on_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[str], given: list[str]
) -> None:
    async def find_nothing(*_: object, **__: object) -> Refinement:
        return Refinement(reason="nothing")

    async def judge(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(verdict=Outcome.FASTER, speedup=2.0, interval=(1.9, 2.1), reason="")

    @asynccontextmanager
    async def session(_: object) -> AsyncGenerator[SimpleNamespace]:
        yield SimpleNamespace(judge=judge)

    path = tmp_path / "a.cu"
    path.write_text("")
    named: Any = SimpleNamespace(
        name="a", workload=None, versions=("1", "2"), places=["a"], place=lambda _: "a", launch_text=lambda _: None
    )
    target = SimpleNamespace(version=lambda *_: SimpleNamespace(label="by hand 2"))
    monkeypatch.setattr(naive_kernels, "_session", session)
    monkeypatch.setattr(naive_kernels, "refine", find_nothing)
    monkeypatch.setattr(naive_kernels, "make_target", lambda *_, **__: target)

    async def rows() -> list[dict[str, Any]]:
        options = Namespace(budget=1.0, keep=None)
        return [row async for row in naive_kernels.rows_of(named, [path], options, asked)]

    made = asyncio.run(rows())
    assert [row["number"] for row in made] == given
    assert summarise([row | {"task": "a"} for row in made])["by_kernel"]["a"]["found"] == 1.0
