"""Products of block-scaled formats (`tl.dot_scaled`) run on the emulator, as Hopper widens them."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.compiler.errors import CompilationError  # noqa: E402

from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.workload.execute import load_module  # noqa: E402

M, N, K, GROUP = 32, 32, 64, 32
SCALED = """
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PACKED: tl.constexpr):
    m, n, kb = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)[:, None]
    ka, groups = tl.arange(0, K // PACKED)[None, :], tl.arange(0, K // 32)[None, :]
    left = tl.load(a + m * (K // PACKED) + ka)
    right = tl.load(b + kb * N + n)
    left_scale = tl.load(sa + m * (K // 32) + groups)
    right_scale = tl.load(sb + tl.arange(0, N)[:, None] * (K // 32) + groups)
    tl.store(c + m * N + n, tl.dot_scaled(left, left_scale, FORMAT, right, right_scale, "e4m3"))


def scaled(a, sa, b, sb, packed):
    m, n, k = a.shape[0], b.shape[1], b.shape[0]
    c = torch.empty(m, n, device=a.device)
    scaled_kernel[(1,)](a, sa, b, sb, c, m, n, k, packed)
    return c
"""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of a 4-bit number (OCP Microscaling Formats 1.0, table 5); the highest bit is the sign."""


def given(name: str) -> tuple[Any, Any]:
    """The left factor as its kernel takes it, and its values; two 4-bit numbers share a byte, low bits first."""
    random = torch.Generator().manual_seed(0)
    if name == "e2m1":
        packed = torch.randint(0, 256, (M, K // 2), generator=random, dtype=torch.uint8)
        table = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64)
        return packed, torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).flatten(1)
    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16}[name]
    made = torch.randn(M, K, generator=random).to(kind)
    return made, made.double()


def widened(scales: Any) -> Any:
    """The factor of each element of a row of scales, which are powers of two (E8M0)."""
    return torch.exp2(scales.double() - 127).repeat_interleave(GROUP, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "bf16"])
def test_products_of_scaled_formats_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    a, left = given(name)
    random = torch.Generator().manual_seed(1)
    b = torch.randn(K, N, generator=random).to(torch.float8_e4m3fn)
    sa, sb = (torch.randint(120, 130, (rows, K // GROUP), generator=random, dtype=torch.uint8) for rows in (M, N))
    path = tmp_path / "scaled.py"
    text = SCALED.replace("FORMAT", f'"{name}"')
    path.write_text(text)  # Triton reads a kernel's source from its file
    emulator = Emulator(device_named("sm_90"))
    emulator.expect(path, triton=True)
    c = None
    while c is None:
        try:
            with emulator.placement():
                emulator.begin((), ())
                c = load_module(text, path).scaled(a, sa, b, sb, 2 if name == "e2m1" else 1)
        except CompilationError:  # the first architecture has no 8-bit formats
            assert emulator.grow()
    assert emulator.report().findings == ()
    truth = (left * widened(sa)) @ (b.double() * widened(sb).T)
    assert torch.allclose(c.double(), truth, rtol=1e-5, atol=1e-5 * float(truth.abs().max()))
