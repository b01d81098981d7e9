"""Products and sums that the assembler joins: what the emulator joins, against ptxas's machine code."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulator_kit import launch

from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.emulate.contraction import contract
from kernel_lsp.emulate.ptx import load

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry join(.param .u64 x, .param .u64 y) {
  .reg .b64 %rd<4>; .reg .f32 %f<20>; .reg .b32 %r<4>; .reg .pred %p<2>;
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 16;
  ld.param.u64 %rd0, [x];
  ld.param.u64 %rd1, [y];
  add.s64 %rd0, %rd0, %rd2;
  add.s64 %rd1, %rd1, %rd2;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0];
  setp.gt.f32 %p1, %f3, 0f00000000;
BODY
  st.global.f32 [%rd1], %f5;
  ret;
}
"""
DIV, MUL, OTHER = "div.full.f32 %f4, %f0, %f1;", "mul.f32 %f4, %f0, %f1;", "mul.f32 %f6, %f2, %f3;"
ADD, AGAIN = "add.f32 %f5, %f4, %f2;", "add.f32 %f7, %f4, %f3; st.global.f32 [%rd1+4], %f7;"
KEEP = "st.global.f32 [%rd1+8], %f4;"
JOINED = {
    "quotient": DIV + ADD,
    "commuted": DIV + "add.f32 %f5, %f2, %f4;",
    "minus the term": DIV + "sub.f32 %f5, %f4, %f2;",
    "minus the quotient": DIV + "sub.f32 %f5, %f2, %f4;",
    "a constant": DIV + "add.f32 %f5, %f4, 0f358637BD;",
    "by a constant": "div.full.f32 %f4, %f0, 0f437A0000;" + ADD,
    "approximate": "div.approx.f32 %f4, %f0, %f1;" + ADD,
    "both ftz": "div.full.ftz.f32 %f4, %f0, %f1; add.ftz.f32 %f5, %f4, %f2;",
    "saturated": DIV + "add.sat.f32 %f5, %f4, %f2;",
    "two sums": DIV + ADD + AGAIN,
    "a sum under a condition": DIV + "mov.f32 %f5, %f2; @%p1 add.f32 %f5, %f4, %f2;",
    "a debugger's label": DIV + "\n$L__tmp1:\n" + ADD,
    "a barrier": DIV + "bar.sync 0;" + ADD,
    "an atomic": DIV + "atom.global.add.u32 %r1, [%rd1+8], 1;" + ADD,
    "a factor overwritten": DIV + "add.f32 %f1, %f3, %f2; st.global.f32 [%rd1+4], %f1;" + ADD,
    "product": MUL + ADD,
    "two products": MUL + OTHER + "add.f32 %f5, %f4, %f6;",
    "two products, the other way round": MUL + OTHER + "sub.f32 %f5, %f6, %f4;",
    "a product and a quotient": DIV + OTHER + "add.f32 %f5, %f6, %f4;",
    "two products, the first kept": MUL + OTHER + KEEP + "add.f32 %f5, %f4, %f6;",
    "two products in two sums": MUL + OTHER + "add.f32 %f5, %f4, %f6; sub.f32 %f7, %f6, %f4;"
    "st.global.f32 [%rd1+4], %f7;",
    "two products, one wanted once more": MUL + OTHER + "add.f32 %f5, %f6, %f4; add.f32 %f7, %f6, %f0;"
    "st.global.f32 [%rd1+4], %f7;",
}
APART = {
    "a rounded sum": DIV + "add.rn.f32 %f5, %f4, %f2;",
    "a rounded product": "mul.rn.f32 %f4, %f0, %f1;" + ADD,
    "a saturated product": "mul.sat.f32 %f4, %f0, %f1;" + ADD,
    "only the quotient ftz": "div.full.ftz.f32 %f4, %f0, %f1;" + ADD,
    "only the sum ftz": DIV + "add.ftz.f32 %f5, %f4, %f2;",
    "stored too": DIV + ADD + KEEP,
    "one sum rounded": DIV + ADD + "add.rn.f32 %f7, %f4, %f3; st.global.f32 [%rd1+4], %f7;",
    "compared too": DIV + "setp.gt.f32 %p1, %f4, 0f00000000;" + ADD + "@%p1 mov.f32 %f5, %f3;",
    "to itself": MUL + "add.f32 %f5, %f4, %f4;",
    "a quotient under a condition": "mov.f32 %f4, %f3; @%p1 div.full.f32 %f4, %f0, %f1;" + ADD,
    "a branch": DIV + "mov.f32 %f5, %f2; @%p1 bra end; bar.sync 0;" + ADD + "\nend:",
    "where branches meet": DIV + "@%p1 bra end; st.global.f32 [%rd1+8], %f3;\nend:\n" + ADD,
    "an exit": DIV + "@%p1 exit;" + ADD,
    "a fence": DIV + "membar.gl;" + ADD,
    "an integer division": DIV + "ld.global.u32 %r1, [%rd0]; div.s32 %r2, %r0, %r1; st.global.u32 [%rd1+8], %r2;" + ADD,
    "absolute": DIV + "abs.f32 %f6, %f4; add.f32 %f5, %f6, %f2;",
    "added to by an fma": DIV + "fma.rn.f32 %f5, %f2, %f3, %f4;",
}
_SUM = re.compile(r"\b(FADD|FFMA)\b")


