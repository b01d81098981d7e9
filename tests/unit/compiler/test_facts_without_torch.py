"""What a kernel costs is known before torch is imported, which takes seconds and only workloads need."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_lsp.config.settings import PathSettings, RunnerSettings, Settings
from kernel_lsp.judge import facts
from kernel_lsp.judge.facts import compiles_alone, facts_of_all, open_builder
from kernel_lsp.lsp.services import analyse
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.source.candidate import SourceFile
from tests.scale_kernel import KERNEL, WORKLOAD

_PROGRAM = """
import importlib, sys
from kernel_lsp.runner import pool

recipe = pool._RECIPES[pool.Flavour.COMPILE]
for module in (*recipe.imports, *recipe.own):
    importlib.import_module(module)
print(*sorted({"torch", "numpy", "triton"} & sys.modules.keys()))
"""


def test_the_zygote_of_compile_workers_imports_no_torch() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    return Settings(arch=["sm_90"], paths=paths, runner=RunnerSettings(warm_minutes=0))


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    made: list[Pool] = []

    class Noted(Pool):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)  # pyright: ignore[reportArgumentType]
            made.append(self)

    monkeypatch.setattr(facts, "Pool", Noted)
    return made


def test_a_cuda_file_without_a_workload_starts_no_other_worker(tmp_path, settings, pools) -> None:
    async def compile_it() -> None:
        async with open_builder() as build:
            source = SourceFile(tmp_path / "scale.cu", KERNEL)
            [arch] = facts_of_all([await build(source, settings)])
            assert [kernel.name for kernel in arch.kernels] == ["scale"]
            assert pools[0]._zygotes.keys() == {Flavour.COMPILE}
            broken = SourceFile(source.path, KERNEL.replace("0.5f", "half"))
            [arch] = facts_of_all([await build(broken, settings)])
            assert [found.line for found in arch.diagnostics] == [3]

    asyncio.run(compile_it())


def test_with_a_workload_the_facts_come_twice_and_the_first_do_not_wait_for_it(tmp_path, settings) -> None:
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    asked = {
        "path": str(tmp_path / "scale.cu"),
        "text": KERNEL,
        "part": "facts",
        "settings": settings.model_dump(mode="json"),
    }

    async def analyse_it() -> None:
        emitted: list[dict] = []
        async with analyse.opened() as handler:
            [last] = await handler(asked, emitted.append)
            [[first]] = [event["facts"] for event in emitted]
            assert [kernel["occupancy"] for kernel in first["kernels"]] == [None], "no launch says the block yet"
            [kernel] = last["kernels"]
            assert kernel["occupancy"] == 1.0
            assert kernel["registers"] == first["kernels"][0]["registers"]
            await handler(asked | {"text": KERNEL + "\n"}, emitted.append)
            assert len(emitted) == 1, "the workers are warm: nothing comes first any more"

    asyncio.run(analyse_it())


def test_the_first_compilation_is_prepared_by_the_settings_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pools: list[Pool]
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp.runner]\nwarm_minutes = 0\ncompile_workers = 3\n")
    asked: list[Settings] = []
    prepare = facts.Compile.prepare

    async def noted(compiles: facts.Compile, settings: Settings) -> None:
        asked.append(settings)
        await prepare(compiles, settings)

    monkeypatch.setattr(facts.Compile, "prepare", noted)

    async def prepare_it() -> None:
        async with analyse.opened() as handler:
            overrides = {"arch": ["sm_80"], "gpu": "none"}
            asked_for = {"part": "prepare", "folder": str(tmp_path), "settings": overrides}
            assert await handler(asked_for, print) is None
            assert pools[0]._zygotes.keys() == {Flavour.COMPILE}

    asyncio.run(prepare_it())
    [settings] = asked
    assert (settings.runner.warm_minutes, settings.arch, settings.gpu) == (0, ["sm_80"], "none")


def test_what_compiles_imports_no_checks() -> None:
    code = "import sys, kernel_lsp.lsp.services.analyse; print({'kernel_lsp.check', 'sqlite3'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.stdout.strip() == "set()", ran.stderr


def test_only_what_runs_none_of_the_users_code_compiles_alone() -> None:
    assert compiles_alone(SourceFile(Path("k.cu"), KERNEL))
    triton = "import triton\n@triton.jit\ndef k(x): pass\n"
    assert not compiles_alone(SourceFile(Path("k.py"), triton))
