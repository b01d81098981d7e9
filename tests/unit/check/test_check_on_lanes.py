"""A check whose files are examined in lanes reports, keeps and remembers what a check here does."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from check_support import KERNEL, codes, settings_in, write_scale
from typer.testing import CliRunner

from kernel_lsp.check import FileReport, check
from kernel_lsp.check.dependencies import dependencies_of
from kernel_lsp.check.lane import CHECK_FILE, CheckCalls, CheckResult, request_of
from kernel_lsp.cli.check import app
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool.files import PackedFile, packed, unpacked
from kernel_lsp.pool.lane import opened_lane
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.source.files import read_source
from kernel_lsp.store.store import open_store
from kernel_lsp.workload.spec import find_workloads

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("without_a_gpu")

WRONG = KERNEL.replace("FACTOR *", "1 + FACTOR *")


def checked(files: list[Path], folder: Path, *, lanes: bool) -> list[FileReport]:
    """Reports on files, of workers or of a lane, with a store in `folder`."""
    settings = settings_in(folder)
    sources = [read_source(file) for file in files]

    async def run() -> list[FileReport]:
        with open_store(folder / "data") as store:
            if not lanes:
                return await check(sources, settings, store=store)
            async with CheckCalls(LocalPool((), settings), CHECK_FILE) as calls:
                return await check(sources, settings, store=store, lanes=calls)

    return asyncio.run(run())


def alike(report: FileReport) -> tuple[object, ...]:
    """A report without what differs from check to check: seconds, and elements of random inputs."""
    checks = [(check.name, check.status, check.case) for check in report.checks]
    emulation = report.emulation and [(run.case, run.findings) for run in report.emulation.runs]
    rest = replace(report, checks=(), emulation=None, seconds=0, diagnostics=())
    return rest, codes(report), checks, emulation


def test_lanes_find_what_workers_here_find_and_it_is_remembered(path: Path, tmp_path: Path) -> None:
    for name, text in (("wrong", WRONG), ("broken", KERNEL.replace("int i", "int j"))):
        other = write_scale(tmp_path / name)
        other.write_text(text)
    alone = tmp_path / "alone.cu"
    alone.write_text("__global__ void f(float* x) { x[threadIdx.x] = 1.f; }\n")
    files = [path, tmp_path / "wrong/scale.cu", tmp_path / "broken/scale.cu", alone]
    here, there = (checked(files, tmp_path / name, lanes=name == "lanes") for name in ("here", "lanes"))
    assert list(map(alike, there)) == list(map(alike, here))
    assert [one.ok for one in there] == [True, False, False, True]
    assert codes(there[1]) == [("KL020", 3)]
    assert all(one.seconds > 0 for one in there)
    again = checked(files, tmp_path / "lanes", lanes=False)
    assert all(one.remembered for one in again), "the check here knows what lanes found"


def test_a_machine_without_the_files_checks_them_with_their_headers(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    Path("scale.cu").write_text(WRONG)
    settings = settings_in(tmp_path)
    source = read_source(Path("scale.cu"))
    [workload] = find_workloads(source)
    request = request_of(dependencies_of(source, workload, settings), run=True).model_copy(update={"number": 3})
    files = msgspec.json.decode(msgspec.json.encode(packed(CHECK_FILE.files(request))), type=list[PackedFile])
    assert {Path(file.name).name for file in files} == {"scale.cu", "factor.cuh", "scale_workload.py"}
    for file in path.parent.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    placed = unpacked(files, tmp_path / "there")
    there = CHECK_FILE.request.model_validate_json(placed.request(request.model_dump_json()))
    told: list[str] = []

    async def run() -> None:
        async with opened_lane(None, settings, "lane 1", lambda _: None) as lane:
            await CHECK_FILE.attend(
                lane, there, lambda found: told.append(placed.answer(found.model_dump_json())), None
            )

    asyncio.run(run())
    result = CheckResult.model_validate_json(told[0])
    assert result.number == 3
    assert str(tmp_path / "there") not in told[0]
    assert result.examination is not None
    assert [(one.path, one.code, one.line) for one in result.examination.findings] == [("scale.cu", "KL020", 3)]
    assert result.emulation is not None
    assert {one.path for run in result.emulation.runs for one in run.counters} <= {str(path), "scale.cu"}


@pytest.mark.parametrize("more", [("--run", "x.py"), ("--strength", "examples")])
def test_what_no_lane_does_is_refused(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    error = CliRunner().invoke(app, ["--pool", "ray", *more]).exception
    assert isinstance(error, ConfigurationError)
