import re
from pathlib import Path

import pytest
from rewrite_support import cuda_kernel, rewritten, warnings
from tensor_core_kernels import KERNELS, LDMATRIX, LOADS, STAGES, WMMA, workload

from kernel_lsp.refine.rewrites.copies.bulk_copies import block_shape
from kernel_lsp.refine.rewrites.products.warpgroup_products import rewrite, with_warpgroups
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.candidate import SourceFile
from tests.sampling import params
from tests.unit.refine.test_rewrite_bulk_copies import checked


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def by_warpgroups(text: str, driver: str) -> str:
    """A kernel's text with products by warpgroups; fails where the rewrite does not apply."""
    file, kernel = cuda_kernel(text)
    tree = KernelTree(file, kernel)
    return with_warpgroups(tree, block_shape(tree, SourceFile(Path("workload.py"), driver))).file.text


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A text with changes, each of which has to apply."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", params(KERNELS, ["wmma", "stages"], str))
def test_it_compiles_for_hopper_without_warnings(name: str):
    text, driver = KERNELS[name]
    made = by_warpgroups(text, driver)
    assert "wgmma.mma_async" in made
    assert warnings(made, "sm_90a") == ""
    assert max(map(len, made.split("\n"))) <= 120
    assert not re.search(r"mma_sync|mma\.sync|ldmatrix|<mma.h>", made)


@pytest.mark.parametrize("name", params(KERNELS, ["ldmatrix", "stages"], str))
def test_results_are_right_on_the_emulator_and_nothing_is_found(name: str, tmp_path: Path, no_gpu: None):
    text, driver = KERNELS[name]
    report = checked(tmp_path, {name: (by_warpgroups(text, driver), driver)})[name]
    assert report.ok, report.diagnostics
    assert report.emulation is not None
    assert {finding for run in report.emulation.runs for finding in run.findings} == set()
    assert len({run.family for run in report.emulation.runs}) >= 5


def test_products_used_wrongly_are_found(tmp_path: Path, no_gpu: None):
    text, driver = KERNELS["stages"]
    good = by_warpgroups(text, driver)
    broken = {
        "published": ("        wgmma::publish_writes();\n", ""),
        "awaited": ("wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 1"),
        "swizzle": ("COLUMNS == 64 ? 1", "COLUMNS == 64 ? 2"),
        "rows": ("a_tile[t % STAGES], group_row,", "a_tile[t % STAGES], 0,"),
        "order": ("% (COLUMNS / 8);", "% 2;"),
    }
    files = {name: (changed(good, change), driver) for name, change in broken.items()}
    assert {name: report.ok for name, report in checked(tmp_path, files).items()} == dict.fromkeys(broken, False)


def test_it_reads_like_the_kernel():
    made = by_warpgroups(*KERNELS["wmma"])
    ahead, _, kernel = made.partition("// C = A B.\n")
    assert "namespace wgmma {" in ahead  # not between a kernel and what is said about it
    assert "PAD" not in made  # nothing is padded any more
    assert "__shared__ alignas(1024) half b_tile[1][BK][BN];" in kernel
    assert "wgmma::at(a_tile, i / BK, i % BK) = row < m && at < k ? a[row * k + at]" in kernel
    assert "const int row = block_row + warp * 16;" in kernel
    assert "if (row < m && column < n) {\n            wgmma::store(&c[(size_t)row * n + column]," in kernel
    assert kernel.count("warp_row") == 0


def test_arrays_without_rows_get_rows():
    made = by_warpgroups(*KERNELS["flat"])
    assert "half a_tile[1][BM][BK];" in made
    assert "wgmma::at(a_tile, i / BK, i % BK) =" in made  # from `a_tile[i / BK * (BK + PAD) + i % BK]`
    assert "wgmma::at(b_tile, i / BN, i % BN) =" in made  # from `b_tile[i]`


def test_tiles_that_are_wider_than_a_swizzle_come_in_panels():
    made = by_warpgroups(*KERNELS["wide"])
    assert "half b_tile[BN / 64][BK][64];" in made
    assert "const int group_column = threadIdx.x / 128 * 64;" in made
    assert "wgmma::descriptor(b_tile, inner, group_column)" in made


def test_stages_of_the_kernel_are_kept():
    made = by_warpgroups(*KERNELS["stages"])
    assert "wgmma::at(b_tile[to], tid / 16, tid % 16 * 8)" in made
    assert "wgmma::descriptor(a_tile[t % STAGES], group_row, inner)" in made
    assert "acc[at / 2 + i] = alpha * acc[at / 2 + i];" in made


def test_it_is_for_hopper_alone():
    text, driver = KERNELS["stages"]
    assert [one.label for one in rewritten(rewrite, text, driver)] == ["products of tiles by warpgroups (wgmma)"]
    assert rewritten(rewrite, text, driver, gpu="A100") == []
    assert rewritten(rewrite, text, driver, gpu="B200") == []


