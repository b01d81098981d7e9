"""A few blocks of a large launch on the emulator: what is found in them, and what is not held against them."""

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.compiler.cuda.build import build_cuda  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.emulate.sampling import BlockSample  # noqa: E402
from kernel_lsp.errors import WorkloadError  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.source.candidate import SourceFile  # noqa: E402
from kernel_lsp.source.files import find_kernels  # noqa: E402

PATH = Path("/home/me/kernel.cu")
ROWS = """
// A block goes from row to row and shares each row's maximum.
template <int BUFFERS> __device__ void norm(const float* x, float* y, int rows, int cols) {
    __shared__ float most[BUFFERS][4];
    for (int r = blockIdx.x, turn = 0; r < rows; r += gridDim.x, ++turn) {
        float m = 0;
        for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, fabsf(x[(size_t)r * cols + i]));
        for (int s = 16; s; s /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, s));
        float* here = most[turn % BUFFERS];
        if (threadIdx.x % warpSize == 0) here[threadIdx.x / warpSize] = m;
        __syncthreads();
        m = fmaxf(fmaxf(here[0], here[1]), fmaxf(here[2], here[3]));
        for (int i = threadIdx.x; i < cols; i += blockDim.x) y[(size_t)r * cols + i] = x[(size_t)r * cols + i] / m;
    }
}
extern "C" __global__ void one_buffer(const float* x, float* y, int rows, int cols) { norm<1>(x, y, rows, cols); }
extern "C" __global__ void two_buffers(const float* x, float* y, int rows, int cols) { norm<2>(x, y, rows, cols); }
"""
PARTS = """
extern "C" __global__ void sums(const float* x, float* part, int n) {
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[(size_t)blockIdx.x * n + i];
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x == 0) part[blockIdx.x] = s;
}
extern "C" __global__ void total(const float* part, float* out, int n) {
    __shared__ float all[32];
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += part[i];
    all[threadIdx.x] = s;
    __syncthreads();
    out[threadIdx.x] = all[31 - threadIdx.x];
}
extern "C" __global__ void places(const float* x, int* place, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) place[i] = i;
}
extern "C" __global__ void gather(const float* x, const int* place, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[place[i]];
}
extern "C" __global__ void chained(const float* x, volatile int* flag, float* out, int n) {
    if (threadIdx.x == 0 && blockIdx.x > 0) while (flag[blockIdx.x - 1] == 0) ;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) flag[blockIdx.x] = 1;
}
extern "C" __global__ void queue(const float* x, int* next, float* out, int tiles) {
    __shared__ int tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(next, 1);
        __syncthreads();
        int mine = tile;
        __syncthreads();
        if (mine >= tiles) return;
        out[mine * blockDim.x + threadIdx.x] = x[mine * blockDim.x + threadIdx.x];
    }
}
extern "C" __global__ void past_the_end(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}
extern "C" __global__ void endless(const float* x, float* out, int n) {
    float v = x[0];
    for (int i = 0; i < n; ++i) v = v * 1.5f + 1;
    out[threadIdx.x] = v;
}
"""


def emulator_of(text):
    built = build_cuda(SourceFile(PATH, text), "sm_80")
    assert built.binary is not None, built.log
    kernels = find_kernels(text, PATH)
    emulator = Emulator(device_named("sm_80"))
    emulator.expect(PATH, triton=False)
    names = {k.name: tuple(p.name for p in k.parameters) for k in kernels}
    return emulator, emulator.module(
        built.binary, {k.name: tuple(p.type for p in k.parameters) for k in kernels}, names
    )


@pytest.fixture(scope="module")
def rows():
    return emulator_of(ROWS)


@pytest.fixture(scope="module")
def parts():
    return emulator_of(PARTS)


def sampled(made, launch, x, **how):
    emulator, module = made
    return emulator.sample(["x"], [x], BlockSample(**how), lambda: launch(module, x))


def kinds(run):
    return [(finding.kind, finding.line) for finding in run.findings]


def line(text, words):
    (found,) = (number for number, each in enumerate(text.splitlines(), start=1) if words in each)
    return found


def test_the_first_the_last_and_others_by_chance():
    sample = BlockSample(count=4, seed=1)
    chosen = sample.blocks(1000, 0)
    assert len(set(chosen)) == 4
    assert (chosen[0], chosen[-1]) == (0, 999)
    assert chosen == sample.blocks(1000, 0)
    assert len({BlockSample(count=4, seed=seed).blocks(1000, 0) for seed in range(20)}) > 10
    assert sample.blocks(3, 0) == (0, 1, 2)
    assert BlockSample(count=1).blocks(9, 0) == (0,)


