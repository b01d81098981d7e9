"""`kernel-lsp capture` of programs with torch extensions: the functions of a CUDA file become workloads."""

import asyncio
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.check import check
from kernel_lsp.compiler.host.compiler import host_compiler
from kernel_lsp.config.settings import Settings
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER

KERNEL = """#include <torch/extension.h>

__global__ void norm_kernel(const float* x, const float* weight, float* y, int cols, float eps) {
    extern __shared__ float partial[];
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i] * row[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    float scale = rsqrtf(partial[0] / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(size_t)blockIdx.x * cols + i] = row[i] * scale * weight[i];
}

static void launch(torch::Tensor x, torch::Tensor weight, torch::Tensor y, float eps) {
    norm_kernel<<<x.size(0), 64, 64 * sizeof(float)>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
                                                       y.data_ptr<float>(), (int)x.size(1), eps);
}

torch::Tensor norm(torch::Tensor x, torch::Tensor weight, double eps) {
    auto y = torch::empty_like(x);
    launch(x, weight, y, (float)eps);
    return y;
}

void norm_(torch::Tensor x, torch::Tensor weight) { launch(x, weight, x, 1e-6f); }
"""
BINDINGS = """#include <torch/extension.h>
torch::Tensor norm(torch::Tensor x, torch::Tensor weight, double eps);
void norm_(torch::Tensor x, torch::Tensor weight);
torch::Tensor twice(torch::Tensor x) { return x + x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &norm, "Root mean square norm", py::arg("x"), py::arg("weight"), py::arg("eps") = 1e-6);
    m.def("norm_", &norm_);
    m.def("twice", &twice);
}
"""
PROGRAM = '''import os
import torch
from torch.utils.cpp_extension import load, load_inline

here = os.path.dirname(os.path.abspath(__file__))
ext = load("norms", sources=[os.path.join(here, "bindings.cpp"), os.path.join(here, "norm.cu")])
torch.manual_seed(0)
weight = torch.randn(100, device="cuda")
for rows in (3, 3, 5):
    y = ext.forward(torch.randn(rows, 100, device="cuda"), weight)
x = torch.randn(4, 70, device="cuda")
before = x.clone()
ext.norm_(x, torch.ones(70, device="cuda"))
assert not torch.equal(x, before)
ext.twice(x)
SOURCE = """
__global__ void half_kernel(float* x) { x[threadIdx.x] /= 2; }
void halved(torch::Tensor x) { half_kernel<<<1, 32>>>(x.data_ptr<float>()); }
"""
halving = load_inline("halving", "void halved(torch::Tensor x);", SOURCE, functions=["halved"])
halving.halved(torch.ones(32, device="cuda"))
print("sum", float(y.sum()))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in (("norm.cu", KERNEL), ("bindings.cpp", BINDINGS), ("train.py", PROGRAM)):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def captured(project: Path) -> Captured:
    return capture_program([sys.executable, str(project / "train.py")], project / FOLDER, emulate="sm_80")


def test_functions_of_the_cuda_file_are_captured_by_the_names_that_it_gives_them(project: Path, captured: Captured):
    assert (captured.code, captured.seen.errors) == (0, ())
    by_name = {capture.function: capture for capture in captured.seen.captures}
    assert sorted(by_name) == ["norm", "norm_"]
    norm, changing = by_name["norm"], by_name["norm_"]
    assert (norm.kernel, norm.kernels, norm.text) == (str(project / "norm.cu"), ("norm_kernel",), KERNEL)
    assert {tuple(case.arguments["x"]["shape"]): case.count for case in norm.cases} == {(3, 100): 2, (5, 100): 1}
    assert norm.cases[0].arguments["eps"] == {"kind": "float", "value": "1e-06"}  # the binding's default
    assert (norm.mutated, norm.cases[0].returned) == ((), 1)
    assert (changing.mutated, changing.cases[0].returned) == (("arg0",), 0)


def test_what_cannot_be_captured_is_counted_with_its_reason(captured: Captured):
    rows = {kernel.name: kernel for kernel in captured.seen.kernels}
    assert (rows["norm"].launches, rows["norm"].function, rows["norm"].line) == (3, "norm", 23)
    assert "no CUDA file defines `twice`" in rows["twice"].why
    assert "bindings.cpp" in rows["twice"].why
    assert "its CUDA text is a string" in rows["halved"].why
    assert Path(rows["halved"].file).name == "train.py"


def test_kernels_of_extensions_run_on_the_emulator_each_at_its_line(project: Path, captured: Captured):
    ran = {kernel.name: kernel for process in captured.emulated for kernel in process.kernels}
    assert (ran["norm_kernel"].file, ran["norm_kernel"].line) == (str(project / "norm.cu"), 3)
    line = 1 + next(n for n, text in enumerate(PROGRAM.splitlines()) if "void half_kernel" in text)
    assert (Path(ran["half_kernel"].file).name, ran["half_kernel"].line) == ("train.py", line)
    assert not any(process.findings or process.not_run for process in captured.emulated)


def test_the_captured_file_is_right_in_float64_and_a_planted_bug_is_not(project: Path, captured: Captured):
    path = project / "norm.cu"

    async def checked(text: str):
        path.write_text(text)
        (report,) = await check([read_source(path)], Settings())
        return report

    right = asyncio.run(checked(KERNEL))
    wrong = asyncio.run(checked(KERNEL.replace("row[i] * scale", "row[i] * 1.001f * scale")))
    path.write_text(KERNEL)
    assert right.ok
    said = [found.message for found in right.diagnostics if "as right as the captured function" in found.message]
    assert len(said) == 2
    assert all("function, in float64" in message for message in said)
    assert not wrong.ok


def test_an_adopted_capture_of_an_extension_passes_arguments_by_position(project: Path, captured: Captured):
    norm = next(one for one in captured.seen.captures if one.function == "norm")
    assert "module.norm(x, weight, eps)" in adopted_workload(norm, project).text


BUILT = """#include <Python.h>
static PyObject* norm(PyObject*, PyObject* given) {
    PyObject *x, *weight;
    double eps;
    if (!PyArg_ParseTuple(given, "OOd", &x, &weight, &eps)) return nullptr;
    return PyObject_CallMethod(x, "mul", "O", weight);
}
static PyMethodDef methods[] = {
    {"norm", norm, METH_VARARGS, "norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor\\n"},
    {"other", norm, METH_VARARGS, "of C++ alone"}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
"""


def test_a_module_that_was_built_before_is_captured_by_the_cuda_file_of_its_project(tmp_path: Path):
    found = host_compiler()
    if found is None:
        pytest.skip("there is no g++")
    package = tmp_path / "norms"
    package.mkdir()
    for path, text in (("setup.py", ""), ("norms/norm.cu", KERNEL), ("norms/_C.cpp", BUILT)):
        (tmp_path / path).write_text(text)
    include = f"-I{sysconfig.get_paths()['include']}"
    command = [str(found[0]), "-shared", "-fPIC", include, str(package / "_C.cpp"), "-o", str(package / "_C.so")]
    subprocess.run(command, check=True)
    (tmp_path / "use.py").write_text(
        "import torch\nfrom norms import _C\n"
        "for rows in (3, 4, 4):\n    _C.norm(torch.randn(rows, 8), torch.randn(8), 1e-6)\n"
        "_C.other(torch.randn(3, 8), torch.randn(8), 1e-6)\n"
    )
    captured = capture_program([sys.executable, str(tmp_path / "use.py")], tmp_path / FOLDER)
    assert captured.seen.errors == ()
    (capture,) = captured.seen.captures
    assert (capture.function, capture.kernel) == ("norm", str(package / "norm.cu"))
    assert sorted(case.count for case in capture.cases) == [1, 2]
    assert [kernel.name for kernel in captured.seen.kernels] == ["norm"]