BARRIER = "        }\n        __syncthreads();\n    }\n"
REFUSED = {
    "a block of three warps": (WMMA, workload(64, 64, 96), (), "128 threads"),
    "a size that is not known": (WMMA, workload(64, 64, "block_of(a)"), (), "shape"),
    "32 rows": (
        WMMA,
        workload(32, 64, 128),
        (
            ("BM = 64", "BM = 32"),
            ("warp / 2 * 32", "warp / 2 * 16"),
            ("i < 2; i++) {\n                for (int j", "i < 1; i++) {\n                for (int j"),
        ),
        "no multiple of 64",
    ),
    "half sums": (WMMA, None, (("accumulator, 16, 16, 16, float", "accumulator, 16, 16, 16, half"),), "no float"),
    "another shape": (WMMA, None, (("16, 16, 16", "32, 8, 16"),), "16 x 16 x 16"),
    "sums of C": (
        WMMA,
        None,
        (("fill_fragment(sums[i][j], 0.0f)", "fill_fragment(sums[i][j], 1.0f)"),),
        "begin with 0",
    ),
    "no barrier": (WMMA, None, (("        }\n        __syncthreads();\n\n", "        }\n\n"),), "wait ahead"),
    "a way out": (
        WMMA,
        None,
        (("    for (int k0", "    if (block_row >= m) return;\n    for (int k0"),),
        "leave ahead",
    ),
    "some steps": (WMMA, None, (("kk = 0", "kk = 16"),), "steps of K"),
    "overlapping warps": (WMMA, None, (("warp % 2 * 32", "warp % 2 * 16"),), "one tile"),
    "pointer to a tile": (
        WMMA,
        None,
        (("a_tile[i / BK][i % BK] =", "(&a_tile[0][0])[i / BK * (BK + PAD) + i % BK] ="),),
        "is not known",
    ),
    "read besides": (
        WMMA,
        None,
        ((BARRIER, BARRIER.replace("}\n", "}\n        c[0] = __half2float(a_tile[0][0]);\n", 1)),),
        "does not fill",
    ),
    "own swizzle": (
        LDMATRIX,
        None,
        (
            ("&a_tile[r][at]", "&a_tile[r][at ^ (r & 1) * 8]"),
            ("[kk + lane / 16 * 8]", "[(kk + lane / 16 * 8) ^ (lane & 1) * 8]"),
        ),
        "fragments of rows",
    ),
    "sums of another": (
        LDMATRIX,
        None,
        (("acc[i][j][0], acc[i][j][1]", "acc[i][j][1], acc[i][j][0]"),),
        "neighbouring sums",
    ),
    "one half": (
        LDMATRIX,
        None,
        (("if (row + 8 < m && column < n)", "if (row + 8 < m && column < 0 * n)"),),
        "row and column",
    ),
    "unlike steps": (STAGES, None, (("for (int t = 0;", "for (int t = threadIdx.y / 8;"),), "different steps"),
    "sums used twice": (STAGES, None, (("at = (threadIdx.y / 4", "at = (threadIdx.y / 8"),), "one matrix"),
    "part of a tile": (
        STAGES,
        None,
        (
            (
                "&a_tile[stage][threadIdx.y / 4 * 64 + i * 16][0]",
                "&a_tile[0][t % 2 * 8 + threadIdx.y / 4 * 64 + i * 16][0]",
            ),
        ),
        "which part",
    ),
    "stages by number": (STAGES, None, (("a_tile[stage][", "a_tile[1]["),), "one tile"),
    "changing columns": (
        LDMATRIX,
        None,
        (
            ("const int r = (tid + i * 128) / 4, at", "const int r = (tid + i * 128) / 4;\n            int at"),
            ("            copy_async(&b_tile", "            at += 0;\n            copy_async(&b_tile"),
        ),
        "which element",
    ),
    "other waits": (
        STAGES,
        None,
        (("extern", '__device__ void wait() { asm volatile("bar.sync 1, 64;" ::: "memory"); }\nextern'),),
        "other waits",
    ),
    "a macro for a tile": (
        WMMA,
        None,
        (("constexpr int PAD", "#define A a_tile\nconstexpr int PAD"),),
        "a macro names",
    ),
    "turned result": (WMMA, None, (("wmma::mem_row_major", "wmma::mem_col_major"),), "as rows"),
    "dynamic memory": (
        WMMA,
        None,
        (("__shared__ half a_tile[BM]", "extern __shared__ half a_tile[]"),),
        "changes, or differs",
    ),
    "own name": (LOADS, None, (("constexpr int BM", "int wgmma;\nconstexpr int BM"),), "the name `wgmma`"),
}
DRIVERS = dict(KERNELS.values())


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_why_it_does_not_apply(name: str):
    text, driver, changes, why = REFUSED[name]
    with pytest.raises(NotApplicableError, match=why):
        by_warpgroups(changed(text, *changes), driver or DRIVERS[text])


def test_what_one_warp_fills_and_reads_needs_both_barriers():
    column = (
        ("warp_row = warp / 2 * 32, warp_column = warp % 2 * 32", "warp_row = warp * 16, warp_column = 0"),
        ("sums[2][2]", "sums[1][4]"),
        ("a_part[2]", "a_part[1]"),
        ("b_part[2]", "b_part[4]"),
        ("for (int i = 0; i < 2; i++)", "for (int i = 0; i < 1; i++)"),
        ("for (int j = 0; j < 2; j++)", "for (int j = 0; j < 4; j++)"),
        (
            "                wmma::load_matrix_sync(b",
            "            }\n            for (int i = 0; i < 4; i++) {\n                wmma::load_matrix_sync(b",
        ),
    )
    text = changed(WMMA, *column)
    by_warpgroups(text, DRIVERS[WMMA])
    with pytest.raises(NotApplicableError, match="two barriers"):
        by_warpgroups(changed(text, (BARRIER, "        }\n    }\n")), DRIVERS[WMMA])
    by_warpgroups(changed(WMMA, (BARRIER, "        }\n    }\n")), DRIVERS[WMMA])  # where two warps read each element
