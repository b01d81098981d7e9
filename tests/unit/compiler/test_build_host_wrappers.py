"""Extensions on the fast path: built, run on the emulator, and held against torch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from host_wrappers import WRAPPERS, Wrapper
from torch.utils import cpp_extension

from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host.build import fast_build
from kernel_lsp.compiler.host.compiler import compile_host, host_compiler, prepare_header
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.device.device import device_named
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator
from kernel_lsp.runner.workers.inline import recording, serving
from kernel_lsp.source.candidate import SourceFile

pytestmark = pytest.mark.skipif(host_compiler() is None, reason="no g++")


def asked_for(**call: Any) -> ExtensionRequest:
    with recording() as asked:
        cpp_extension.load_inline("kernels", **call)
    return asked[0]


def build(request: ExtensionRequest, kept: Path, text: str = "") -> ExtensionBuild | str:
    caches = BuildCache(kept, 1 << 28), FileCache(kept, 1 << 28, ".host")
    return fast_build(request, "sm_80", SourceFile(Path("answer.py"), text), kept, cache=caches[0], libraries=caches[1])


@pytest.mark.sampled(48)
@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda wrapper: wrapper.name)
def test_an_extension_gives_what_torch_gives(
    wrapper: Wrapper, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call: dict[str, Any] = {"cpp_sources": wrapper.cpp, "functions": wrapper.functions}
    call |= {"cuda_sources": wrapper.cuda, "extra_cuda_cflags": list(wrapper.flags)} if wrapper.cuda else {}
    built = build(asked_for(**call), kept)
    assert isinstance(built, ExtensionBuild), built
    assert built.ok, built.build.diagnostics
    emulator = Emulator(device_named("sm_80"))
    emulator.expect(Path("answer.py"), triton=False)
    inputs = list(wrapper.inputs())
    emulator.begin([], inputs)
    watcher = WatchedAllocations(emulator)
    with serving([built], EmulatedLaunches(emulator)), torch.no_grad(), emulator.placement():
        module = cpp_extension.load_inline("kernels", **call)
        if wrapper.raises is not None:
            with pytest.raises(wrapper.raises[0], match=wrapper.raises[1]):
                wrapper.call(module, *inputs)
            return
        with watcher:
            given = wrapper.call(module, *inputs)
    torch.testing.assert_close(given, wrapper.reference(*inputs), rtol=1e-3, atol=1e-3)
    said = emulator.end()
    assert not said["findings"]
    assert not watcher.trampled()
    assert bool(said["totals"]) == bool(wrapper.cuda)


@pytest.mark.thorough
def test_the_header_can_be_compiled_before_anything_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_header(tmp_path)
    (home,) = tmp_path.glob("header-*")
    before = {file.name: file.stat().st_mtime_ns for file in home.iterdir()}
    assert {"host.o", "host.h.gch"} <= before.keys()
    assert compile_host(["int nothing;"], [], tmp_path).library is not None
    assert {file.name: file.stat().st_mtime_ns for file in home.iterdir()} == before


def test_a_compiler_that_finds_a_static_standard_library_only_links_the_shared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = host_compiler()
    assert found is not None
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {found[0]} -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    host_compiler.cache_clear()
    try:
        made = compile_host(["KERNEL_LSP_NOTHING"], ["-DKERNEL_LSP_NOTHING="], tmp_path / "kept")
    finally:
        host_compiler.cache_clear()
    assert made.library is not None, made.log
    assert b"libstdc++.so.6\0" in made.library
    assert len(made.library) < 1 << 20
