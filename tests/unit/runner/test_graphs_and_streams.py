"""Streams, events and CUDA graphs of `launch` itself, where there is no GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.compiler.cuda.build import build_cuda  # noqa: E402
from kernel_lsp.compiler.cuda.planner import plan_cuda  # noqa: E402
from kernel_lsp.compiler.fakes.gpu import fake_gpu  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.errors import CannotJudgeError, WorkloadError  # noqa: E402
from kernel_lsp.runner.workers.allocations import WatchedAllocations  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.source.candidate import SourceFile  # noqa: E402
from kernel_lsp.workload.workload import Workload  # noqa: E402

PATH = Path("/home/me/kernel.cu")
TEXT = """
extern "C" __global__ void triple(const float* x, float* y, int from, int to) {
    int i = from + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < to) y[i] = 3 * x[i];
}
extern "C" __global__ void add_one(float* total) { total[0] += 1; }
"""
N = 1000


@pytest.fixture(scope="module")
def gpu():
    built = build_cuda(SourceFile(PATH, TEXT), "sm_80")
    assert built.binary is not None, built.log
    emulator = Emulator(device_named("sm_80"))
    return emulator, emulator.module(built.binary, {}, {})


def call(gpu, launch, x):
    """What a launch returns, as a worker runs it; nothing may be found."""
    emulator, module = gpu
    emulator.begin(["x"], [x])
    with torch.no_grad(), emulator.placement(), WatchedAllocations(emulator):
        y = launch(module, x)
    assert emulator.end()["findings"] == ()
    return y


def test_a_graph_of_ones_own_is_replayed_on_its_own_memory(gpu):
    kept = {}

    def launch(module, x):
        assert not torch.cuda.is_current_stream_capturing()
        if not kept:
            given, made, graph = torch.zeros_like(x), torch.zeros_like(x), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                assert torch.cuda.is_current_stream_capturing()
                module.triple[8, 128](given, made, 0, N)
                shifted = made + 1
                halved = shifted.view(10, 100).mul(0.5)
                made.add_(halved.view(-1))
            kept["all"] = given, made, graph
        given, made, graph = kept["all"]
        given.copy_(x)
        graph.replay()
        return made.clone()

    for seed in range(3):
        x = torch.randn(N, generator=torch.Generator().manual_seed(seed))
        assert torch.allclose(call(gpu, launch, x), 3 * x + (3 * x + 1) / 2)


def test_what_is_captured_is_not_done_until_it_is_replayed(gpu):
    def launch(module, x):
        total, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
        graph.capture_begin()
        module.add_one[1, 1](total)
        total.add_(10)
        graph.capture_end()
        before = total.clone()
        graph.replay()
        graph.replay()
        return torch.cat((before, total))

    assert call(gpu, launch, torch.zeros(1)).tolist() == [0, 22]


def test_the_host_does_not_read_what_is_being_captured(gpu):
    def launch(module, x):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            return x.sum().item()

    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        call(gpu, launch, torch.zeros(4))
    assert call(gpu, lambda module, x: x + 1, torch.zeros(1)).tolist() == [1]  # nothing is captured any more


def test_two_streams_that_wait_for_each_other(gpu):
    def launch(module, x):
        y, half = torch.empty_like(x), N // 2
        here, side, ready = torch.cuda.current_stream(), torch.cuda.Stream(priority=-1), torch.cuda.Event()
        assert here == torch.cuda.default_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() is side
            assert side.cuda_stream != here.cuda_stream
            module.triple[4, 128](x, y, 0, half)
            ready.record()
        module.triple[4, 128](x, y, half, N)
        here.wait_event(ready)
        y.record_stream(side)
        here.synchronize()
        assert torch.cuda.current_stream() is here
        return y

    x = torch.randn(N)
    assert torch.equal(call(gpu, launch, x), 3 * x)


def test_events_tell_time(gpu):
    def launch(module, x):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        module.triple[8, 128](x, torch.empty_like(x), 0, N)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    assert 0 < call(gpu, launch, torch.zeros(N)) < 60_000


def test_graphed_callables_are_what_they_were(gpu):
    made = call(gpu, lambda _, x: torch.cuda.make_graphed_callables(torch.relu, (x,))(x), torch.tensor([-1.0, 1.0]))
    assert made.tolist() == [0, 1]


def planned(launch):
    inputs = lambda: (torch.zeros(N, device="cuda"),)  # noqa: E731
    workload = Workload(Path("/home/me/w.py"), ({},), inputs, lambda x: x, launch, ("x",))
    return plan_cuda(workload, ["triple", "add_one"], device_named("sm_80"))


def test_launches_within_a_graph_are_planned():
    def launch(module, x):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module.triple[8, 128](x, x, 0, N)
        graph.replay()

    assert planned(launch).names == ("triple",)


def test_what_is_not_faked_needs_a_gpu():
    with pytest.raises(CannotJudgeError, match=r"`raw_cuda_graph` of `torch\.cuda`'s Graph is not emulated"):
        planned(lambda module, x: torch.cuda.CUDAGraph().raw_cuda_graph())
    with pytest.raises(WorkloadError, match="AttributeError"):
        planned(lambda module, x: module.triple[8, 128](x.no_such_attribute))


@pytest.mark.thorough
def test_dynamo_can_be_imported_where_a_gpu_is_faked():
    code = """
import torch
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.device.device import device_named
with fake_gpu(device_named("sm_90")):
    import torch._dynamo
    from torch._dynamo import trace_rules
    trace_rules.lookup(torch.relu)
    trace_rules.get_torch_obj_rule_map()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_place_in_torch_shares_a_function_with_another():
    with fake_gpu(device_named("sm_90")):
        places = [
            value for value in vars(torch.cuda).values() if getattr(value, "__module__", "").startswith("kernel_lsp")
        ]
    assert len(places) > 30
    assert len(set(map(id, places))) == len(places)
