from pathlib import Path

import pytest
from rewrite_support import checked, cuda_kernel, ptx, rewritten
from staged_kernels import BODIES, BODIES_WORKLOAD, GROUPED, KERNELS, PLAIN, PLAIN_WORKLOAD, product_workload

from kernel_lsp.device.device import Device, device_named
from kernel_lsp.refine.rewrites.copies.bulk_copies import block_shape, rewrite, staged
from kernel_lsp.refine.rewrites.copies.bulk_groups import in_bulk
from kernel_lsp.refine.rewrites.copies.copy_groups import find_copy_groups
from kernel_lsp.refine.rewrites.copies.staged_loops import find_staged_loop
from kernel_lsp.refine.rewrites.products import register_tile
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel
from tests.sampling import params


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def in_stages(text: str, workload: str, stages: int = 3) -> str:
    """A kernel's text with so many stages; fails where the rewrite does not apply."""
    file, kernel = cuda_kernel(text)
    return of_kernel(KernelTree(file, kernel), workload, stages)


def of_kernel(tree: KernelTree, workload: str, stages: int) -> str:
    shape = block_shape(tree, SourceFile(Path("workload.py"), workload))
    return staged(find_staged_loop(tree, shape), stages).file.text


def grouped(text: str, workload: str) -> str:
    """A kernel's text with its groups of copies in bulk; fails where the rewrite does not apply."""
    file, kernel = cuda_kernel(text)
    tree = KernelTree(file, kernel)
    return in_bulk(find_copy_groups(tree, block_shape(tree, SourceFile(Path("workload.py"), workload)))).file.text


def cuda_kernel_in(text: str, workload: str) -> tuple[SourceFile, SourceFile, Kernel, Device]:
    """What a rewrite is asked about."""
    file, kernel = cuda_kernel(text)
    return file, SourceFile(Path("workload.py"), workload), kernel, device_named("H100")


@pytest.mark.parametrize("name", KERNELS)
def test_three_four_and_two_stages_are_tried_and_compile(name: str):
    text, workload = KERNELS[name]
    found = rewritten(rewrite, text, workload)
    assert [candidate.label.rpartition("through ")[2] for candidate in found] == ["3 stages", "4 stages", "2 stages"]
    assert all("cp.async.bulk" in ptx(candidate.kernel.text) for candidate in found)


@pytest.mark.parametrize("name", GROUPED)
def test_stages_of_the_kernel_itself_are_kept(name: str):
    text, workload = GROUPED[name]
    (found,) = rewritten(rewrite, text, workload)
    assert found.label == "groups of copies in bulk"
    assert found.kernel.text == grouped(text, workload)
    assert "cp.async.bulk" in ptx(found.kernel.text)


@pytest.mark.parametrize("name", params([*KERNELS, *GROUPED], ["plain", "turned", "double"], str))
def test_results_are_right_on_the_emulator_and_nothing_is_found(name: str, tmp_path: Path, no_gpu: None):
    text, workload = (KERNELS | GROUPED)[name]
    made = (grouped if name in GROUPED else in_stages)(text, workload)
    report = checked(tmp_path, {name: (made, workload)})[name]
    assert report.ok, report.diagnostics
    assert report.emulation is not None
    assert {finding for run in report.emulation.runs for finding in run.findings} == set()
    assert len({run.family for run in report.emulation.runs}) >= 5


def test_a_loop_under_a_directive_is_moved_with_it(tmp_path: Path, no_gpu: None):
    several = register_tile.rewrite(*cuda_kernel_in(PLAIN, PLAIN_WORKLOAD))
    (wanted,) = [one for one in several if one.label.startswith("2 x 4")]
    assert wanted.launch is not None
    made = rewritten(rewrite, wanted.kernel.text, wanted.launch.text)
    assert [one.label.rpartition("through ")[2] for one in made] == ["3 stages", "4 stages", "2 stages"]
    report = checked(tmp_path, {"several": (made[0].kernel.text, wanted.launch.text)})["several"]
    assert report.ok, report.diagnostics


