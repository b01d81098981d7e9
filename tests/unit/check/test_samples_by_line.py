"""ncu's table becomes samples by line, and a profile shows them, or prices, beside the emulator's counts."""

import base64
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from kernel_lsp.check import ncu
from kernel_lsp.check.gpu_lines import GpuLines
from kernel_lsp.check.ncu import SampledInstruction, read_samples, top_reason, why_nothing
from kernel_lsp.check.priced import KernelPrices, LinePrice
from kernel_lsp.check.profile import profile_of
from kernel_lsp.check.record import FileReport
from kernel_lsp.check.sampled import KernelSamples, samples_by_line
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.machine_code.sass import disassemble
from kernel_lsp.device.device import device_named
from kernel_lsp.report.profile import profile_view
from kernel_lsp.runner.workers.replay import RecordedLaunches
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language

SAID = (Path(__file__).parents[2] / "fixtures" / "ncu_source_page.csv").read_text()  # of a softmax on an H200
TEXT = """namespace ops {

template <int N>
__global__ void scale(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) y[i] = 2.0f * x[i];
}

template __global__ void scale<1000>(const float*, float*);

}
"""


def test_the_table_of_a_launch_is_read_by_instruction() -> None:
    (launch,) = read_samples(SAID)
    assert [one.offset for one in launch] == [0x0, 0x10, 0x20, 0x30, 0x7F0, 0x940, 0x1550, 0x1D90]
    assert launch[4].stalls == {"dispatch": 1, "long_sb": 101, "not_selected": 2, "selected": 1}
    assert sum(launch[0].stalls.values()) == 28


def test_launches_follow_each_other() -> None:
    table = SAID.partition('"Kernel Name"')[2]
    first, second = read_samples(f'{SAID}"Kernel Name"{table}')
    assert first == second != ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", ncu.REFUSED),
        ("==PROF== Connected\n==ERROR== No kernels were profiled.\n", "ncu says: No kernels were profiled."),
        ("libcuda.so.1: cannot open\n", "ncu says: libcuda.so.1: cannot open"),
        ("", "ncu has said nothing"),
    ],
)
def test_it_is_said_why_there_are_no_samples(said: str, why: str) -> None:
    assert read_samples(said) == ()
    assert why_nothing(said) == why


def test_who_issues_does_not_wait() -> None:
    assert top_reason(Counter(selected=50, not_selected=40, long_sb=7, wait=3)) == ("global or local memory", 7)
    assert top_reason(Counter(selected=5)) == ("", 0)
    assert top_reason(Counter(a_new_reason=2)) == ("a new reason", 2)


@pytest.mark.parametrize(("said", "capabilities", "may"), [(0, 0, True), (1, 0, False), (1, 1 << 21, True)])
def test_counters_may_be_for_administrators_alone(
    said: int, capabilities: int, may: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {said}\n")
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
    monkeypatch.setattr(ncu, "_PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(ncu, "_STATUS", tmp_path / "status")
    assert ncu.may_read_counters() is may


def test_samples_are_those_of_the_line_that_the_code_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    binary = build_cuda(SourceFile(path, TEXT), "sm_90").binary
    assert binary is not None
    (code,) = disassemble(binary.cubin)
    (facts,) = read_cubin(binary.cubin)
    launch = {"image": 0, "entry": facts.entry}
    content = {"images": [base64.b64encode(binary.cubin).decode()], "data": [], "launches": [launch] * 2}
    sampled = [SampledInstruction(one.offset, {"wait": 1}) for one in code.instructions]
    (kernel,) = samples_by_line(cast("RecordedLaunches", content), [sampled, sampled], path)
    assert (kernel.kernel, kernel.launches) == ("ops::scale", 2)
    by_line = Counter(one.line_in(str(path)) for one in code.instructions)
    assert kernel.lines[str(path), 6] == Counter(wait=2 * by_line[6])
    assert sum(one.total() for one in kernel.lines.values()) == 2 * len(code.instructions)


def shown(path: Path, told: GpuLines) -> list[str]:
    console = Console(width=110)
    with console.capture() as capture:
        console.print(
            profile_view(profile_of(FileReport(path, Language.CUDA, "sm_90", ()), TEXT, device_named("H200"), told))
        )
    return capture.get().splitlines()


def test_samples_are_shown_with_what_most_of_them_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    lines = {
        (str(path), 5): Counter(selected=4, wait=16),
        (str(path), 6): Counter(long_sb=70, selected=8),
        ("", 0): Counter(drain=2),
    }
    rows = shown(path, GpuLines("NVIDIA H200", "n=1000", (KernelSamples("ops::scale", 1, lines),)))
    assert rows[0].rstrip() == "ops::scale  100 samples"
    assert rows[1].split() == ["Line", "Samples", "Waits", "for", "Code"]
    assert rows[2].split()[:3] == ["5", "20", "%"]
    assert "the fixed latency of an instruction, 80 %" in rows[2]
    assert rows[3].split()[:3] == ["6", "78", "%"]
    assert "global or local memory, 90 %" in rows[3]
    assert "y[i] = 2.0f * x[i];" in rows[3]
    assert rows[4].split() == ["2", "%", "(1", "other", "lines)"]
    assert any("Samples: where ncu found warps on NVIDIA H200" in row for row in rows)


def test_prices_are_those_of_the_dearest_work_of_a_line(tmp_path: Path) -> None:
    prices = (LinePrice(6, "stores", 0.31), LinePrice(6, "loads", 0.42), LinePrice(5, "loop", -0.01))
    told = GpuLines("NVIDIA H200", "n=1000", (), ncu.REFUSED, (KernelPrices("ops::scale", 12.5, prices),))
    rows = shown(tmp_path / "scale.cu", told)
    assert rows[0].split() == ["ops::scale", "12.5", "µs"]
    assert rows[1].split() == ["Line", "Price", "Without", "its", "Code"]
    assert rows[2].split()[:4] == ["6", "42", "%", "loads"]
    assert "do not add up." in " ".join(rows)


def test_it_is_shown_why_nothing_was_sampled(tmp_path: Path) -> None:
    rows = shown(tmp_path / "scale.cu", GpuLines(not_sampled=ncu.REFUSED))
    assert any(row.startswith("Not sampled on the GPU: the driver lets administrators alone") for row in rows)


def test_a_report_without_samples_has_none(tmp_path: Path) -> None:
    found = profile_of(FileReport(tmp_path / "scale.cu", Language.CUDA, "sm_90", ()), TEXT, device_named("H200"))
    assert (found.device, found.not_sampled, found.not_priced, found.kernels) == ("", "", "", ())


def test_one_line_is_one_row_also_if_the_file_was_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("scale.cu")
    Path(path).write_text(TEXT)
    seen = {(str(path.absolute()), 6): Counter(wait=5)}  # as the compiler names it
    prices = KernelPrices("ops::scale", 3.0, (LinePrice(6, "loads", 0.5),))
    told = GpuLines("NVIDIA H200", "n=1000", (KernelSamples("ops::scale", 1, seen),), "", (prices,))
    (kernel,) = profile_of(FileReport(path, Language.CUDA, "sm_90", ()), TEXT, device_named("H200"), told).kernels
    (line,) = kernel.lines
    assert (line.samples, line.price, line.text) == (5, 0.5, "if (i < N) y[i] = 2.0f * x[i];")
