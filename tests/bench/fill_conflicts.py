"""Bank conflicts of `cp.async` that fills zeros in for some lanes: `python -m tests.bench.fill_conflicts --record`.

Where a copy to shared memory reads for some lanes of a warp and fills zeros in for others, the GPU counts conflicts
among its stores that the addresses do not explain (`l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st`). One copy of
one warp a block, without conflicts by its addresses, is made here for different sets of lanes under Nsight Compute, and
the count set beside what four rules foretell: none; one for each request of both kinds of lanes; one for each pass
(128 bytes, so 8 lanes of 16 bytes) of both kinds; one for each block. Options: --ncu PROGRAM, --record. (`--run` is for
the program itself: it makes the launches.)
"""

import argparse
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kernel_lsp.device.arguments import LaunchShape
from kernel_lsp.runner.workers.emulated_launch import Emulated
from tests.bench.access_counters import METRICS, measured
from tests.bench.record import record
from tests.bench.replay import Gpu, Memory, Step

COUNTER = "shared_store_conflicts"
WARP, PASS_BYTES = 32, 128
_ADDRESS = 1 << 40  # stands for the buffer's, wherever it lies
_PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 source, .param .u32 reading) {{
  .reg .b64 %rd<4>;
  .reg .b32 %r<8>;
  .shared .align 128 .b8 there[512];
  ld.param.u64 %rd0, [source];
  cvta.to.global.u64 %rd0, %rd0;
  ld.param.u32 %r0, [reading];
  mov.u32 %r1, %tid.x;
  shr.u32 %r2, %r0, %r1;
  and.b32 %r2, %r2, 1;
  mul.lo.u32 %r2, %r2, {width};
  mul.lo.u32 %r3, %r1, {width};
  cvt.u64.u32 %rd1, %r3;
  add.s64 %rd1, %rd0, %rd1;
  mov.u32 %r4, there;
  add.u32 %r4, %r4, %r3;
  cp.async.{cache}.shared.global [%r4], [%rd1], {width}, %r2;
  cp.async.wait_all;
  ret;
}}
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """Copies of `width` bytes a lane; lanes whose bit is set in `reading` read, the others fill zeros in."""

    name: str
    width: int
    reading: int
    blocks: int = 1

    def foretold(self) -> dict[str, int]:
        """The conflicts by each rule."""
        lanes = PASS_BYTES // self.width
        passes = [self.reading >> at & (1 << lanes) - 1 for at in range(0, WARP, lanes)]
        both = sum(part not in (0, (1 << lanes) - 1) for part in passes)
        request = self.reading not in (0, (1 << WARP) - 1)
        return {"none": 0, "request": self.blocks * request, "pass": self.blocks * both, "block": self.blocks}


_SETS = {
    "all read": 0xFFFFFFFF,
    "none reads": 0,
    "the first 14 read": 0x00003FFF,
    "the lower half reads": 0x0000FFFF,
    "all but the last read": 0x7FFFFFFF,
    "the first of each 8 reads": 0x01010101,
    "every other one reads": 0x55555555,
    "two passes of both kinds": 0x0000FF0F | 0x03000000,
}
TRIALS = [
    *(Trial(name, width, reading) for width in (16, 8, 4) for name, reading in _SETS.items()),
    *(Trial(f"{name}, 12 blocks", 16, _SETS[name], 12) for name in ("all read", "the first 14 read")),
]


def run() -> None:
    """Make the launches."""
    gpu = Gpu()
    data = np.zeros(WARP * 16, np.uint8)
    before = (Memory("source", torch.uint8, _ADDRESS, data),)
    for trial in TRIALS:
        ptx = _PTX.format(width=trial.width, cache="cg" if trial.width == 16 else "ca")
        shape = LaunchShape((trial.blocks, 1, 1), (WARP, 1, 1), 0)
        packed = (struct.pack("<Q", _ADDRESS), struct.pack("<I", trial.reading))
        gpu.repeat(Step(Emulated(ptx, "fill", "fill", shape, packed, ()), before, (), None))


def main() -> None:
    """Count, compare and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--run", action="store_true")
    options = parser.parse_args()
    if options.run:
        run()
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [options.ncu, "--clock-control", "none", "--csv", "--log-file", str(log), "--metrics"]
        command += [METRICS[COUNTER], sys.executable, "-m", "tests.bench.fill_conflicts", "--run"]
        subprocess.run(command, check=True)
        counts = [launch[COUNTER] for launch in measured(log.read_text())]
    assert len(counts) == len(TRIALS), f"{len(TRIALS)} launches made, {len(counts)} profiled"
    rows = [
        {"name": trial.name, "width": trial.width, "blocks": trial.blocks, "gpu": count, **trial.foretold()}
        for trial, count in zip(TRIALS, counts, strict=True)
    ]
    rules = TRIALS[0].foretold()
    print(f"{'lanes':40s} {'bytes':>6s} {'GPU':>6s}" + "".join(f"{rule:>10s}" for rule in rules))
    for row in rows:
        print(f"{row['name']:40s} {row['width']:6d} {row['gpu']:6d}" + "".join(f"{row[rule]:10d}" for rule in rules))
    right = {rule: sum(row[rule] == row["gpu"] for row in rows) for rule in rules}
    print(f"right in {len(rows)} trials:", right)
    if options.record:
        print(record("fill_conflicts", {"right": right, "rows": rows}))


if __name__ == "__main__":
    main()
