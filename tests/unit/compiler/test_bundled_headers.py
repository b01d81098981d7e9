"""NVRTC's headers are unpacked beside the first compilation, and used only when all of them are there."""

import asyncio
import contextlib
import filecmp
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.cuda import nvrtc
from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc, include_folders
from kernel_lsp.compiler.headers import bundled
from kernel_lsp.compiler.headers.bundled import BundledHeaders
from kernel_lsp.compiler.headers.prelude import PRELUDE
from kernel_lsp.config.settings import PathSettings, RunnerSettings, Settings
from kernel_lsp.judge.facts import facts_of_all, open_builder
from kernel_lsp.source.candidate import SourceFile

PLAIN = 'extern "C" __global__ void plain(float* a) { a[0] = FLT_MAX; }'
HALF = '#include <cuda_fp16.h>\nextern "C" __global__ void halves(__half* a) { a[0] = __float2half(1.0f); }'
ASKING = """#if __has_include(<cuda_fp16.h>)
extern "C" __global__ void with_halves(float* a) { a[0] = 1.0f; }
#else
extern "C" __global__ void without_halves(float* a) { a[0] = 1.0f; }
#endif
"""
TYPES = tuple(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64, "ptr"))
MACROS = re.findall(r"#ifndef (\w+)\n", PRELUDE)
INSTALL = "nvrtcInstallBundledHeaders"
FIRST = (13, 3)  # NVRTC with headers of its own

pytestmark = pytest.mark.skipif(
    not hasattr(bundled.nvrtc, INSTALL) or bundled.nvrtc.nvrtcVersion()[1:] < FIRST,
    reason="this NVRTC has no headers",
)


@dataclass(frozen=True)
class HeldUp:
    """Headers whose unpacking waits to be released, by a process that was started with an end of `pipe` open."""

    folder: Path
    gate: Path
    pipe: int

    @property
    def are_under_way(self) -> bool:
        return nvrtc.own_headers().are_under_way()

    def release(self) -> None:
        os.close(os.open(self.gate, os.O_WRONLY))


@pytest.fixture
def held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldUp]:
    gate, install = tmp_path / "gate", getattr(bundled.nvrtc, INSTALL)
    os.mkfifo(gate)

    def wait_and_install(*given: Any) -> Any:
        os.close(os.open(gate, os.O_RDONLY))
        return install(*given)

    monkeypatch.setattr(bundled.nvrtc, INSTALL, wait_and_install)
    monkeypatch.setattr(nvrtc, "unpacked_headers", lambda: tmp_path / "headers")
    _forget()
    ours, theirs = os.pipe()
    nvrtc.own_headers().unpack_beside()
    os.close(theirs)
    held = HeldUp(tmp_path / "headers" / nvrtc.nvrtc_version(), gate, ours)
    yield held
    os.close(ours)
    if held.are_under_way:
        held.release()
        include_folders()
    _forget()


def _forget() -> None:
    nvrtc.own_headers.cache_clear()
    nvrtc.include_folders.cache_clear()


def _compiled(text: str, *options: str) -> Build:
    return compile_nvrtc(text, "k.cu", "sm_90", options=("-std=c++17", *options))


def _entries(build: Build) -> set[str]:
    assert build.binary is not None, build.diagnostics
    return set(build.binary.entries)


def test_code_that_includes_nothing_does_not_wait_for_the_headers(held_up: HeldUp) -> None:
    early = _compiled(PLAIN)
    assert held_up.are_under_way
    held_up.release()
    assert held_up.folder in include_folders()
    late = _compiled(PLAIN)
    assert early.binary is not None
    assert late.binary is not None
    assert early.binary == late.binary
    assert early.diagnostics == late.diagnostics


