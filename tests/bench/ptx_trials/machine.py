"""Trials on the emulator's machine: the way from PTX to the functions that say what an instruction computes."""

import struct
from collections.abc import Callable

import numpy as np

from kernel_lsp.emulate import machine, ptx
from kernel_lsp.emulate.memory import GlobalMemory
from tests.bench.ptx_trials.trial import Array, Trial


class Machine:
    """The emulator in place of a GPU."""

    def run(self, trial: Trial, begin: Callable[[str], None] = lambda _: None) -> Array:
        """The bytes of `out` after the launch, which must have nothing to complain of. `begin` is told of it before."""
        begin("it was emulated")
        memory = GlobalMemory()
        inputs, out = (memory.allocate(name, x) for name, x in (("in", trial.inputs), ("out", trial.initial)))
        parameters = struct.pack("<QQ", inputs.address, out.address)
        grid, block = (trial.blocks, 1, 1), (trial.threads, 1, 1)
        options = machine.Options(check=False)
        machine.run(ptx.load(trial.ptx), "k", grid, block, 0, parameters, memory, options)
        return np.array(out.data)