def ptx_of(body: str) -> str:
    return PTX.replace("BODY", body.replace("; ", ";\n").replace(";", ";\n"))


def sums(ptx: str) -> tuple[int, int]:
    """How many additions, and how many `fma`, are left of the PTX once the emulator has joined what it joins."""
    function = load(ptx).functions["join"]
    left = [each.opcode for at, each in enumerate(function.code) if at not in contract(function).sums]
    joined = len(contract(function).sums)
    added = sum(opcode.startswith(("add", "sub")) and opcode.endswith("f32") for opcode in left)
    return added, joined + sum(opcode.startswith("fma") for opcode in left)


@pytest.mark.parametrize("body", [*JOINED.values(), *APART.values()], ids=[*JOINED, *APART])
def test_what_is_joined_is_what_the_assembler_joins(body: str, tmp_path: Path):
    ptxas, disassembler = find_tool("ptxas"), find_tool("nvdisasm")
    if ptxas is None or disassembler is None:
        pytest.skip("needs ptxas and nvdisasm")
    (tmp_path / "join.ptx").write_text(ptx_of(body))
    subprocess.run([ptxas, "-arch=sm_90", tmp_path / "join.ptx", "-o", tmp_path / "join.cubin"], check=True)
    listing = subprocess.run([disassembler, "-c", tmp_path / "join.cubin"], check=True, capture_output=True, text=True)
    found = _SUM.findall(listing.stdout)
    assert (found.count("FADD"), found.count("FFMA")) == sums(ptx_of(body))


@pytest.mark.parametrize("body", JOINED.values(), ids=JOINED)
def test_joined(body: str):
    assert contract(load(ptx_of(body)).functions["join"]).sums


@pytest.mark.parametrize("body", APART.values(), ids=APART)
def test_left_apart(body: str):
    assert not contract(load(ptx_of(body)).functions["join"]).sums


def run(body: str, x: np.ndarray) -> np.ndarray:
    (_, y) = launch(ptx_of(body), "join", 1, len(x), x, np.zeros_like(x)).arrays
    return y[:, 0]


def numbers() -> np.ndarray:
    values = np.random.default_rng(7).uniform(1, 2, (256, 4)).astype(np.float32)
    values[:, 3] -= np.float32(1.5)
    return values


def test_a_joined_product_is_not_rounded():
    x = numbers()
    a, b, c, d = x.astype(np.float64).T
    assert (run(MUL + ADD, x) == (a * b + c).astype(np.float32)).all()
    assert (run(MUL + "sub.f32 %f5, %f4, %f2;", x) == (a * b - c).astype(np.float32)).all()
    assert (run(MUL + "sub.f32 %f5, %f2, %f4;", x) == (c - a * b).astype(np.float32)).all()
    second = (c * d).astype(np.float32)
    assert (run(JOINED["two products"], x) == (a * b + second).astype(np.float32)).all()
    rounded = (a * b).astype(np.float32) + x[:, 2]
    assert (run("mul.rn.f32 %f4, %f0, %f1;" + ADD, x) == rounded).all()
    assert (run(MUL + ADD, x) != rounded).any()


def test_a_joined_quotient_is_the_dividend_by_the_units_reciprocal():
    x = numbers()
    reciprocal = run("rcp.approx.ftz.f32 %f5, %f1;", x).astype(np.float64)
    assert (run(DIV + ADD, x) == (x[:, 0] * reciprocal + x[:, 2]).astype(np.float32)).all()
    x[:, :2] *= np.float32(2.0**126)  # both are scaled before the reciprocal would be subnormal
    assert (run(DIV + ADD, x) == (numbers()[:, 0] * reciprocal + x[:, 2]).astype(np.float32)).all()


def test_a_factor_is_kept_while_its_register_is_overwritten():
    x = numbers()
    body = MUL + "@%p1 add.rn.f32 %f0, %f3, %f2; st.global.f32 [%rd1+4], %f0;" + ADD
    a, b, c, _ = x.astype(np.float64).T
    assert (run(body, x) == (a * b + c).astype(np.float32)).all()
