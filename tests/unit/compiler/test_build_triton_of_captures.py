"""Builds of captured functions: their inputs are as large as in the program, and nobody waits until they are drawn."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernel_lsp.capture.inject import describe
from kernel_lsp.compiler.triton.build import TritonBuild, build_triton
from kernel_lsp.device.device import device_named
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.capture import Capture, CapturedCase, capture_text
from kernel_lsp.workload.captured import captured_workload
from kernel_lsp.workload.execute import load_module

KERNEL = """import torch
import triton
import triton.language as tl

seen = []


@triton.jit
def scale(x, y, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def scaled(x):
    largest = float(x.abs().max())
    seen.append(largest)
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, y, FACTOR, x.numel(), BLOCK=1024)
    return y
"""
ROWS, COLUMNS = 2048, 4096


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[TritonBuild, list[float]]]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))

    def building(factor: str) -> tuple[TritonBuild, list[float]]:
        text, path = KERNEL.replace("FACTOR", factor), tmp_path / "scaled.py"
        described = describe.describe_arguments({"x": 1 + torch.rand(4, 4)})
        described["x"] |= {"shape": [ROWS, COLUMNS], "stride": [COLUMNS, 1]}
        case = CapturedCase(described, (), 1, 12, 0.5)
        made = Capture("train.py", str(path), "scaled", ("scale",), text, (case,), 12)
        workload = captured_workload(capture_text(made), tmp_path / "a.capture.json")
        seen: list[float] = []

        def load() -> Callable[..., object]:
            module = load_module(text, path)
            module.seen = seen
            return module.scaled

        return build_triton(SourceFile(path, text), workload, load, device_named("sm_90"), 1), seen

    return building


def test_large_inputs_are_zeros_that_take_no_time(build: Callable[[str], tuple[TritonBuild, list[float]]]) -> None:
    made, seen = build("2.0")
    assert made.build.binary is not None
    assert set(seen) == {0.0}


def test_they_are_drawn_for_host_code_that_does_not_get_along_with_zeros(
    build: Callable[[str], tuple[TritonBuild, list[float]]],
) -> None:
    made, seen = build("1.0 / largest")
    assert made.build.binary is not None
    assert 1 < seen[-1] < 2
