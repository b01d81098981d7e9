"""Launches in a worker without a GPU: what they are given, what they may touch, and how memory is called."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.compiler.cuda.build import build_cuda  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.errors import CannotJudgeError, WorkloadError  # noqa: E402
from kernel_lsp.runner.workers.allocations import WatchedAllocations  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.source.candidate import SourceFile  # noqa: E402
from kernel_lsp.source.files import find_kernels  # noqa: E402

PATH = Path("/home/me/kernel.cu")
ADD = """
extern "C" __global__ void add(const float* x, float* total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) total[i] += x[i];
}
extern "C" __global__ void copy(const float* from, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}
extern "C" __global__ void gather(const float* const* rows, float* to, int n) {
    to[threadIdx.x] = rows[threadIdx.x][n - 1];
}
"""
N = 100


@pytest.fixture(scope="module")
def binary():
    built = build_cuda(SourceFile(PATH, ADD), "sm_80")
    assert built.binary is not None, built.log
    return built.binary


@pytest.fixture
def emulate(binary):
    """Runs a launch of `module` on `x`; its output, and what was found as (kind, line, buffer)."""

    def run(launch):
        kernels = find_kernels(ADD, PATH)
        emulator = Emulator(device_named("sm_80"))
        module = emulator.module(
            binary,
            {k.name: tuple(p.type for p in k.parameters) for k in kernels},
            {k.name: tuple(p.name for p in k.parameters) for k in kernels},
        )
        x = torch.arange(N, dtype=torch.float32)
        emulator.begin(["x"], [x])
        with torch.no_grad(), emulator.placement(), WatchedAllocations(emulator):
            y = launch(module, x)
        found = [(f["kind"], f["line"], f["values"].get("buffer")) for f in emulator.end()["findings"]]
        return y, found

    return run


def test_an_allocation_is_called_by_the_parameter_that_it_is_passed_to(emulate):
    def launch(module, x):
        y = torch.empty_like(x)
        module.add[1, 128](x, y, N)
        return y

    _, found = emulate(launch)
    assert found == [("uninitialised", 4, "total")]


def test_an_input_is_called_as_the_workload_calls_it(emulate):
    def launch(module, x):
        module.copy[1, 128](x, torch.empty(2 * N, device="cuda"), N + 1)

    _, found = emulate(launch)
    assert found == [("out-of-bounds", 8, "x")]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.zeros_like(x),
        lambda x: torch.empty_like(x).zero_(),
        lambda x: torch.empty(N, device=x.device).copy_(x * 0),
        lambda x: torch.mul(x, 0, out=torch.empty_like(x)),
        lambda x: x * 0,
        lambda x: (torch.cat((x, x)) * 0)[7 : 7 + N],
    ],
)
def test_what_torch_has_written_may_be_read(emulate, make):
    def launch(module, x):
        y = make(x)
        module.add[1, 128](x, y, N)
        return y

    y, found = emulate(launch)
    assert found == []
    assert torch.equal(y, torch.arange(N, dtype=torch.float32))


def test_what_one_launch_writes_the_next_may_read(emulate):
    def launch(module, x):
        between, y = torch.empty_like(x), torch.zeros_like(x)
        module.copy[2, 64](x, between, N)
        module.add[2, 64](between, y, N)
        return y

    y, found = emulate(launch)
    assert found == []
    assert torch.equal(y, torch.arange(N, dtype=torch.float32))


def test_addresses_in_memory_are_addresses(emulate):
    def launch(module, x):
        rows = torch.tensor([x.data_ptr() + 4 * offset for offset in (0, 3, 5)], device="cuda")
        y = torch.empty(3, device="cuda")
        module.gather[1, 3](rows, y, 10)
        return y

    y, found = emulate(launch)
    assert found == []
    assert y.tolist() == [9, 12, 14]


def test_the_launch_believes_in_a_gpu(emulate):
    def launch(module, x):
        assert x.is_cuda
        assert x.device == torch.device("cuda", 0) == torch.empty(1, device="cuda").device
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (8, 0)
        noise = torch.randn(N, device=x.device, generator=torch.Generator(device="cuda").manual_seed(1))
        assert noise.std() > 0
        torch.cuda.synchronize()
        return x.cuda().to("cuda:0")

    y, _ = emulate(launch)
    assert y.device.type == "cpu"


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (lambda module, x: module.copy[1, 128](x, x), "`copy` takes 3 arguments, `launch` gives 2"),
        (lambda module, x: module.copy[1](x, x, N), "launch `copy` as"),
        (lambda module, x: module.copy[1, 128](x, x, 0.5), "`copy` argument 2 is the float 0.5"),
        (lambda module, x: module.sort[1, 128](x, x, N), "asks for a kernel `sort`"),
    ],
)
def test_a_launch_that_makes_no_sense_is_refused(emulate, launch, words):
    with pytest.raises(WorkloadError, match=words.replace("[", r"\[")):
        emulate(launch)


def test_what_only_a_gpu_can_run_is_named_with_its_line():
    text = """extern "C" __global__ void k(float* y) {
    asm volatile("nanosleep.u32 0;");
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" :: "l"(y), "f"(1.0f));
    y[0] = 1;
}
"""
    built = build_cuda(SourceFile(PATH, text), "sm_90a")
    assert built.binary is not None, built.log
    emulator = Emulator(device_named("sm_80"))
    module = emulator.module(built.binary, {}, {})
    y = torch.zeros(1)
    emulator.begin(["y"], [y])
    with pytest.raises(CannotJudgeError, match="multimem") as caught:
        module.k[1, 1](y)
    assert (caught.value.path, caught.value.line) == (PATH, 3)
    assert y.item() == 0
