"""Answers of models taken over into the user's files: edits, whole functions, and the kernels of a `ModelNew`."""

from pathlib import Path

import pytest

from kernel_lsp.judge.target import make_target
from kernel_lsp.model.profile import find_profile
from kernel_lsp.refine.dialogue.answer import RejectedAnswer, read_answer
from kernel_lsp.refine.dialogue.architecture import as_architecture
from kernel_lsp.refine.dialogue.edits import Editable, apply_answer
from kernel_lsp.refine.dialogue.host_code import host_function
from kernel_lsp.refine.dialogue.kernelbench import check_model_new
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import make_task
from kernel_lsp.refine.dialogue.translation import CandidateTexts, into_cuda, into_triton
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from tests.bench.model_refine import LEARNED

EXAMPLES = Path(__file__).parents[3] / "examples"
HOST = """
template <int B> __global__ void rms(const float* x, float* y, int cols, float eps) {}
torch::Tensor run(torch::Tensor x, const torch::Tensor& w, double eps = 1e-6) {
  TORCH_CHECK(x.is_cuda(), "x must be CUDA");
  x = x.contiguous();
  auto y = torch::empty_like(x);
  auto counts = torch::zeros({x.size(0), 4}, x.options().dtype(torch::kInt32));
  const int rows = x.size(0), cols = x.size(1);
  int64_t n = x.numel();
  constexpr int threads = 256;
  const dim3 block(threads);
  dim3 grid(rows, (n + threads - 1) / threads);
  size_t shared = threads * sizeof(float);
  float mean = 1.0f / cols;
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  if (cols % 4 == 0) {
    rms<256><<<grid, block, shared, stream>>>(x.data_ptr<float>(), reinterpret_cast<float4*>(y.data_ptr<float>()), cols,
                                              eps);
  } else {
    rms<128><<<rows, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(cols), mean);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
PYTHON = """def run(x, w, eps=1e-6):
    x = x.contiguous()
    y = torch.empty_like(x)
    counts = torch.zeros((x.shape[0], 4,), dtype=torch.int32, device=x.device)
    rows = x.shape[0]
    cols = x.shape[1]
    n = x.numel()
    threads = 256
    block = (threads, 1, 1)
    grid = (rows, (n + threads - 1) // threads, 1)
    shared = threads * 4
    mean = 1.0 / cols
    if cols % 4 == 0:
        module["rms<256>"][grid, block, shared](x, y, cols, eps)
    else:
        module["rms<128>"][(rows,), (threads,)](x, y, int(cols), mean)
    return y"""


def test_host_code_is_said_in_python_statement_by_statement():
    assert host_function(HOST, "run") == PYTHON


@pytest.mark.parametrize(
    "statement",
    [
        "for (int i = 0; i < 4; ++i) { step<<<1, 32>>>(i); }",
        "auto z = at::matmul(x, x);",
        "cudaMemcpy(a, b, 4, cudaMemcpyDefault);",
        "std::vector<int> sizes{1, 2};",
        "x.copy_(y);",
    ],
)
def test_host_code_beyond_that_is_refused_by_name(statement):
    with pytest.raises(RejectedAnswer, match="cannot be taken over"):
        host_function(f"torch::Tensor run(torch::Tensor x, torch::Tensor y) {{ {statement} return x; }}", "run")


def answer(device: str, host: str, forward: str, parameters: str = "x, weight") -> str:
    return f'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda = """
#include <torch/extension.h>
#include <cuda_runtime.h>
{device}
{host}
"""
built = load_inline(name="built", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=cuda,
                    functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.built = built

    def forward(self, {parameters}):
        {forward}
'''


RMS_DEVICE = """
constexpr int MAX_THREADS = 512;
__device__ float squared(float v) { return v * v; }
__global__ void rms_rows(const float* x, const float* w, float* y, int cols) { y[0] = squared(x[0]) * w[0]; }
"""
RMS_HOST = """
torch::Tensor run(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  rms_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""


def rmsnorm() -> tuple[CandidateTexts, Path]:
    path = EXAMPLES / "cuda" / "rmsnorm.cu"
    return CandidateTexts(path.read_text(), path.with_name("rmsnorm_workload.py").read_text()), path


def test_a_model_new_becomes_kernel_and_launch():
    files, path = rmsnorm()
    code = answer(RMS_DEVICE, RMS_HOST, "return self.built.run(x.contiguous(), weight)")
    made = into_cuda(check_model_new(code, "cuda"), code, files, path)
    assert [k.name for k in find_kernels(made.kernel, path)] == ["rms_rows"]
    assert made.kernel.count("MAX_THREADS") == 1, "the file's own constant of that name gives way"
    assert "torch" not in made.kernel
    assert made.kernel.startswith("// RMSNorm over the rows"), "what the author wrote above stays"
    assert made.launch is not None
    assert "module.rms_rows[(x.shape[0],), (256,)](x, w, y, x.shape[1])" in made.launch
    assert "return run(x.contiguous(), weight)" in made.launch
    assert made.launch.count("def launch(module, x, weight):") == 1
    compile(made.launch, "launch", "exec")
    before = files.launch.split("def launch")[0]
    assert made.launch.startswith(before), "cases, inputs and reference stay the user's"


def test_kernels_in_a_namespace_are_replaced_outside_of_it():
    path = EXAMPLES / "cuda" / "softmax.cu"
    files = CandidateTexts(path.read_text(), path.with_name("softmax_workload.py").read_text())
    device = "__global__ void soft(const float* x, float* y, int cols) { y[0] = x[0]; }"
    host = """torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  soft<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}"""
    code = answer(device, host, "return built.run(x)", "x")
    made = into_cuda(check_model_new(code, "cuda"), code, files, path)
    assert [k.name for k in find_kernels(made.kernel, path)] == ["soft"]
    assert made.launch is not None
    assert "module.soft[" in made.launch


@pytest.mark.parametrize(
    ("device", "forward", "words"),
    [
        (RMS_DEVICE, "return self.built.run(x, self.weight)", "uses attributes of `self`"),
        (RMS_DEVICE, "return x * weight", "calls no function of the CUDA source"),
    ],
)
def test_what_cannot_be_taken_over_is_said(device, forward, words):
    files, path = rmsnorm()
    code = answer(device, RMS_HOST, forward)
    with pytest.raises(RejectedAnswer, match=words):
        into_cuda(check_model_new(code, "cuda"), code, files, path)


@pytest.mark.parametrize(
    ("host", "forward", "words"),
    [
        (RMS_HOST.replace("256>>>", f"256{'+1' * 3000}>>>"), "return self.built.run(x, weight)", "nested too deep"),
        (RMS_HOST.replace("256>>>", "sizes[]>>>"), "return self.built.run(x, weight)", "`run` cannot be parsed"),
        (RMS_HOST, f"return self.built.run(x, weight{'+1' * 400})", "nested too deep"),
        (RMS_HOST.replace("run(", "run)("), "return built.run(x, weight)", "calls no function"),
    ],
)
def test_answers_that_no_translator_can_walk_are_refused(host, forward, words):
    files, path = rmsnorm()
    code = answer(RMS_DEVICE, host, forward)
    with pytest.raises(RejectedAnswer, match=words):
        into_cuda(check_model_new(code, "cuda"), code, files, path)


TRITON = '''
import torch
import torch.nn as nn
import triton
import triton.language as tl

ROWS = 4


@triton.jit
def fast_softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a):
        """Docstring."""
        out = torch.empty_like(a)
        fast_softmax[(a.shape[0],)](a, out, a.shape[1], BLOCK=1024)
        return out
'''


def test_a_triton_model_new_becomes_the_wrappers_body():
    path = EXAMPLES / "triton" / "softmax.py"
    made = into_triton(check_model_new(TRITON, "triton"), TRITON, CandidateTexts(path.read_text(), None), "softmax")
    compile(made.kernel, "kernel", "exec")
    assert {k.name for k in find_kernels(made.kernel, path)} >= {"fast_softmax"}
    wrapper = made.kernel.split("def softmax(x):")[1].split("CASES =")[0]
    assert "a = x" in wrapper
    assert "fast_softmax[a.shape[0],](a, out, a.shape[1], BLOCK=1024)" in wrapper
    assert "ModelNew" not in made.kernel
    assert made.kernel.index("ROWS = 4") < made.kernel.index("def softmax(x):")


def test_the_reference_is_shown_as_a_model():
    path = EXAMPLES / "cuda" / "rmsnorm_workload.py"
    shown = as_architecture(SourceFile(path, path.read_text()))
    space: dict[str, object] = {}
    exec(
        compile(shown.replace('device="cuda"', 'device="cpu"').replace("8192, cols=4096", "3, cols=8"), "m", "exec"),
        space,
    )
    made = space["get_inputs"]()  # type: ignore[operator]
    assert space["Model"]()(*made).shape == (3, 8)  # type: ignore[operator]
    assert "launch" not in shown
    assert "CASES" not in shown


KERNEL = """constexpr int BLOCK = 256;

__device__ float square(float v) { return v * v; }

__global__ void work(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = square(x[i]);
}

__global__ void other(float* x) { x[0] = 1; }
"""


def editable() -> list[Editable]:
    return [Editable("work.cu", KERNEL, Language.CUDA, frozenset({"work", "square"}))]


def block(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def test_blocks_and_whole_functions_are_applied():
    (text,) = apply_answer(block("constexpr int BLOCK = 256;", "constexpr int BLOCK = 128;"), editable())
    assert text == KERNEL.replace("256", "128")
    (text,) = apply_answer("__device__ float square(float v) {\n    return v * v + 0;\n}", editable())
    assert text == KERNEL.replace("{ return v * v; }", "{\n    return v * v + 0;\n}")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (block("int j = 0;", "int j = 1;"), "is not found"),
        (block("__global__ void", "__global__  void").replace("void\n=", "void\n="), "is not found|more than once"),
        (
            block("__global__ void other(float* x) { x[0] = 1; }", "__global__ void other(float* x) { }"),
            "not yours to change",
        ),
        (block("", "int j;"), "searches for nothing"),
        ("<<<<<<< SEARCH\nint\n=======\nlong\n", "not complete"),
        ("int unrelated = 1;", "neither search/replace blocks nor one of the functions"),
        (block("constexpr int BLOCK = 256;", "constexpr int BLOCK = 256;"), "changes nothing"),
        ("__global__ void work(float* x, int n) {}\n__device__ int fresh() { return 1; }", "`fresh` is new"),
    ],
)
def test_edits_that_do_not_fit_are_refused_with_the_reason(code, words):
    with pytest.raises(RejectedAnswer, match=words):
        apply_answer(code, editable())


@pytest.mark.parametrize("example", LEARNED, ids=lambda e: e.path)
def test_answers_to_our_own_examples_become_files(example):
    """Kernels of the same name give way, whatever stands around them."""
    target = make_target(EXAMPLES / example.path)
    task = make_task(target, find_profile("kevin-32b"), Prompts("kernelbench-cuda"))
    for text in example.answers():
        candidate = task.candidate(read_answer(text))
        assert [k.name for k in find_kernels(candidate.kernel.text, candidate.kernel.path)] == [
            example.kernel.split("(")[0].split()[-1]
        ]
        assert "launch" in candidate.launch.text
