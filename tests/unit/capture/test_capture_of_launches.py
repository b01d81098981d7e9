"""A kernel that no function of its file launches for others becomes a workload, with its grids and options."""

import asyncio
import sys
from pathlib import Path

import pytest

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER

KERNELS = """import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 32}, num_warps=2)], key=["n"])
@triton.heuristics({"twice": lambda given: given["n"] > 50})
@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr, dtype: tl.constexpr, twice: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, (tl.load(x + places, mask=inside) * factor).to(dtype), mask=inside)
    if twice:
        tl.static_assert(BLOCK == 32)


@triton.heuristics({"BLOCK": lambda given: 32})
@triton.jit
def add_into_kernel(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(x + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


def add_into(x, y):
    add_into_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel())


@triton.jit
def unused_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)
"""
PROGRAM = """import torch
import triton
import triton.language as tl
from kernels import add_into, add_into_kernel, scale_kernel


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        out = torch.full_like(x, float("nan"))
        grid = lambda given: (triton.cdiv(x.numel(), given["BLOCK"]),)
        scale_kernel[grid](x, out, x.numel(), factor, dtype=tl.float32)
        return out

    @staticmethod
    def backward(ctx, dy):
        out = torch.full_like(dy, float("nan"))
        given = (dy.contiguous(), out, dy.numel(), ctx.factor)
        scale_kernel[triton.cdiv(dy.numel(), 32),](*given, dtype=tl.float32)
        return out, None


torch.manual_seed(0)
for rows in (40, 40, 70):
    x = torch.randn(rows, requires_grad=True)
    Scaled.apply(x, 3.0).sum().backward()
add_into(torch.ones(40), torch.ones(40))
add_into_kernel[(2,)](torch.ones(40), torch.ones(40), 40)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def captured(project: Path) -> Captured:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRITON_INTERPRET", "1")
        return capture_program([sys.executable, str(project / "train.py")], project / FOLDER)


def test_launches_from_another_file_and_of_autograds_functions_are_captured(captured: Captured) -> None:
    assert (captured.code, captured.seen.errors) == (0, ())
    by_name = {capture.function: capture for capture in captured.seen.captures}
    assert sorted(by_name) == ["add_into", "scale_kernel"], "a kernel that a function launches is captured with that"
    scale = by_name["scale_kernel"]
    assert (scale.is_kernel, scale.kernels, scale.mutated) == (True, ("scale_kernel",), ("out",))
    counts = {(case.arguments["x"]["shape"][0], case.count) for case in scale.cases}
    assert counts == {(40, 4), (70, 2)}, "forward and backward"
    assert {(case.arguments["BLOCK"]["value"], case.arguments["twice"]["value"]) for case in scale.cases} == {
        (32, False),
        (32, True),
    }
    grids = {tuple(one["value"] for one in case.arguments["grid"]["items"]) for case in scale.cases}
    assert grids == {(2,), (3,)}


def test_such_a_capture_is_a_workload_that_finds_a_planted_bug(project: Path, captured: Captured) -> None:
    path = project / "kernels.py"
    scale = next(one for one in captured.written if ".scale_kernel." in one.name)

    async def checked(text: str):
        path.write_text(text)
        (report,) = await check([read_source(path)], Settings(), workload=scale)
        return report

    right = asyncio.run(checked(KERNELS))
    wrong = asyncio.run(checked(KERNELS.replace("* factor)", "* factor + 0.001)")))
    path.write_text(KERNELS)
    assert right.ok, right.diagnostics
    assert any("as right as the captured function, in float64" in found.message for found in right.diagnostics)
    assert not wrong.ok


def test_it_can_be_adopted(project: Path, captured: Captured) -> None:
    scale = next(one for one in captured.seen.captures if one.is_kernel)
    text = adopted_workload(scale, project).text
    given = "x=x, out=out, n=n, factor=factor, "
    assert f"kernel[(grid_0,)]({given}" in text
    assert "return (out,)" in text
    compile(text, "adopted.py", "exec")
