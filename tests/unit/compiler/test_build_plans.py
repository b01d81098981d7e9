"""Launches of CUDA workloads as planned without a GPU."""

import resource
from pathlib import Path

import pytest
import torch

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.compiler.cuda.planner import CudaPlan, plan_cuda
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import workload_of

PATH = Path("/home/me/scale_workload.py")
HEAD = """import torch
CASES = [dict(n=1000), dict(n=1 << 30)]
def inputs(n):
    return torch.randn(n, device="cuda"), 3
def reference(x, k):
    return x * k
"""


def plan(
    launch: str, head: str = HEAD, kernels: tuple[str, ...] = ("ops::scale", "fill"), gpu: str = "sm_90"
) -> CudaPlan:
    return plan_cuda(workload_of(load_module(head + launch, PATH), PATH), kernels, device_named(gpu))


def test_each_case_has_its_launches_in_order() -> None:
    found = plan("""
def launch(module, x, k):
    y = torch.empty_like(x)
    module.fill[1, 32](y)
    module["ops::scale<float, 256>"][(x.numel() + 255) // 256, (256, 2), 4096](x, y, k)
    module.scale[(2, 3), 64](x)
    return y
""")
    assert [p.case for p in found.plans] == [0, 1]
    assert found.plans[0].launches == (
        Launch("fill", (1, 1, 1), (32, 1, 1)),
        Launch("ops::scale<float, 256>", (4, 1, 1), (256, 2, 1), 4096),
        Launch("scale", (2, 3, 1), (64, 1, 1)),
    )
    assert found.plans[1].launches[1].grid == (1 << 22, 1, 1)
    assert found.names == ("fill", "ops::scale<float, 256>", "scale")
    assert not found.needs_extension


def test_a_host_function_asks_for_an_extension() -> None:
    found = plan("def launch(module, x, k):\n    return module.run(x)\n")
    assert found == CudaPlan((), ("run",))
    assert found.needs_extension


@pytest.mark.parametrize(
    ("launch", "line", "words"),
    [
        ("    module.fill(x)", 8, "`fill` is a kernel: call it as `module.fill[grid, block](...)`"),
        ("    module.fill[4](x)", 8, "launch `fill` as `module.fill[grid, block](...)`"),
        ("    module.fill[0, 32](x)", 8, "no extent below one"),
        ("    module.fill[(1, 1, 1, 1), 32](x)", 8, "one to three extents"),
        ("    module.fill[100 / 32, 32](x)", 8, "is launched with 3.125, which is no whole number. Round up"),
        ("    module['nothing<3>'][1, 32](x)", 8, "kernel `nothing<3>` that the file does not have (it has `fill`, "),
        ("    module.fill[1, 32](y)", 8, "name 'y' is not defined"),
        ("    pass", 7, "`launch` launches no kernel"),
    ],
)
def test_what_is_wrong_with_a_launch_is_said(launch: str, line: int | None, words: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        plan(f"def launch(module, x, k):\n{launch}\n")
    assert words in str(caught.value)
    assert caught.value.path == PATH
    assert caught.value.line == line


def test_no_launch_is_an_error_with_a_fix() -> None:
    with pytest.raises(WorkloadError, match="has no `launch`") as caught:
        plan("")
    assert "module.kernel[grid, block]" in str(caught.value.fix)


def test_code_for_the_gpu_runs_as_if_there_were_one() -> None:
    with fake_gpu(device_named("sm_90a")):
        generator = torch.Generator(device="cuda").manual_seed(3)
        x = torch.randn(4, 5, device="cuda", generator=generator, dtype=torch.float16)
        assert (x.is_cuda, x.device, x.get_device()) == (True, torch.device("cuda", 0), 0)
        assert x.dtype is torch.float16
        assert x.cuda() is x
        y = torch.empty(3, device=x.device).to("cuda").to(device="cuda:0")
        assert y.shape == (3,)
        assert torch.randint(0, 9, (7,), device="cuda").dtype is torch.int64
        assert torch.randint(9, (7,), dtype=torch.int32, device="cuda").dtype is torch.int32
        assert torch.randint(low=2, high=9, size=(7, 2), device="cuda").shape == (7, 2)
        assert torch.normal(0.0, 1.0, (2, 3), device="cuda").shape == (2, 3)
        assert torch.randn_like(x).shape == x.shape
        assert torch.rand((2, 3), device="cuda").shape == (2, 3)
        assert torch.randperm(5, device="cuda").tolist() == [0, 1, 2, 3, 4]
        assert torch.empty(4, device="cuda").uniform_().shape == (4,)
        assert torch.tensor([1, 2], device="cuda").sum().item() == 3
        with torch.cuda.device(0):
            torch.cuda.synchronize()
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert not torch.empty(1).is_cuda
    assert torch.cuda.is_available.__module__ == "torch.cuda"


def test_recurrent_layers_keep_their_weights_as_they_are(monkeypatch) -> None:
    def arrange(*_: object) -> bool:
        raise AssertionError("asks cuDNN, which asks for a GPU")

    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", arrange)
    with fake_gpu(device_named("sm_90")), torch.device("cuda"):
        states, _ = torch.nn.LSTM(3, 5, 2)(torch.zeros(7, 2, 3))
    assert states.shape == (7, 2, 5)
    with pytest.raises(AssertionError):
        torch.backends.cudnn.is_acceptable(states)


def test_large_inputs_take_no_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    with fake_gpu(device_named("sm_80")):
        before = resident()
        x = torch.randn(1 << 18, 1 << 18, device="cuda", dtype=torch.bfloat16)
        y = torch.zeros_like(x.t())
        assert (x.numel(), x[-1, -1].item(), x.is_contiguous()) == (1 << 36, 0, True)
        assert (y.shape, y.stride(), y.dtype) == ((1 << 18, 1 << 18), (1, 1 << 18), torch.bfloat16)
        assert resident() - before < 100 << 20


def test_zeros_can_be_written_and_differentiated() -> None:
    with fake_gpu(device_named("sm_80")):
        x = torch.randn(1 << 20, device="cuda", requires_grad=True)
        (x * 2).sum().backward()
        y = torch.zeros(1 << 20, device="cuda")
        y[5] = 3
        assert (x.grad is not None, y.sum().item(), y.data_ptr() % 16) == (True, 3, 0)
        large = torch.randn(1 << 23, device="cuda", requires_grad=True)
        (2 * large).sum().backward()
        assert large.grad is not None


def test_nobody_waits_for_the_values_of_large_random_inputs() -> None:
    with fake_gpu(device_named("sm_90")):
        large, small = torch.randn(1 << 23, device="cuda"), torch.randn(8, device="cuda")
        shifted = 2 * (large - 200.0) / 3
        assert shifted.shape == large.shape
        assert shifted.is_cuda
        assert not shifted[:: 1 << 20].any()
        assert (small - 200.0 == -200.0).all()
        assert (large.long() + 1)[0] == 1


@pytest.mark.parametrize(("gpu", "multiprocessors", "threads"), [("A100", 108, 2048), ("RTX 4090", 128, 1536)])
def test_a_persistent_grid_is_that_of_the_gpu_that_is_pretended(gpu: str, multiprocessors: int, threads: int) -> None:
    launch = """
def launch(module, x, k):
    has = torch.cuda.get_device_properties(0)
    module.fill[has.multi_processor_count, has.max_threads_per_multi_processor // 8](x)
    return x
"""
    (first, *_) = plan(launch, gpu=gpu).plans
    assert (first.launches[0].grid[0], first.launches[0].block[0]) == (multiprocessors, threads // 8)
