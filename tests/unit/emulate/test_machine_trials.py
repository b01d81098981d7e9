"""Whole kernels of one instruction each, of warps, atomics, tensor cores and Hopper, through the emulator's machine."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.bench.ptx_fuzz_warp import compare
from tests.bench.ptx_trials import bulk, cells, clusters, maps, matrices, mbarriers, warpgroups, warps
from tests.bench.ptx_trials.machine import Machine
from tests.bench.ptx_trials.trial import Trial

Trials = Callable[[np.random.Generator, int, int], Iterator[Trial]]


@pytest.mark.parametrize(
    ("trials", "each"),
    [
        *((warps.trials, 1), (cells.trials, 3), (matrices.trials, 5), (warpgroups.trials, 3)),
        *((mbarriers.trials, 2), (clusters.trials, 5), (bulk.trials, 2), (maps.trials, 1)),
    ],
)
def test_kernels_write_what_their_instruction_computes(trials: Trials, each: int) -> None:
    machine = Machine()
    rows = [
        compare(trial, machine.run(trial))
        for number, trial in enumerate(trials(np.random.default_rng(3), 90, 4))
        if number % each == 0
    ]
    assert len(rows) >= 20
    assert [f"{row.opcode}: {row.first}" for row in rows if row.differing] == []
