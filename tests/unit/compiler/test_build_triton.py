"""Triton files compiled and planned for GPUs that are not there."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import torch
from triton.compiler.compiler import ASTSource

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.machine_code.cubin import cubin_arch
from kernel_lsp.compiler.triton.build import TritonBuild, build_triton, diagnose
from kernel_lsp.compiler.triton.ptxas_words import words_of_ptxas
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import workload_of

KERNEL = """import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((128, 4), (256, 8), (1 << 17, 4))],
    key=["n"],
    cache_results=True,
)
@triton.jit
def scale(x, y, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def helper(values):
    return tl.sum(values, axis=0)


@triton.jit
def row_sums(x, y, stride, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    values = tl.load(x + r * stride + c, mask=c < n, other=0.0)
    tl.store(y + r, helper(values))


def run(x):
    assert x.is_cuda
    y = torch.empty_like(x)
    scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, 2.5, x.numel())
    sums = torch.empty(y.shape[0], device=x.device)
    row_sums[(y.shape[0],)](y, sums, y.stride(0), y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]), num_warps=2)
    return sums
"""
WORKLOAD = """import torch
CASES = [dict(rows=64, columns=1000), dict(rows=100_000, columns=1000)]
def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda")
def reference(x):
    return (x * 2.5).sum(1)
def launch(module, x):
    return module.run(x)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


