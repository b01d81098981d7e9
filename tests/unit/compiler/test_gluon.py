"""Gluon's kernels are built as Triton's are, with layouts and descriptors made up where no workload launches them."""

from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernel_lsp.compiler.triton.assumed import build_assumed
from kernel_lsp.device.device import device_named
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels

MATMUL = Path(__file__).parents[3] / "examples" / "gluon" / "matmul.py"
COPIES = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def copy_row(x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y + i, gl.load(x + i, mask=i < n), mask=i < n)


@gluon.jit
def offsets_of(row, column, stride, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    rows = row + gl.arange(0, XBLOCK, layout=gl.SliceLayout(dim=1, parent=layout))
    columns = column + gl.arange(0, YBLOCK, layout=gl.SliceLayout(dim=0, parent=layout))
    return rows[:, None] * stride + columns[None, :]


@gluon.jit
def copy_tile(
    in_ptr, out_ptr, stride, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, at: gl.constexpr, held: gl.constexpr
):
    offsets = offsets_of(0, 0, stride, XBLOCK, YBLOCK, at)
    tile = gl.allocate_shared_memory(gl.float32, [XBLOCK, YBLOCK], held)
    tile.store(gl.load(in_ptr + offsets))
    gl.store(out_ptr + offsets, tile.load(at))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))


def built(text: str, path: Path, arch: str):
    path.write_text(text)
    return build_assumed(SourceFile(path, text), device_named(arch), 1)


def test_gluons_kernels_are_found_and_their_helpers_are_not():
    assert [kernel.name for kernel in find_kernels(COPIES, Path("copies.py"))] == ["copy_row", "copy_tile"]


def test_layouts_are_made_up_with_as_many_dimensions_as_their_use_has(tmp_path: Path):
    made, assumed = built(COPIES, tmp_path / "copies.py", "sm_90")
    assert assumed[0].compiled, assumed
    assert "layout: layout, 1-dimensional" in assumed[0].types
    assert {"at: layout, 2-dimensional", "held: shared layout, 2-dimensional"} <= set(assumed[1].types)
    assert made.build.binary is not None
    names = [kernel.name for kernel in made.build.binary.kernels]
    assert names[0] == "copy_row[BLOCK=1024, layout=BlockedLayout, num_warps=4]"


def test_descriptors_are_made_up_and_what_the_launch_says_is_used(tmp_path: Path):
    made, (assumed,) = built(MATMUL.read_text(), tmp_path / "matmul.py", "sm_90")
    assert assumed.compiled, assumed
    assert {"a_desc: desc", "b_desc: desc", "c_desc: desc"} <= set(assumed.types)
    assert made.build.binary is not None
    assert made.build.binary.ptx is not None
    assert "wgmma.mma_async" in made.build.binary.ptx
    assert made.plans[0].launches[0].constexprs["STAGES"] == 4


def test_an_architecture_without_the_instructions_is_said_to_lack_them(tmp_path: Path):
    _, (assumed,) = built(MATMUL.read_text(), tmp_path / "matmul.py", "sm_80")
    assert not assumed.compiled
    assert "needs sm_90 or later; this is compiled for sm_80" in (assumed.problem or "")