@pytest.mark.parametrize(("kernel", "right"), [("one_buffer", False), ("two_buffers", True)])
def test_a_race_from_one_row_to_the_next(rows, kernel, right):
    x = torch.randn(16384, 1024)  # 64 MiB

    def launch(module, x):
        y = torch.empty_like(x)
        module[kernel][1056, 128](x, y, *x.shape)
        return y

    run = sampled(rows, launch, x)
    assert [(each.grid_blocks, len(each.blocks), each.ended) for each in run.launches] == [(1056, 3, None)]
    assert run.ended is None
    stored = line(ROWS, "here[threadIdx.x / warpSize] = m")
    assert kinds(run) == ([] if right else [("shared-race", stored)])


def test_large_inputs_cost_nothing_by_themselves(parts):
    x = torch.zeros(1 << 26)  # 256 MiB
    started = time.process_time()
    run = sampled(parts, lambda module, x: module.past_the_end[1 << 18, 256](x, torch.empty_like(x), 0), x)
    assert time.process_time() - started < 1
    assert run.findings == ()


def test_blocks_know_the_whole_grid(parts):
    x = torch.zeros((1 << 20) - 5)
    run = sampled(parts, lambda module, x: module.past_the_end[1 << 12, 256](x, torch.empty_like(x), 0), x)
    assert {finding.kind for finding in run.findings} == {"out-of-bounds"}
    assert {finding.values["block"] for finding in run.findings} == {"(4095, 0, 0)"}


def test_what_blocks_that_were_left_out_would_have_written_is_anybodys_guess(parts):
    def launch(module, x):
        part, out = torch.empty(1000, device="cuda"), torch.empty(32, device="cuda")
        module.sums[1000, 32](x, part, 100)
        module.total[1, 32](part, out, 1000)
        return out.sum() + torch.relu(part).max()

    run = sampled(parts, launch, torch.randn(1000, 100))
    assert (run.findings, run.ended) == ((), None)
    assert [(each.kernel, len(each.blocks), each.ended) for each in run.launches] == [
        ("sums", 3, None),
        ("total", 1, None),
    ]


def test_addresses_that_were_never_computed_are_not_followed(parts):
    def launch(module, x):
        place, out = torch.empty(len(x), dtype=torch.int32, device="cuda"), torch.empty_like(x)
        module.places[100, 100](x, place, len(x))
        module.gather[100, 100](x, place, out, len(x))

    run = sampled(parts, launch, torch.randn(10_000), seed=3)
    assert run.findings == ()
    assert "depends on what blocks that were left out write" in (run.launches[1].ended or "")


def test_waiting_for_a_block_that_was_left_out_is_no_deadlock(parts):
    def launch(module, x):
        module.chained[100, 32](x, torch.zeros(100, dtype=torch.int32, device="cuda"), torch.empty_like(x), len(x))

    run = sampled(parts, launch, torch.randn(3200))
    assert run.findings == ()
    assert "waits" in (run.launches[0].ended or "")


def test_blocks_take_from_a_queue_what_they_get(parts):
    def launch(module, x):
        module.queue[64, 32](x, torch.zeros(1, dtype=torch.int32, device="cuda"), torch.empty_like(x), len(x) // 32)

    run = sampled(parts, launch, torch.randn(64 * 32))
    assert (run.findings, run.launches[0].ended) == ((), None)


@pytest.mark.parametrize("blocks", [1, 99])
def test_a_block_that_takes_too_long_is_left(parts, blocks):
    run = sampled(parts, lambda module, x: module.endless[blocks, 32](x, x, 1 << 30), torch.randn(32), budget=500)
    assert run.findings == ()
    assert "after 501 instructions" in (run.launches[0].ended or "")


def test_the_instructions_for_all_launches_are_limited(parts):
    def launch(module, x):
        for _ in range(1000):
            module.past_the_end[100, 32](x, x, len(x))

    run = sampled(parts, launch, torch.randn(3200), total=500)
    assert run.ended == "the 500 instructions for all launches are spent"
    assert 1 < len(run.launches) < 1000


READS = [lambda t: t[0].item(), lambda t: t.tolist(), lambda t: t.nonzero(), lambda t: t.cpu().numpy()]


@pytest.mark.parametrize("read", READS)
def test_the_host_does_not_decide_by_what_is_unknown(parts, read):
    def launch(module, x):
        out = torch.empty_like(x)
        module.past_the_end[100, 32](x, out, len(x))
        read(out)

    run = sampled(parts, launch, torch.randn(3200))
    assert run.findings == ()
    assert "reads what blocks that were left out would have written" in (run.ended or "")


def test_an_error_of_the_users_own_is_raised_unless_what_is_unknown_may_have_led_to_it(parts):
    def launch(module, x, first):
        if first:
            raise ValueError("mine")
        module.past_the_end[100, 32](x, x, len(x))
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        sampled(parts, lambda module, x: launch(module, x, True), torch.randn(3200))
    with pytest.raises(WorkloadError, match="asks for a kernel"):
        sampled(parts, lambda module, x: module.sort[1, 1](x), torch.randn(3200))
    run = sampled(parts, lambda module, x: launch(module, x, False), torch.randn(3200))
    assert run.ended == "it raised ValueError after launches of which some blocks were left out"
