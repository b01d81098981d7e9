"""Gluon and Triton kernels that read through tensor maps run on the emulator as Hopper runs them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernel_lsp.compiler.triton.since import ArchitectureError  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.workload.execute import load_module  # noqa: E402

MATMUL = Path(__file__).parents[3] / "examples" / "gluon" / "matmul.py"
ATTENTION = Path(__file__).parents[3] / "examples" / "triton" / "attention_descriptors.py"
DESCRIBED = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def on_device(a, b, c, M, N, K, WARPS: tl.constexpr):
    a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [64, 64])
    b = tl.make_tensor_descriptor(b, [K, N], [N, 1], [64, 64])
    c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [64, 64])
    on_host(a, b, c, K, WARPS)


@triton.jit
def on_host(a, b, c, K, WARPS: tl.constexpr):
    row, column = tl.program_id(0) * 64, tl.program_id(1) * 64
    total = tl.zeros((64, 64), tl.float32)
    for k in tl.range(0, K, 64, warp_specialize=WARPS):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(tl.float16))


def matmul(a, b, device, warps):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    if device:
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=a.device))
        on_device[grid](a, b, c, m, n, k, WARPS=warps, num_stages=2)
    else:
        on_host[grid](*(TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, c)), k, WARPS=warps, num_stages=2)
    return c
"""


def emulated(text: str, path: Path, call: Callable[[Any], Any]) -> tuple[Any, set[tuple[str, int]], list[str]]:
    """The result of a call of the file, what was found as (kind, line), and why earlier architectures were refused."""
    emulator, refused = Emulator(device_named("sm_90")), list[str]()
    emulator.expect(path, triton=True)
    while True:
        try:
            with emulator.placement():
                emulator.begin((), ())
                result = call(load_module(text, path))
            return result, {(f.kind, f.line) for f in emulator.report().findings}, refused
        except ArchitectureError as error:
            refused.append(str(error))
            assert emulator.grow()


def product(call: Callable[[Any, Any, Any], Any], text: str, path: Path, m: int, n: int, k: int):
    a = torch.randn(m, k, generator=torch.Generator().manual_seed(0)).half()
    b = (torch.randn(k, n, generator=torch.Generator().manual_seed(1)) / k**0.5).half()
    c, found, refused = emulated(text, path, lambda module: call(module, a, b))
    return (c.double() - a.double() @ b.double()).abs().max(), found, refused


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))


def test_a_gluon_product_with_bulk_copies_and_wgmma_is_right():
    error, found, refused = product(lambda module, a, b: module.matmul(a, b), MATMUL.read_text(), MATMUL, 72, 136, 200)
    assert error < 2e-3
    assert found == set()
    assert len(refused) == 2
    assert all("needs sm_90 or later" in reason for reason in refused)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("right", "wrong", "kind", "place"),
    [
        ("step // STAGES & 1", "step // STAGES + 1 & 1", "deadlock", None),
        ("    tma.store_wait(pendings=0)\n", "", "unawaited-copy", "tma.async_copy_shared_to_global("),
        ("a_desc.block_type.nbytes + b", "b", "unawaited-copy", None),
    ],
    ids=["parity", "wait", "bytes"],
)
def test_a_bug_in_a_gluon_pipeline_is_found(tmp_path: Path, right: str, wrong: str, kind: str, place: str | None):
    text = MATMUL.read_text()
    assert text.count(right) == 1
    text, path = text.replace(right, wrong), tmp_path / "matmul.py"
    path.write_text(text)
    _, found, _ = product(lambda module, a, b: module.matmul(a, b), text, path, 128, 128, 384)
    assert kind in {each for each, _ in found}, found
    if place is not None:
        (line,) = [number for number, line in enumerate(text.splitlines(), 1) if place in line]
        assert (kind, line) in found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", [False, True], ids=["made-by-the-host", "made-by-the-kernel"])
@pytest.mark.parametrize("warps", [False, True], ids=["all-warps-alike", "warp-specialised"])
def test_a_triton_product_through_tensor_descriptors_is_right(tmp_path: Path, device: bool, warps: bool):
    path = tmp_path / "described.py"
    path.write_text(DESCRIBED)
    call = lambda module, a, b: module.matmul(a, b, device, warps)  # noqa: E731
    error, found, refused = product(call, DESCRIBED, path, 72, 136, 200)
    assert error < 2e-3
    assert found == set()
    assert all("is other code from sm_90 on" in reason for reason in refused)
    assert refused


def attend(text: str, path: Path) -> tuple[float, set[tuple[str, int]]]:
    """The largest error of the attention of a file, on sequences off every block size, and what was found."""
    q, k, v = (torch.randn(1, 2, 135, 16, generator=torch.Generator().manual_seed(seed)).half() for seed in range(3))
    out, found, _ = emulated(text, path, lambda module: module.attention(q, k, v, BLOCK_M=64, BLOCK_N=64))
    right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    return float((out.double() - right).abs().max()), found


def test_attention_by_tensor_descriptors_is_right():
    error, found = attend(ATTENTION.read_text(), ATTENTION)
    assert error < 2e-3
    assert found == set()


@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("o_desc.store([head, first_row, 0]", "o_desc.store([head, 0, 0]", "global-race"),
        ("o_desc.store([head, first_row, 0]", "o_desc.store([head, first_row - BLOCK_M, 0]", "out-of-bounds"),
    ],
    ids=["one-block-for-all", "before-the-first"],
)
def test_a_bug_in_attention_by_tensor_descriptors_is_found(tmp_path: Path, right: str, wrong: str, kind: str):
    text, path = ATTENTION.read_text().replace(right, wrong), tmp_path / "attention_descriptors.py"
    path.write_text(text)
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if "o_desc.store(" in each]
    assert (kind, line) in attend(text, path)[1]
