"""Widening the text of a Triton file to float64."""

import pytest

from kernel_lsp.source.lift import lifted


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("y = torch.empty(3, dtype=torch.float16)", "y = torch.empty(3, dtype=torch.float64)"),
        ("x = tl.load(p).to(tl.float32)", "x = tl.load(p).to(tl.float64)"),
        ("x = y.float()", "x = y.double()"),
        ("n = float(x)", "n = float(x)"),
        ("m = other.float32", "m = other.float32"),
        ("t = torch.int32", "t = torch.int32"),
        ("é = tl.bfloat16  # ü", "é = tl.float64  # ü"),
    ],
)
def test_narrow_types_are_widened_and_nothing_else(text: str, wide: str):
    assert lifted(text) == wide


def test_in_kernels_products_and_what_loops_carry_are_wide():
    text = "@triton.jit\ndef k(a, b, N: tl.constexpr):\n    s = 0.0\n    n = 0\n    s += tl.dot(a, b)\n"
    wide = lifted(text)
    assert "s = tl.cast(0.0, tl.float64)" in wide
    assert "tl.dot(a, b, out_dtype=tl.float64)" in wide
    assert "n = 0\n" in wide
    assert wide.count("\n") == text.count("\n")


def test_host_code_keeps_its_numbers():
    text = "def host(x):\n    eps = 0.5\n    return x + eps\n"
    assert lifted(text) == text