def test_a_ring_that_is_used_wrongly_is_found(tmp_path: Path, no_gpu: None):
    good = in_stages(PLAIN, PLAIN_WORKLOAD)
    broken = {
        "parity": ("step / STAGES % 2)", "(step / STAGES + 1) % 2)"),
        "bytes": ("sizeof(a_tile[0]) + sizeof(b_tile[0]) : 0", "sizeof(a_tile[0]) : 0"),
        "reuse": ("(step + STAGES - 1) % STAGES)", "step % STAGES)"),
        "bounds": ("            && k0 + 15 < k\n", ""),
    }
    files: dict[str, tuple[str, str]] = {}
    for name, (right, wrong) in broken.items():
        assert good.count(right) == 1, name
        files[name] = good.replace(right, wrong), PLAIN_WORKLOAD
    assert {name: report.ok for name, report in checked(tmp_path, files).items()} == dict.fromkeys(broken, False)


def test_it_reads_like_the_kernel():
    text = in_stages(PLAIN, PLAIN_WORKLOAD)
    ahead, _, kernel = text.partition("// C = A B.\n")
    assert "namespace bulk {" in ahead  # not between a kernel and what is said about it
    assert "__shared__ alignas(128) float a_tile[STAGES][TILE][TILE];" in kernel
    copied = "            // Neighbouring threads load neighbours.\n            const int to = k0 + threadIdx.x;\n"
    assert copied in kernel
    assert "sum += a_tile[stage][threadIdx.y][i] * b_tile[stage][i][threadIdx.x];" in kernel
    assert "            && k % 4 == 0\n" in kernel
    assert max(len(line) for line in kernel.split("\n")) <= 120


def test_a_loop_that_counts_its_steps_gets_no_second_counter():
    text, workload = KERNELS["counted"]
    assert "const int stage = t % STAGES;" in in_stages(text, workload)


def test_what_cannot_come_in_bulk_is_still_brought_by_threads():
    text, workload = KERNELS["turned"]
    kernel = in_stages(text, workload)
    assert "        for (int i = tid; i < 256; i += 64) left[i % 16][i / 16] = a[" in kernel
    assert "left[16][17];" in kernel


@pytest.mark.parametrize(
    "body",
    [
        "(reinterpret_cast<float4 *>(&(x))[0])",
        "(reinterpret_cast<const float4*>(&(x))[0])",
        "(((float4*)(&(x)))[0])",
        "((float4*)(&(x)))[0]",
    ],
)
def test_vectors_by_a_macro_are_vectors(body: str):
    text, workload = KERNELS["turned"]
    copied = "FLOAT4(right[tid / 4][tid % 4 * 4]) = FLOAT4(b[(k0 + tid / 4) * n + column0 + tid % 4 * 4]);"
    start = text.index("reinterpret_cast<float4*>(&right")
    changed = f"#define FLOAT4(x) {body}\n" + text[:start] + copied + text[text.index(";", start) + 1 :]
    assert "bulk::copy(right[stage][threadIdx.x]," in in_stages(changed, workload)


def test_a_second_kernel_shares_the_functions():
    file = SourceFile(Path("kernel.cu"), in_stages(PLAIN, PLAIN_WORKLOAD) + BODIES)
    (_, bodies) = find_kernels(file.text, file.path)
    text = of_kernel(KernelTree(file, bodies), BODIES_WORKLOAD, 2)
    assert text.count("namespace bulk {") == 1
    ptx(text)


WAIT, END = "        __syncthreads();\n", "        __syncthreads();\n    }"
REFUSED = {
    "padded": ("a_tile[TILE][TILE]", "a_tile[TILE][TILE + 1]", "pieces of 16 bytes"),
    "turned": ("a_tile[threadIdx.y][threadIdx.x] =", "a_tile[threadIdx.x][threadIdx.y] =", "none in global memory"),
    "changed": (f"{WAIT}#", f"{WAIT}        a_tile[0][0] = 1;\n#", "may be changed"),
    "early": (END, f"        if (k0 > 64) break;\n{END}", "end early"),
    "left": ("    float sum", "    if (row > 9999) return;\n    float sum", "leave ahead"),
    "one barrier": (END, "    }", "wait both"),
    "used after": (
        "    if (row < m && col",
        "    sum += a_tile[0][0];\n    if (row < m && col",
        "outside of the steps",
    ),
    "steps": ("k0 += TILE", "k0 += TILE + threadIdx.x", "different steps"),
    "own name": ("// C = A B.", "int bulk;", "name `bulk`"),
    "converted": ("const float* __restrict__ a", "const int* __restrict__ a", "other elements"),
}


