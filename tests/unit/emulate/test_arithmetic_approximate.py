import json
import math
from pathlib import Path

import numpy as np
import pytest
from emulator_kit import compiled, launch

from kernel_lsp.emulate.arithmetic import bind

INF, NAN, TINY = 0x7F800000, 0x7FFFFFFF, 0x00000001
MINUS = 1 << 31


def on(opcode, *values):
    operation = bind(opcode)
    assert operation is not None, opcode
    assert operation.approximate
    return [int(x) for x in operation.run(*(np.array(column, np.uint32) for column in values))]


# Raw operands and results of an H200, most of them ones that are not the exact result rounded.
MEASURED = json.loads((Path(__file__).parents[2] / "fixtures" / "mufu_h200.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("opcode", MEASURED)
def test_results_are_those_of_the_hardware(opcode):
    operands, result = MEASURED[opcode]["operands"], MEASURED[opcode]["result"]
    kind = np.uint64 if opcode.endswith("f64") else np.uint16 if opcode.endswith(("f16", "bf16")) else np.uint32
    found = bind(opcode).run(*(np.array(column, kind) for column in operands))
    assert found.tolist() == result


def test_results_do_not_depend_on_how_many_are_computed_together():
    values = np.linspace(0.25, 3.0, 20_000, dtype=np.float32).view(np.uint32)
    run = bind("ex2.approx.ftz.f32").run
    alone = np.concatenate([run(part) for part in np.split(values, 20)])
    assert run(values).tolist() == alone.tolist()
    assert run(values.reshape(100, 200)).tolist() == alone.reshape(100, 200).tolist()


# The tables of special values in the PTX ISA.
SPECIAL = {
    "rcp.approx.ftz.f32": {0: INF, MINUS: INF | MINUS, INF: 0, INF | MINUS: MINUS, NAN: NAN, TINY: INF},
    "rcp.approx.f32": {0: INF, TINY: INF},
    "sqrt.approx.f32": {0: 0, MINUS: MINUS, INF: INF, INF | MINUS: NAN, 0xBF800000: NAN},
    "rsqrt.approx.f32": {0: INF, MINUS: INF | MINUS, INF: 0, INF | MINUS: NAN, 0xBF800000: NAN},
    "lg2.approx.f32": {0: INF | MINUS, MINUS: INF | MINUS, INF: INF, 0xBF800000: NAN, TINY: 0xC3150000},
    "lg2.approx.ftz.f32": {TINY: INF | MINUS, 0x41000000: 0x40400000},
    "ex2.approx.f32": {0: 0x3F800000, MINUS: 0x3F800000, INF: INF, INF | MINUS: 0, 0xC3150000: TINY},
    "ex2.approx.ftz.f32": {0xC3150000: 0, NAN | MINUS: NAN},
    "sin.approx.f32": {0: 0, MINUS: MINUS, INF: NAN},
    "cos.approx.f32": {0: 0x3F800000, INF: NAN},
    "tanh.approx.f32": {0: 0, INF: 0x3F800000, INF | MINUS: 0xBF800000, NAN: NAN},
}


@pytest.mark.parametrize("opcode", SPECIAL)
def test_special_values(opcode):
    table = SPECIAL[opcode]
    assert [hex(x) for x in on(opcode, list(table))] == [hex(x) for x in table.values()]


FUNCTIONS = {"sin": math.sin, "cos": math.cos, "ex2": math.exp2, "tanh": math.tanh, "lg2": math.log2}


@pytest.mark.parametrize(("opcode", "function"), FUNCTIONS.items())
def test_ordinary_values_are_right(opcode, function):
    values = np.linspace(0.25, 3.0, 101, dtype=np.float32)
    result = np.array(on(f"{opcode}.approx.f32", values.view(np.uint32)), np.uint32).view(np.float32)
    rtol = 2**-11 if opcode == "tanh" else 2e-6  # as the ISA has it
    np.testing.assert_allclose(result, [function(float(x)) for x in values], rtol=rtol, atol=2e-7)


def test_division_by_large_numbers():
    one, large = 0x3F800000, 0x7F000000  # 2**127
    assert on("div.approx.f32", [one, INF], [large, large]) == [0, NAN]
    assert on("div.full.f32", [one, 0x40C00000], [large, 0x40000000]) == [0x00400000, 0x40400000]


def test_coarse_reciprocals_have_an_empty_lower_half():
    values = np.array([0x4008000000000123, 0, 0x7FF0000000000000], np.uint64)
    result = bind("rcp.approx.ftz.f64").run(values)
    assert (result & np.uint64(0xFFFFFFFF) == 0).all()
    assert result.view(np.float64)[0] == pytest.approx(1 / 3, rel=2e-6)
    assert result.view(np.float64)[1:].tolist() == [math.inf, 0.0]


def test_the_reciprocal_root_of_a_double_is_refined_and_takes_every_operand():
    values = np.concatenate((np.linspace(0.1, 9.0, 997), [3e-310, 5e-324, 1e300, 2e-300]))
    found = bind("rsqrt.approx.f64").run(values.view(np.uint64)).view(np.float64)
    np.testing.assert_allclose(found, 1 / np.sqrt(values), rtol=3e-16)
    special = np.array([0.0, -0.0, math.inf, -1.0, -5e-324, math.nan])
    found = bind("rsqrt.approx.f64").run(special.view(np.uint64))
    assert found.view(np.float64)[:3].tolist() == [math.inf, -math.inf, 0.0]
    assert found[3:5].tolist() == [0xFFF8000000000000] * 2  # as in the assembler's own code for it
    assert math.isnan(found.view(np.float64)[5])


def test_packed_halves():
    half, one = 0x3800, 0x3C00
    assert on("ex2.approx.f16x2", [one | 0 << 16]) == [0x4000 | one << 16]
    assert on("ex2.approx.ftz.bf16x2", [0x3F80]) == [0x4000 | 0x3F80 << 16]
    assert on("tanh.approx.f16x2", [half | one << 16]) == [0x3764 | 0x3A17 << 16]


def test_nan_of_the_coarse_units_fills_the_upper_half():
    values = np.array([0x7FF8000000000000, 0xFFF0000100000000], np.uint64)
    assert bind("rcp.approx.ftz.f64").run(values).tolist() == [0x7FFFFFFF00000000] * 2
    values = np.array([0x8010000000000000, 0x7FF8000000000000], np.uint64)
    assert bind("rsqrt.approx.ftz.f64").run(values).tolist() == [0x7FFFFFFF00000000] * 2


BY_A_CONSTANT = """
extern "C" __global__ void divide(float *x, const float *by) {
    int i = threadIdx.x;
    float q, r;
    asm("div.full.f32 %0, %1, 0f42040000;" : "=f"(q) : "f"(x[i]));
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x[i]), "f"(*by));
    x[i] = q;
    x[i + 64] = r;
}
"""


def test_the_reciprocal_of_a_constant_is_the_assemblers():
    by, values = np.float32([33]), np.linspace(1, 2, 128, dtype=np.float32)
    found, _ = launch(compiled(BY_A_CONSTANT), "divide", 1, 64, values, by).arrays
    # ptxas makes the first a multiplication with 0.030303031206130981445.
    by_the_unit = np.array(on("rcp.approx.ftz.f32", [0x42040000]), np.uint32).view(np.float32)[0]
    assert (found[:64] == values[:64] * np.float32(0.030303031206130981445)).all()
    assert (found[64:] == values[:64] * by_the_unit).all()
    assert by_the_unit != np.float32(0.030303031206130981445)