@pytest.fixture(autouse=True)
def _one_thread() -> Generator[None]:
    """As workers have it: torch's other threads are missing in a fork, which would wait for them."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., TritonBuild]:
    def building(
        kernel: str = KERNEL,
        arch: str = "sm_90",
        workload: str = WORKLOAD,
        processes: int = 3,
        misaligned: bool = False,
        name: str = "sums.py",
    ) -> TritonBuild:
        source = SourceFile(tmp_path / name, kernel)
        path = tmp_path / "sums_workload.py"
        made = workload_of(load_module(workload, path), path)

        def load() -> Callable[..., object]:
            module = load_module(source.text, source.path)
            return lambda *inputs: made.launch(module, *inputs) if made.launch else None

        return build_triton(source, made, load, device_named(arch), processes, misaligned=misaligned)

    return building


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_every_configuration_is_compiled_and_the_launches_are_planned(
    arch: str, build: Callable[..., TritonBuild], tmp_path: Path
) -> None:
    kernel = KERNEL.replace(", (1 << 17, 4)", "")
    made = build(kernel, arch)
    assert made.build.diagnostics == ()
    assert made.build.way == "triton"
    assert made.build.binary is not None
    facts = {fact.name: fact for fact in made.build.binary.kernels}
    assert set(facts) == {
        "scale[BLOCK=128, num_warps=4]",
        "scale[BLOCK=256, num_warps=8]",
        "row_sums[BLOCK=1024, num_warps=2]",
    }
    assert {fact.required_threads for fact in facts.values()} == {(128, 1, 1), (256, 1, 1), (64, 1, 1)}
    assert all(fact.registers > 0 and fact.spill_load_bytes == 0 for fact in facts.values())
    assert [cubin_arch(binary.cubin) for binary in made.binaries] == [arch] * 3
    assert all(binary.ptx and str(tmp_path / "sums.py") in binary.ptx for binary in made.binaries)
    first, second = (plan.launches for plan in made.plans)
    assert [(x.kernel, x.grid, x.block) for x in first] == [
        ("scale", (500, 1, 1), (128, 1, 1)),
        ("row_sums", (64, 1, 1), (64, 1, 1)),
    ]
    assert second[0].grid == (781_250, 1, 1)
    assert first[1].constexprs == {"BLOCK": 1024}
    assert (first[1].num_warps, first[1].shared_bytes > 0) == (2, True)
    entries = {fact.entry for fact in facts.values()}
    assert {launch.entry for launch in (*first, *second)} <= entries
    assert len(entries) == 3, "each compilation can be told apart"


def test_made_up_timings_are_never_kept(build: Callable[..., TritonBuild], tmp_path: Path) -> None:
    assert build(KERNEL.replace(", (1 << 17, 4)", "")).build.binary is not None
    assert not list((tmp_path / "triton").rglob("*.autotune.json"))


def test_compiling_side_by_side_makes_the_same(
    build: Callable[..., TritonBuild], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNEL.replace(", (1 << 17, 4)", "")
    alone = build(kernel, processes=1)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "another"))
    here: list[object] = []  # what a fork adds is not seen in this process
    compiling = ASTSource.make_ir
    monkeypatch.setattr(ASTSource, "make_ir", lambda *given: here.append(given) or compiling(*given))
    together = build(kernel + "\n", processes=2)  # a text of its own: one that is loaded already has compiled
    assert here == []
    assert together.binaries == alone.binaries
    assert together.plans == alone.plans


@pytest.mark.parametrize("processes", [1, 3])
def test_what_a_tuner_of_another_module_remembers_is_from_the_build_alone(
    processes: int, build: Callable[..., TritonBuild], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first configuration does not compile, which only a build finds out."""
    kernel = KERNEL.replace("(128, 4)", "(2048, 4)").replace(
        "    i = tl.program_id", "    tl.static_assert(BLOCK < 1024)\n    i = tl.program_id"
    )
    (tmp_path / f"tuned_{processes}.py").write_text(kernel.replace(", (1 << 17, 4)", ""))
    monkeypatch.syspath_prepend(tmp_path)
    made = build(f"from tuned_{processes} import run\n", processes=processes)
    assert made.build.binary is not None, made.build.diagnostics
    assert {fact.name for fact in made.build.binary.kernels} == {
        "scale[BLOCK=256, num_warps=8]",
        "row_sums[BLOCK=1024, num_warps=2]",
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("processes", [1, 3])
def test_what_ends_a_launch_is_told_once(processes: int, build: Callable[..., TritonBuild]) -> None:
    kernel = KERNEL.replace(", (1 << 17, 4)", "").replace("    return sums\n", "    raise SystemExit(f'{LEFT}')\n")
    made = build(f"{kernel}\n\nLEFT = 3\n", processes=processes)
    assert [error.message for error in made.build.diagnostics] == ["SystemExit: 3"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("processes", [1, 3])
def test_spills_are_counted(processes: int, build: Callable[..., TritonBuild]) -> None:
    kernel = KERNEL.replace(
        "    values = tl.load(x + r * stride + c, mask=c < n, other=0.0)\n    tl.store(y + r, helper(values))\n",
        "    t = tl.load(x + c[:, None] * stride + c[None, :])\n"
        "    tl.store(y + c[:, None] * n + c[None, :], tl.dot(t, tl.trans(t)) + t)\n",
    ).replace("BLOCK=triton.next_power_of_2(y.shape[1]), num_warps=2", "BLOCK=64, num_warps=1")
    made = build(kernel.replace(", (1 << 17, 4)", ""), "sm_80", processes=processes)
    assert made.build.binary is not None, made.build.log
    facts = next(fact for fact in made.build.binary.kernels if fact.name.startswith("row_sums"))
    assert facts.stack_bytes > 0
    assert (facts.spill_store_bytes or 0) > 0
    assert (facts.spill_load_bytes or 0) > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("old", "new", "line", "column", "words"),
    [
        ("    r = tl.program_id(0)\n", "    r = nowhere(0)\n", 24, 9, "nowhere is not defined"),
        ("    c = tl.arange(0, BLOCK)\n", "    c = tl.arange(0, 100)\n", 25, 9, "power of 2"),
        ("tl.sum(values, axis=0)", "tl.sum(valeus, axis=0)", 19, 19, "valeus is not defined"),
        ("sums = torch.empty(", "sums = torch.emtpy(", 34, 5, "has no attribute 'emtpy'"),
        ("(y, sums, y.stride(0), ", "(y, sums, ", 35, 5, "missing"),
        ("    return sums\n", "    return (sums\n", 36, 5, "was never closed"),
        ("import triton.language as tl", "import triton.langauge as tl", 3, 1, "No module named 'triton.langauge'"),
    ],
)
def test_errors_are_at_the_users_line(
    old: str, new: str, line: int, column: int, words: str, build: Callable[..., TritonBuild], tmp_path: Path
) -> None:
    assert old in KERNEL
    made = build(KERNEL.replace(", (1 << 17, 4)", "").replace(old, new))
    assert made.build.binary is None
    (error,) = made.build.diagnostics
    assert words in error.message
    assert (error.path, error.line, error.column) == (str(tmp_path / "sums.py"), line, column)
    assert error.severity is Severity.ERROR
    assert words in made.build.log
    assert "kernel_lsp" not in made.build.log, "our own stack is of no use to the user"


def test_the_log_is_the_compilers_message_with_its_excerpt_of_each_function(build: Callable[..., TritonBuild]) -> None:
    made = build(KERNEL.replace(", (1 << 17, 4)", "").replace("tl.sum(values, axis=0)", "tl.sum(valeus, axis=0)"))
    caller, callee = made.build.log.split("\n\n")
    assert "tl.store(y + r, helper(values))" in caller
    assert callee.startswith("at 2:")
    assert callee.endswith("valeus is not defined')")


def test_the_log_of_an_error_in_host_code_shows_the_users_lines(build: Callable[..., TritonBuild]) -> None:
    log = build(KERNEL.replace("sums = torch.empty(", "sums = torch.emtpy(")).build.log.splitlines()
    assert "line 34, in run" in log[0]
    assert log[1].strip().startswith("sums = torch.emtpy(")
    assert log[-1].startswith("AttributeError: ")


@pytest.mark.thorough
def test_too_much_shared_memory_is_an_error_and_says_how_much(build: Callable[..., TritonBuild]) -> None:
    kernel = (
        KERNEL.replace(", (1 << 17, 4)", "")
        .replace(
            "    values = tl.load(x + r * stride + c, mask=c < n, other=0.0)\n    tl.store(y + r, helper(values))\n",
            "    t = tl.load(x + c[:, None] * stride + c[None, :])\n"
            "    tl.store(y + c[:, None] * n + c[None, :], tl.dot(t, tl.trans(t)))\n",
        )
        .replace("BLOCK=triton.next_power_of_2(y.shape[1]), num_warps=2", "BLOCK=256, num_warps=16")
    )
    made = build(kernel, "sm_86")
    assert made.build.binary is None
    assert "shared memory, Required: 393216, Hardware limit: 101376" in made.build.diagnostics[0].message
    assert made.build.diagnostics[0].line == 35


def test_a_file_whose_name_is_not_ascii_is_to_be_renamed(build: Callable[..., TritonBuild]) -> None:
    """Triton cannot compile it, and shows what ptxas says of a line that nobody wrote."""
    (error,) = build(KERNEL.replace(", (1 << 17, 4)", ""), name="zeilensummen_für_größen.py").build.diagnostics
    assert error.message == (
        "ptxas cannot read the code that Triton makes of this, here or on a GPU. "
        "Rename 'zeilensummen_für_größen.py': its name is not ASCII."
    )
    assert error.line == 33


def test_of_an_error_of_ptxas_its_own_words_are_told() -> None:
    error = (
        "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas /tmp/k.ptx, line 9; error   : Unknown symbol 'a'\nptxas fatal   : Ptx assembly aborted due to errors\n\n"
        "Repro command: /somewhere/ptxas -lineinfo /tmp/k.ptx -o /tmp/k.ptx.o\n"
    )
    assert words_of_ptxas(error, "sums.py") == "ptxas: Unknown symbol 'a'"
    assert words_of_ptxas("PTXAS error: it is not there", "sums.py") == "PTXAS error: it is not there"


def test_the_workloads_own_errors_are_the_workloads(build: Callable[..., TritonBuild], tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        build(workload=WORKLOAD.replace("torch.randn(rows", "torch.randn(row"))
    assert (caught.value.path, caught.value.line) == (tmp_path / "sums_workload.py", 4)


def test_a_workload_that_launches_nothing_is_told_so(build: Callable[..., TritonBuild]) -> None:
    made = build(workload=WORKLOAD.replace("return module.run(x)", "return x"))
    assert "launches no Triton kernel" in made.build.diagnostics[0].message


def test_what_ends_at_import_is_an_error_with_its_fix(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('rows')\nparser.parse_args()\n"
    with pytest.raises(WorkloadError) as raised:
        load_module(text, path)
    said = diagnose(raised.value, SourceFile(path, text))
    assert said is not None
    assert said.line == 4
    assert "SystemExit: 2. It ends here without the arguments of a command line: give them defaults" in said.message


def test_code_for_misaligned_inputs_is_compiled_beside_the_rest(
    build: Callable[..., TritonBuild], tmp_path: Path
) -> None:
    def compiled() -> int:
        return len(list((tmp_path / "triton").glob("*/row_sums.cubin")))

    made = build(KERNEL.replace("row_sums[(y.shape[0],)](y,", "row_sums[(y.shape[0],)](x,"), misaligned=True)
    assert [binary.cubin for binary in made.binaries if "row_sums" in next(iter(binary.entries))] != []
    assert len([name for name in made.build.binary.entries if name.startswith("row_sums")]) == 1  # type: ignore[union-attr]
    assert compiled() == 2, "one for multiples of 16 bytes, one for others"
