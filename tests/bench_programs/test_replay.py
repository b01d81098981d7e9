"""Launches that are repeated on a GPU: those of KernelBench's files too, with all memory that their addresses reach."""

from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("cuda.bindings.nvrtc")

from kernel_lsp.compiler.fakes.driver import fake_driver  # noqa: E402
from kernel_lsp.compiler.host.compiler import host_compiler  # noqa: E402
from kernel_lsp.emulate.tensormap import decode  # noqa: E402
from kernel_lsp.source.files import read_source  # noqa: E402
from kernel_lsp.workload.placement import Instead  # noqa: E402
from tests.bench import replay  # noqa: E402
from tests.bench.replay import EXAMPLES, Subject, each_example, load_subject  # noqa: E402

needs_gcc = pytest.mark.skipif(host_compiler() is None, reason="no g++")


@pytest.mark.parametrize(
    ("name", "kernel", "pointers"),
    [
        pytest.param("bias_gelu_cuda.py", "bias_gelu", 3, marks=needs_gcc),
        pytest.param("mean_square_cuda.py", "mean_square", 3, marks=needs_gcc),
        ("row_softmax_triton.py", "softmax_rows", 2),
    ],
)
def test_an_answers_launch_comes_with_the_memory_it_reaches(
    name: str, kernel: str, pointers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    subject = load_subject(EXAMPLES / "kernelbench" / name, "sm_90")
    case = len(subject.workload.cases) - 1
    (step,) = subject.steps(case)
    assert step.launch.name == kernel
    assert ".target sm_90" in step.launch.ptx
    starts = [int.from_bytes(data, "little") for data in step.launch.packed if len(data) == 8][:pointers]
    held = [[m.address <= start < m.address + m.data.nbytes for m in step.before] for start in starts]
    assert [sum(row) for row in held] == [1] * pointers
    assert [(a.data != b.data).any() for a, b in zip(step.before, step.after, strict=True)] == [False] * (
        pointers - 1
    ) + [True]
    with Instead(), torch.no_grad():
        (expected,) = subject.workload.reference_on(subject.workload.cases[case])(*subject.inputs(case))
    out = step.after[-1]
    begin = starts[-1] - out.address
    got = torch.from_numpy(out.data[begin : begin + expected.nbytes].copy()).view(torch.float32)
    torch.testing.assert_close(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_an_example_that_cannot_be_replayed_is_listed_and_the_rest_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    alone = tmp_path / "alone.cu"
    alone.write_text('extern "C" __global__ void k(float* x) { x[0] = 1.0f; }\n')
    good = EXAMPLES / "cuda" / "saxpy.cu"
    monkeypatch.setattr(replay, "EXAMPLES", Path("/"))
    monkeypatch.setattr(replay, "find_kernel_files", lambda _: [read_source(alone), read_source(good)])
    taken: list[str] = []

    def take(name: str, subject: Subject) -> None:
        taken.append(subject.path.name)

    lacking = each_example(take)
    assert taken == ["saxpy.cu"]
    assert lacking == {str(alone.relative_to("/")): f"AssertionError: {alone} has no workload"}


def test_tensor_maps_come_with_their_tensors_and_are_made_anew(monkeypatch: pytest.MonkeyPatch):
    from cuda.bindings import driver

    from tests.bench import driver_maps

    subject = load_subject(EXAMPLES / "cuda" / "wgmma_gemm.cu", "sm_90")
    (step,) = subject.steps(0)
    assert ".target sm_90a" in step.launch.ptx
    assert [memory.name for memory in step.before] == ["a", "b", "scratch"]
    assert [(a.data != b.data).any() for a, b in zip(step.before, step.after, strict=True)] == [False, False, True]
    places = [SimpleNamespace(pointer=number << 20) for number in (1, 2, 3)]
    with fake_driver():
        monkeypatch.setattr(driver_maps.cu, "cuTensorMapEncodeTiled", driver.cuTensorMapEncodeTiled)
        moved = [replay._moved(data, step.before, places) for data in step.launch.packed]
    assert [decode(data).address >> 20 for data in moved[:3]] == [1, 2, 3]
    assert [decode(data).box for data in moved[:3]] == [decode(data).box for data in step.launch.packed[:3]]
    assert moved[3:] == list(step.launch.packed[3:])


@pytest.mark.parametrize("name", ["cuda/triad.cu", "gluon/matmul.py", "triton/rmsnorm_training.py"])
def test_examples_that_need_a_later_architecture_or_gradients_are_replayed(name: str):
    subject = load_subject(EXAMPLES / name, "sm_90")
    steps = subject.steps(0)
    assert steps
    assert all(".target sm_90" in step.launch.ptx and step.outcome.result.findings == () for step in steps)
