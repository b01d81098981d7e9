"""The trials of copies that fill zeros in: each rule can be told from the others by one of them."""

from itertools import combinations

import pytest

pytest.importorskip("torch")

from kernel_lsp.emulate.ptx import load
from tests.bench import fill_conflicts
from tests.bench.fill_conflicts import TRIALS, Trial


def test_each_rule_foretells_something_else():
    foretold = [trial.foretold() for trial in TRIALS]
    for one, other in combinations(foretold[0], 2):
        assert any(counts[one] != counts[other] for counts in foretold), (one, other)


def test_lanes_are_passed_by_the_width_of_their_copies():
    reading = 0x00003FFF  # 14 lanes: a pass and three quarters of 16 bytes, most of a pass of 8
    assert Trial("x", 16, reading).foretold() == {"none": 0, "request": 1, "pass": 1, "block": 1}
    assert Trial("x", 16, 0x55555555, 3).foretold() == {"none": 0, "request": 3, "pass": 12, "block": 3}
    assert Trial("x", 8, 0x0000FFFF).foretold()["pass"] == 0
    assert Trial("x", 4, 0x0000FFFF).foretold()["pass"] == 1


@pytest.mark.parametrize("width", [16, 8, 4])
def test_the_kernel_is_read(width):
    ptx = fill_conflicts._PTX.format(width=width, cache="cg" if width == 16 else "ca")
    assert [each.opcode for each in load(ptx).functions["fill"].code][-3].startswith("cp.async")
