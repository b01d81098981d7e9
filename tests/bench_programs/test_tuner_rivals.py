import asyncio
import math
from pathlib import Path

import numpy as np
import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.proposers.tuner import Tuner
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from tests.bench.memory_order import KernelRaces, Trial
from tests.bench.tuner_rivals import (
    BUDGETS,
    GRID,
    Drawn,
    Recorded,
    Scales,
    Surface,
    after,
    figures_of,
    floor,
    interval,
    made,
    plausible,
    play,
    point_of,
    point_of_base,
    recorded,
    summarise,
)

pytestmark = pytest.mark.programs

ADD = """
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, out, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.store(out + start, tl.load(x + start))


def add(x, out):
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
"""
H200 = device_named("H200")
SCALES = Scales(0.1, 0.05, 3.0, 0.05)
LABELS = {
    "BLOCK 1024 -> 2048": 0.9,
    "BLOCK 1024 -> 512": 1.2,
    "num_warps 4 -> 8": 0.95,
    "BLOCK 1024 -> 2048, num_warps 4 -> 8": 0.8,
    "num_warps 4 -> 2": None,
}


def base() -> Candidate:
    return Candidate(Language.TRITON, SourceFile(Path("add.py"), ADD), None, "baseline", "baseline")


def races(labels: dict[str, float | None]) -> KernelRaces:
    return KernelRaces("add", tuple(Trial(label, ratio) for label, ratio in labels.items()))


def record() -> Recorded:
    return next(recorded(races(LABELS), base(), H200))


def test_a_label_names_settings_and_a_variant_is_made_anew_from_its_label() -> None:
    space = find_tunables(base(), "add_kernel", H200)
    for label in LABELS:
        variant = made(base(), label, H200)
        assert variant is not None
        assert variant.label == label
    assert point_of(space, "BLOCK 1024 -> 3") is None
    assert point_of(space, "BLOCK 512 -> 1024") is None, "it is 1024 here"
    assert made(base(), "a rewrite that nobody knows", H200) is None
    above = made(base(), "BLOCK 1024 -> 2048; BLOCK 2048 -> 4096", H200)
    assert above is not None
    assert "BLOCK=4096" in above.kernel.text


def test_only_files_whose_settings_were_raced_often_are_learned_from() -> None:
    one = record()
    assert one.points[point_of_base(one.space)] == 0.0
    assert sorted(one.timed.values())[0] == pytest.approx(math.log(0.8))
    assert not list(recorded(races({"BLOCK 1024 -> 2048": 0.9}), base(), H200))


def test_a_surface_agrees_with_its_record_and_is_drawn_elsewhere() -> None:
    one = record()
    drawn = [Surface(one, SCALES, seed) for seed in range(4)]
    for at, told in one.timed.items():
        assert all(surface.log_time(at) == pytest.approx(told, abs=0.03) for surface in drawn)
    far = point_of(one.space, "BLOCK 1024 -> 8192, num_stages 3 -> 7")
    assert far is not None
    assert len({round(surface.log_time(far) or 0.0, 3) for surface in drawn}) == 4
    failing = point_of(one.space, "num_warps 4 -> 1")
    assert failing is not None
    assert drawn[0].log_time(failing) is None, "beyond what failed by itself"


def test_scales_that_make_a_record_likely_are_the_plausible_ones() -> None:
    shares = plausible([record()])[0]
    assert shares.sum() == pytest.approx(1.0)
    expected = sum(share * one.alone for share, one in zip(shares, GRID, strict=True))
    assert expected > np.mean([one.alone for one in GRID]) / 2, "settings matter in this record"


def test_what_is_reached_is_the_true_time_of_what_looks_best() -> None:
    one = record()
    surface = Surface(one, SCALES, 0)
    reached = asyncio.run(play(Tuner(one.space, 0), one, surface, 0))
    assert 0 < len(reached) <= BUDGETS[-1]
    assert reached[-1] < -0.1
    assert after(reached, 8) == reached[7]
    assert after(reached[:3], 8) == reached[2]
    assert after([], 8) == 0.0
    assert floor(one, surface, 0) <= reached[-1] + 0.02
    digests = [one.digest for one in asyncio.run(Drawn(one.space, 0).next(8))]
    assert len(set(digests)) == 8


def test_rivals_are_held_against_the_tuner_by_kernel() -> None:
    row = asyncio.run(figures_of(record(), plausible([record()])[0], 2))
    found = summarise([row, {**row, "kernel": "other"}])
    assert found["kernels"] == 2
    assert found["tuner"]["32"]["above_tuner"] == 0.0
    assert found["tuner"]["32"]["ratio"] >= found["best_ratio"]
    low, high = interval(["a", "a", "b"], [1.0, 1.0, 4.0])
    assert (low, high) == (1.0, 4.0)
