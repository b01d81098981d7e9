"""A kernel of a program in C++ becomes a workload by one kept launch: without a GPU, by snapshots written here."""

import asyncio
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from kernel_lsp.capture.adopt import adopted_name, adopted_workload
from kernel_lsp.capture.alone import NoWorkloadError, capture_alone
from kernel_lsp.capture.snapshot import read_snapshot
from kernel_lsp.check import FileReport, check
from kernel_lsp.config.settings import Settings
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER, Capture, capture_text, read_capture

KERNEL = """#include <cstdio>

namespace ops {
template <typename T, int BLOCK>
__global__ void row_sums(const T* x, T* __restrict__ out, int cols, float scale) {
    extern __shared__ unsigned char room[];
    T* partial = reinterpret_cast<T*>(room);
    T sum = 0;
    for (int i = threadIdx.x; i < cols; i += BLOCK) sum += x[blockIdx.x * cols + i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0] * scale;
}
}  // namespace ops

int main() {
    float *x, *out;
    cudaMalloc(&x, 12 * 100 * sizeof(float));
    cudaMalloc(&out, 12 * sizeof(float));
    ops::row_sums<float, 64><<<12, 64, 64 * sizeof(float)>>>(x, out, 100, 0.5f);
    printf("%s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""
SYMBOL = "_ZN3ops8row_sumsIfLi64EEEvPKT_PS1_if"
X, OUT = 0x700000000000, 0x700000100000
ROWS, COLS = 12, 100


def written(
    folder: Path, symbol: str, arguments: list[bytes], memory: dict[int, tuple[bytes, bytes]], grid: int
) -> Path:
    """A snapshot as the recorder writes it; each of its arguments is aligned to its own size."""
    data, places = b"", list[tuple[int, int]]()
    for one in arguments:
        data += b"\0" * (-len(data) % len(one))
        places.append((len(data), len(one)))
        data += one
    made = folder / "1.snapshot"
    made.mkdir(parents=True)
    lines = ["kernel-lsp-launch 1", f"symbol {symbol}", f"grid {grid} 1 1", "block 64 1 1", "shared 256"]
    lines += [f"parameter {offset} {size}" for offset, size in places] + [f"arguments {data.hex()}"]
    for number, (base, (before, after)) in enumerate(memory.items()):
        lines.append(f"memory {base} {len(before)}")
        (made / f"memory-{number}.before").write_bytes(before)
        (made / f"memory-{number}.after").write_bytes(after)
    (made / "launch").write_text("\n".join(lines) + "\n")
    kernel = {"symbol": symbol, "in_graphs": 0, "least_ns": 1, "most_ns": 9, "block": [64, 1, 1]}
    same, others = {"grid": [grid, 1, 1], "launches": 5, "ns": 60}, {"grid": [9, 1, 1], "launches": 2, "ns": 20}
    other = kernel | {"symbol": "gemm", "grid": [1, 1, 1], "launches": 1, "ns": 20}
    record = {
        "why": "",
        "device": "",
        "unfinished": 0,
        "span_ns": 100,
        "snapshot_why": "",
        "kernels": [kernel | same, kernel | others, other],
    }
    (folder / "1.device.json").write_text(json.dumps(record))
    return made


def row_sums(folder: Path, arguments: list[bytes] | None = None) -> Capture:
    """The capture of a launch of `row_sums` on 12 rows of 100."""
    x = np.random.default_rng(0).normal(size=(ROWS, COLS)).astype(np.float32)
    memory = {
        X: (x.tobytes(), x.tobytes()),
        OUT: (b"\0" * 4 * ROWS, (0.5 * x.sum(1)).astype(np.float32).tobytes()),
    }
    given = arguments or [struct.pack("<Q", X), struct.pack("<Q", OUT), struct.pack("<i", COLS), struct.pack("<f", 0.5)]
    return capture_alone(read_snapshot(written(folder, SYMBOL, given, memory, ROWS)), "simulate", folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sums.cu").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(path: Path, text: str) -> FileReport:
    path.write_text(text)
    (report,) = asyncio.run(check([read_source(path)], Settings()))
    return report


def test_a_kept_launch_becomes_a_capture_of_its_kernel(project: Path):
    made = row_sums(project / "records")
    assert (made.kernel, made.function, made.kernels) == (
        str(project / "sums.cu"),
        "ops::row_sums<float, 64>",
        ("ops::row_sums",),
    )
    (case,) = made.cases
    assert {name: one["kind"] for name, one in case.arguments.items()} == {
        "x": "tensor", "out": "tensor", "cols": "int", "scale": "float",
    }  # fmt: skip
    assert case.arguments["x"]["shape"] == [ROWS * COLS]
    assert (case.arguments["cols"]["value"], case.arguments["scale"]["value"]) == (COLS, "0.5")
    assert (case.mutated, case.count, made.calls) == (("out",), 5, 7)
    assert made.dropped == {"with another grid or block": 2}
    assert made.share(made.cases) == pytest.approx(0.6)
    assert read_capture(capture_text(made), project) == made
    assert made.file_name.startswith("sums.ops_row_sums_float_64_.")


def test_check_holds_the_file_to_its_captured_kernel_in_float64(project: Path):
    made = row_sums(project / "records")
    (project / FOLDER).mkdir(parents=True)
    (project / FOLDER / made.file_name).write_text(capture_text(made))
    right = checked(project / "sums.cu", KERNEL)
    assert right.ok, right.diagnostics
    assert any("as right as the captured function, in float64" in one.message for one in right.diagnostics)
    assert not checked(project / "sums.cu", KERNEL.replace("partial[0] * scale", "partial[0] * scale * 1.001f")).ok


def test_an_adopted_kernel_is_launched_as_it_was(project: Path):
    made = row_sums(project / "records")
    text = adopted_workload(made, project).text
    assert adopted_name(made) == "sums_ops_row_sums_float_64__workload.py"
    assert "module['ops::row_sums<float, 64>'][(12, 1, 1), (64, 1, 1), 256](x, out, cols, scale)" in text
    assert "return (out,)" in text
    compile(text, "workload", "exec")


def test_two_pointers_into_one_allocation_part_it_and_the_same_one_twice_is_one_tensor(project: Path):
    both = [struct.pack("<Q", OUT), struct.pack("<Q", OUT), struct.pack("<i", 1), struct.pack("<f", 1)]
    made = row_sums(project / "same", both)
    assert made.cases[0].arguments["out"] == {"kind": "like", "name": "x"}
    inside = [struct.pack("<Q", OUT), struct.pack("<Q", OUT + 16), struct.pack("<i", 1), struct.pack("<f", 1)]
    arguments = row_sums(project / "inside", inside).cases[0].arguments
    assert (arguments["x"]["shape"], arguments["out"]["shape"]) == ([4], [8])


def test_why_there_is_no_workload_is_said(project: Path):
    def why(text: str, symbol: str = "k", argument: bytes = struct.pack("<Q", OUT)) -> str:
        (project / "sums.cu").write_text(text)
        folder = project / f"records-{len(list(project.iterdir()))}"
        memory = {OUT: (b"\0" * 64, b"\0" * 64)}
        with pytest.raises(NoWorkloadError) as raised:
            capture_alone(read_snapshot(written(folder, symbol, [argument], memory, 1)), "simulate", folder)
        return raised.value.message

    kernel = 'extern "C" __global__ void k({}) {{}}\n'
    assert why("int main() {}") == "no .cu file of the working folder defines `k`"
    assert "`v` is a `View`, neither a number nor" in why("struct View { float* x; };\n" + kernel.format("View v"))
    assert "`rows` is a `float" in why(kernel.format("float** rows"))
    assert "other parameters" in why(kernel.format("float* x, int n"))
    assert "points to no memory" in why(kernel.format("float* x"), argument=bytes(8))
    assert why(kernel.format("float* x")) == "the kept launch changed nothing"
    (project / "again.cu").write_text(kernel.format("float* x"))
    assert "`k` is defined more than once: " in why(kernel.format("float* x"))