def test_blocks_of_a_size_that_is_not_known():
    with pytest.raises(NotApplicableError, match="shape"):
        in_stages(PLAIN, product_workload(16, 16, "block_of(a)"))


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_why_it_does_not_apply(name: str):
    right, wrong, why = REFUSED[name]
    text = PLAIN.replace(right, wrong)
    if name in ("padded", "turned", "converted"):  # the other tile would do
        text = text.replace("b_tile[TILE][TILE]", "b_tile[TILE][TILE + 1]")
    assert text != PLAIN
    with pytest.raises(NotApplicableError, match=why):
        in_stages(text, PLAIN_WORKLOAD)


def test_memory_that_may_change_is_not_brought_ahead():
    text = PLAIN.replace("__restrict__ ", "")
    in_stages(text, PLAIN_WORKLOAD)  # written after the loop alone
    for change in ("c[k0] = sum;", "atomicAdd(c, sum);"):
        changed = text.replace(END, f"        {change}\n{END}")
        with pytest.raises(NotApplicableError, match="may be changed"):
            in_stages(changed, PLAIN_WORKLOAD)


def test_old_values_stay_where_a_bound_leaves_them():
    start = BODIES.index("tile[threadIdx.x] =")
    end = BODIES.index(";", BODIES.index("make_float4", start))
    text = (
        BODIES[:start] + "if (first + threadIdx.x < n) tile[threadIdx.x] = bodies[first + threadIdx.x]" + BODIES[end:]
    )
    with pytest.raises(NotApplicableError, match="leaves old values"):
        in_stages(text, BODIES_WORKLOAD)


def test_it_needs_hopper_and_room_for_the_stages():
    assert rewritten(rewrite, PLAIN, PLAIN_WORKLOAD, gpu="A100") == []
    large = PLAIN.replace("TILE = 16", "TILE = 32")
    found = rewritten(rewrite, large, product_workload(32, 32, "(32, 32)"))
    assert len(found) == 3
    wide = BODIES.replace("BLOCK 64", "BLOCK 1024")
    assert len(rewritten(rewrite, wide, BODIES_WORKLOAD.replace("64", "1024"))) == 1  # 16 KiB each, of 48


DOUBLE, DOUBLE_WORKLOAD = GROUPED["double"]
WAIT_ONE = "__pipeline_wait_prior(1);"
NOT_GROUPED = {
    "a way of its own": ("if (t + 1 < k / T) {", "if (t + 1 + threadIdx.x / 64 < k / T) {", "different ways"),
    "another stage": ("load((t + 1) % 2,", "load((t + 1 + threadIdx.x / 64) % 2,", "differs between threads"),
    "a number not known": (WAIT_ONE, "__pipeline_wait_prior(m);", "is no number"),
    "no barrier": ("        __syncthreads();\n", "", "for all threads"),
    "values taken along": ("[&](int stage", "[=](int stage", "lambda"),
    "beyond the end": ("right[2][T][T + 4]", "right[1][T][T + 4]", None),
    "changed": (
        "        for (int e = 0; e < 4; ++e) {\n",
        "        left[0][0][0] = 1;\n        for (int e = 0; e < 4; ++e) {\n",
        "changed",
    ),
    "written ahead": ("    load(0, 0);", "    c[0] = 0;\n    load(0, 0);", None),
}


@pytest.mark.parametrize("name", NOT_GROUPED)
def test_it_says_why_groups_do_not_come_in_bulk(name: str):
    right, wrong, why = NOT_GROUPED[name]
    assert right in DOUBLE
    text = DOUBLE.replace(right, wrong)
    if why is None:  # known only while it runs, or allowed by `__restrict__`
        ptx(grouped(text, DOUBLE_WORKLOAD))
        return
    with pytest.raises(NotApplicableError, match=why):
        grouped(text, DOUBLE_WORKLOAD)


def test_a_group_that_is_not_awaited_is_found(tmp_path: Path, no_gpu: None):
    good = grouped(DOUBLE, DOUBLE_WORKLOAD)
    broken = {
        "pending": ("wait_for_groups(1)", "wait_for_groups(2)"),
        "ring": ("GROUPS = 3", "GROUPS = 1"),
        "bytes": ("expected += sizeof(left[0]);", "expected += sizeof(left[0]) / 2;"),
    }
    assert all(good.count(right) == 1 for right, _ in broken.values())
    files = {name: (good.replace(*change), DOUBLE_WORKLOAD) for name, change in broken.items()}
    assert {name: report.ok for name, report in checked(tmp_path, files).items()} == dict.fromkeys(broken, False)
