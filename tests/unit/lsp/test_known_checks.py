"""What the command line has checked is known in the editor too, and what a check has counted is kept with it."""

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernel_lsp.check import Checker, check, examiner
from kernel_lsp.check.record import moved_runs
from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.emulation import EmulatedRun, Emulation
from kernel_lsp.lsp import checks
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.job_handlers.checks import check_text
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.runner.emulated import EmulatedFinding, LineCounters
from kernel_lsp.source.files import read_source
from kernel_lsp.store.store import open_store

KERNEL = "__global__ void scale(float* x) { x[threadIdx.x] *= 2.f; }\n"


def test_a_file_that_was_checked_is_not_examined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scale.cu"
    path.write_text(KERNEL)
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    settings = Settings(arch=["sm_90"], paths=paths)

    async def nothing(*_: object, **__: object) -> None:
        raise AssertionError("it was examined again")

    with open_store(paths.data) as store:
        asyncio.run(check([read_source(path)], settings, store=store))
        monkeypatch.setattr(examiner, "examine", nothing)
        params = {"path": str(path), "kernel": None, "label": None, "texts": {str(path): KERNEL}}
        job = JobContext(params, settings, lambda _: None, store, None, [])  # pyright: ignore[reportArgumentType]
        assert asyncio.run(check_text(job))["reason"] == "it has no workload: it was compiled, not run"
        known = asyncio.run(Checker(settings, store).recall(read_source(path)))
        assert known is not None
        assert known.remembered
        path.write_text(KERNEL.replace("2.f", "3.f"))
        assert asyncio.run(Checker(settings, store).recall(read_source(path))) is None, "nothing is examined"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("*x = T(1)", "1 of 1 kernels compiled, 1 of them for assumed types, none run"),
        ("x->of(1)", "nothing was compiled"),
    ],
)
def test_of_a_template_that_nothing_instantiates_it_is_said_how_far_it_got(
    body: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "scale.cu"
    path.write_text(f"template <class T>\n__global__ void scale(T* x) {{ {body}; }}\n")
    settings = Settings(arch=["sm_90"], paths=PathSettings(data=tmp_path / "data", cache=tmp_path / "cache"))
    with open_store(tmp_path / "data") as store:
        params = {"path": str(path), "kernel": None, "label": None, "texts": {str(path): path.read_text()}}
        job = JobContext(params, settings, lambda _: None, store, None, [])  # pyright: ignore[reportArgumentType]
        assert asyncio.run(check_text(job))["reason"] == f"it has no workload: {said}"


def test_counts_by_line_hold_for_a_copy_elsewhere(tmp_path: Path) -> None:
    run = EmulatedRun(
        "n=1",
        "normal",
        4,
        (EmulatedFinding("misaligned", "it is", str(tmp_path / "a.cu"), 3, "k"),),
        (LineCounters("k", str(tmp_path / "a.cu"), 3, 7), LineCounters("k", "", 0, 1)),
    )
    kept = moved_runs(Emulation((run,)), tmp_path, back=False)
    assert [one.path for one in kept.runs[0].counters] == ["a.cu", ""]
    assert kept.runs[0].findings[0].path == "a.cu"
    assert moved_runs(kept, tmp_path, back=True) == Emulation((run,))
    assert moved_runs(kept, Path("/other"), back=True).runs[0].counters[0].path == "/other/a.cu"


@pytest.mark.parametrize("there_are_facts", [True, False])
def test_an_earlier_check_is_looked_up_after_the_facts_or_when_they_take_long(
    there_are_facts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_FACTS_FIRST_SECONDS", 0.01)
    order: list[str] = []

    async def has_facts(_: Document) -> None:
        order.append("facts" if there_are_facts else "waited")
        await asyncio.sleep(0 if there_are_facts else 60)

    async def recall(*_: object) -> None:
        order.append("recalled")

    document = Document("file:///k.cu", Path("/k.cu"), "__global__ void k() {}\n", 1, "utf-16")
    analysis = Mock(has_facts=has_facts, recall=recall)
    known = checks.KnownChecks(Mock(), Documents(), Mock(), Mock(), Mock(), analysis)
    asyncio.run(known.opened(document))
    assert order == ["facts" if there_are_facts else "waited", "recalled"]
