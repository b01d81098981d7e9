"""`check` reports what goes wrong between threads, copies and tensor cores under its own rules."""

from pathlib import Path

import pytest
from emulated import check_files
from emulator_kit import HOPPER, line_of

from kernel_lsp.rules import asynchronous

pytest.importorskip("torch")

KERNELS = (
    HOPPER
    + r"""
extern "C" {
__global__ void unawaited(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 0) { expect(&bar, 256); load(tile, x, 256, &bar); }
    AWAIT
    y[threadIdx.x] = tile[threadIdx.x];  // KL060
}
__global__ void overwritten(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    FENCE
    __syncthreads();
    if (threadIdx.x == 0) { store(y, tile, 256); commit(); READ }
    __syncthreads();
    tile[threadIdx.x] = 0;  // KL061
    if (threadIdx.x == 0) wait_read<0>();
}
__global__ void miscounted(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 1);
    __syncthreads();
    if (threadIdx.x == 0) { expect(&bar, BYTES); load(tile, x, 256, &bar); }
    wait(&bar, 0);  // KL062
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void unfenced(const float* x, float* y) {
    __shared__ alignas(128) float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    VISIBLE
    __syncthreads();
    if (threadIdx.x == 0) { store(y, tile, 256); commit(); wait_read<0>(); }  // KL063
}
__global__ void early(const float* x, float* y) {
    __shared__ alignas(1024) unsigned char tile[2560];
    for (int i = threadIdx.x; i < 2560; i += blockDim.x) tile[i] = 0;
    fence();
    __syncthreads();
    float d[4] = {};
    u64 a = at(tile) >> 4 | 8ull << 16 | 16ull << 32, b = at(tile + 2048) >> 4 | 8ull << 16 | 16ull << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    COMPUTED
    if (threadIdx.x < 64) y[threadIdx.x] = x[threadIdx.x] + d[0];  // KL066
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__global__ void misused(const float* x, float* y) {
    __shared__ u64 bar;
    if (threadIdx.x == 0) { INIT }
    __syncthreads();
    arrive(&bar);  // KL064
    y[threadIdx.x] = x[threadIdx.x];
}
}
"""
)
RIGHT = {
    "AWAIT": "wait(&bar, 0);",
    "READ": "wait_read<0>();",
    "BYTES": "256",
    "FENCE": "fence();",
    "VISIBLE": "fence();",
    "INIT": "init(&bar, 64);",
    "COMPUTED": 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
}
WRONG = RIGHT | {"COMPUTED": "", "AWAIT": "", "READ": "", "BYTES": "512", "VISIBLE": "", "INIT": ""}
WORKLOAD = """
import torch

CASES = [dict(n=64)]
CONTRACT = dict(contiguous=True, aligned=16, listed_sizes=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return x


def launch(module, x):
    for name in ("unawaited", "overwritten", "miscounted", "unfenced", "misused", "early"):
        y = torch.empty_like(x)
        getattr(module, name)[1, 128 if name == "early" else 64](x, y)
    return y
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def run(words: dict[str, str]):
        text = KERNELS
        for word, value in words.items():
            text = text.replace(word, value)
        path = Path(tmp_path / "kernels.cu")
        path.write_text(text)
        path.with_name("kernels_workload.py").write_text(WORKLOAD)
        return text, check_files(path)[path]

    return run


def test_each_rule_is_reported_at_its_line(check):
    text, report = check(WRONG)
    found = {(each.code, each.line) for each in report.diagnostics if each.code.startswith("KL06")}
    assert found == {(rule.id, line_of(text, f"// {rule.id}")) for rule in asynchronous.RULES if rule.id in text}
    assert len(found) == 6


def test_the_clean_twins_are_well(check):
    _, report = check(RIGHT)
    assert report.ok, report.diagnostics
    assert report.emulation.needs_gpu is None