@pytest.mark.parametrize(
    ("text", "entry", "options"),
    [
        (HALF, "halves", ()),
        (PLAIN, "plain", ("--pre-include=cuda_fp16.h",)),
        (ASKING, "with_halves", ()),
        (f"namespace cuda {{ namespace std {{}} }}\n{PLAIN}", "plain", ()),
    ],
)
def test_code_in_which_headers_matter_waits_for_them(
    held_up: HeldUp, text: str, entry: str, options: tuple[str, ...]
) -> None:
    releasing = threading.Timer(0.5, held_up.release)
    releasing.start()
    assert _entries(_compiled(text, *options)) == {entry}
    assert not held_up.are_under_way
    assert held_up.folder in include_folders()
    releasing.join()


def test_an_error_is_that_of_a_compilation_with_the_headers(held_up: HeldUp) -> None:
    wrong = PLAIN.replace("FLT_MAX", "uint_fast8_t(1) + missing")  # a type that CUDA's headers alone declare
    releasing = threading.Timer(0.5, held_up.release)
    releasing.start()
    [found] = _compiled(wrong).diagnostics
    assert "missing" in found.message
    releasing.join()


def test_the_prelude_declares_the_same_with_and_without_the_headers(held_up: HeldUp) -> None:
    made = "".join(
        f"__global__ void takes_{name}({name}* a) {{ *a = *a / {name}(3) - sizeof(std::{name}); }}\n" for name in TYPES
    )
    values = "".join(f"__global__ void of_{name}(double* a) {{ *a = sizeof({name}) + {name}; }}\n" for name in MACROS)
    early = _compiled(made + values)
    assert held_up.are_under_way
    held_up.release()
    include_folders()
    late = _compiled(made + values)
    assert _entries(early) == _entries(late)
    assert early.binary is not None
    assert late.binary is not None
    assert early.binary.ptx == late.binary.ptx


def test_nobody_who_waits_for_the_end_of_its_parent_waits_for_the_process_that_unpacks(held_up: HeldUp) -> None:
    assert os.read(held_up.pipe, 1) == b""
    assert held_up.are_under_way


def test_headers_half_of_which_were_unpacked_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, install = tmp_path / "headers" / "13", getattr(bundled.nvrtc, INSTALL)

    def die(*_: Any) -> None:
        folder.mkdir()
        (folder / "cuda_fp16.h").write_text("#error half")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(bundled.nvrtc, INSTALL, die)
    died = BundledHeaders(folder)
    died.unpack_beside()
    assert died.folder() is None
    monkeypatch.setattr(bundled.nvrtc, INSTALL, install)
    again = BundledHeaders(folder)
    again.unpack_beside()
    assert again.folder() == folder
    assert "#error half" not in (folder / "cuda_fp16.h").read_text()


def test_two_sessions_that_begin_at_once_both_get_all_headers(tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    BundledHeaders(alone).folder()
    sessions = [BundledHeaders(shared) for _ in range(2)]
    for session in sessions:
        session.unpack_beside()
    assert [session.folder() for session in sessions] == [shared, shared]
    names = [str(path.relative_to(alone)) for path in alone.rglob("*") if path.is_file() and path.name[0] != "."]
    assert len(names) > 1000
    assert filecmp.cmpfiles(alone, shared, names, shallow=False) == (names, [], [])


def test_headers_that_are_there_are_not_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BundledHeaders(tmp_path / "13").folder()
    monkeypatch.delattr(os, "fork")
    there = BundledHeaders(tmp_path / "13")
    there.unpack_beside()
    assert not there.are_under_way()
    assert there.folder() == tmp_path / "13"


def test_a_worker_of_a_home_without_headers_compiles_what_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    settings = Settings(arch=["sm_90"], paths=paths, runner=RunnerSettings(warm_minutes=0))

    async def facts_of(text: str) -> list[str]:
        async with open_builder() as build:
            [arch] = facts_of_all([await build(SourceFile(tmp_path / "k.cu", text), settings)])
        return [kernel.name for kernel in arch.kernels]

    with contextlib.chdir(tmp_path):
        assert asyncio.run(facts_of(HALF)) == ["halves"]
    assert list((tmp_path / "home/kernel-lsp/nvrtc-headers").glob("*/cuda_fp16.h"))
