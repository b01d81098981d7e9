"""A small CUDA kernel with its workload, and ways to check it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_lsp.check import Checker, FileReport
from kernel_lsp.config.settings import CheckSettings, PathSettings, Settings
from kernel_lsp.source.files import read_source
from kernel_lsp.store.store import open_store

KERNEL = """\
#include "factor.cuh"

extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
"""
HEADER = "#define FACTOR 2.0f\n"
WORKLOAD = """\
import torch

CASES = [dict(n=1000)]


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return y
"""


def write_scale(folder: Path) -> Path:
    """The three files in a repository of their own; the path of the kernel."""
    (folder / ".git").mkdir(parents=True)
    (folder / "scale.cu").write_text(KERNEL)
    (folder / "factor.cuh").write_text(HEADER)
    (folder / "scale_workload.py").write_text(WORKLOAD)
    return folder / "scale.cu"


def settings_in(folder: Path, **check: Any) -> Settings:
    """Settings that keep everything in `folder`."""
    return Settings(paths=PathSettings(data=folder / "data", cache=folder / "cache"), check=CheckSettings(**check))


def checking(folder: Path, steps: Callable[[Callable[[Path], FileReport]], None], **check: Any) -> None:
    """Run `steps`, which is given what checks a file with workers that stay warm, and a store in `folder`."""
    with asyncio.Runner() as runner, open_store(folder / "data") as store:
        checker = Checker(settings_in(folder, **check), store)
        try:
            steps(lambda path: runner.run(checker.check(read_source(path))))
        finally:
            runner.run(checker.__aexit__(None, None, None))


def codes(report: FileReport) -> list[tuple[str | None, int]]:
    """Rule and line of each finding."""
    return [(found.code, found.line) for found in report.diagnostics]
