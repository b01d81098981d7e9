"""Warp instructions, atomics and tensor cores (`wgmma` too), drawn at random: the emulator's answers beside a GPU's.

    python -m tests.bench.ptx_fuzz_warp [--seed N] [--warps N] [--only TEXT] [--arch N] [--emulator] [--record]

Each opcode becomes one kernel that many warps execute on operands of their own, with random but legal sets of active
lanes and member masks, random cells and addresses. What the ISA leaves undefined is not compared. The table has one row
an opcode: instances (warps that executed it), results compared, results that differ, and for floating-point results the
largest distance in units in the last place. `--assemble` only has every kernel assembled by the given ptxas, which
needs no GPU; `--emulator` runs the kernels on the whole emulator, which must agree with its own parts.
"""

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.ptx_trials import cells, matrices, warpgroups, warps
from tests.bench.ptx_trials.trial import Array, Trial


@dataclasses.dataclass(frozen=True)
class Row:
    """How one trial went."""

    opcode: str
    instances: int
    compared: int
    differing: int
    largest_ulp: int | None
    first: str


def main() -> int:
    """The table on standard output; exit status 1 where anything differs or is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warps", type=int, default=128, help="of each opcode, a multiple of 4")
    parser.add_argument("--only", default="", help="opcodes that contain this")
    parser.add_argument("--arch", type=int, default=90, help="target, and the machine's architecture")
    parser.add_argument("--assemble", metavar="PTXAS")
    parser.add_argument("--emulator", action="store_true", help="run the kernels on the emulator in place of a GPU")
    parser.add_argument("--record", action="store_true", help="write results/ptx_fuzz_warp.json")
    arguments = parser.parse_args()
    selected = (t for t in trials(arguments.seed, arguments.arch, arguments.warps) if arguments.only in t.opcode)
    if arguments.assemble:
        return assemble(selected, arguments.assemble, arguments.arch)
    if arguments.emulator:
        from tests.bench.ptx_trials.machine import Machine as Runner
    else:
        from tests.bench.ptx_trials.gpu import Gpu as Runner

    runner = Runner()
    rows: list[Row] = []
    for trial in selected:
        rows.append(compare(trial, runner.run(trial)))
        print(text(rows[-1]), flush=True)
    instances, differing = sum(row.instances for row in rows), sum(row.differing > 0 for row in rows)
    print(f"{len(rows)} forms, {instances} instances, {differing} forms differ")
    if arguments.record:
        from tests.bench.record import record

        figures = {"forms": len(rows), "instances": instances, "forms_that_differ": differing}
        record("ptx_fuzz_warp", {**figures, "rows": [dataclasses.asdict(row) for row in rows]})
    return int(differing > 0)


def trials(seed: int, arch: int, count: int) -> Iterator[Trial]:
    """All of them, for one seed."""
    for module in (warps, cells, matrices, warpgroups):
        yield from module.trials(np.random.default_rng(seed), arch, count)


def compare(trial: Trial, found: Array) -> Row:
    """The emulator's bits beside the machine's."""
    want, got = trial.expected, found.view(np.uint8).view(trial.expected.dtype)
    bits = np.dtype(f"u{want.itemsize}")
    wrong = trial.defined & (want.view(bits) != got.view(bits))
    largest = None
    if want.dtype.kind == "f":
        largest = int(distance(want, got)[wrong].max(initial=0))
    first = ""
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        first = f"[{i}] emulator {want[i]!r} {want.view(bits)[i]:#x}, machine {got[i]!r} {got.view(bits)[i]:#x}"
    return Row(trial.opcode, trial.instances, int(trial.defined.sum()), int(wrong.sum()), largest, first)


def distance(x: Array, y: Array) -> Array:
    """How many floating-point numbers lie between two; two NaNs are none apart, a NaN and a number the type's range."""
    signed = np.dtype(f"i{x.itemsize}")
    low = np.iinfo(signed).min

    def ordered(values: Array) -> Array:
        bits = values.view(signed)
        return np.where(bits < 0, low - bits, bits).astype(np.float64)

    apart = np.abs(ordered(x) - ordered(y))
    return np.where(
        np.isnan(x) & np.isnan(y), 0, np.where(np.isnan(x) | np.isnan(y), 2.0 ** (8 * x.itemsize - 1), apart)
    )


def text(row: Row) -> str:
    """One line of the table."""
    largest = "" if row.largest_ulp is None else f"{row.largest_ulp} ulp"
    return f"{row.opcode:72} {row.instances:6} {row.compared:8} {row.differing:7} {largest:>8}  {row.first}".rstrip()


def assemble(selected: Iterator[Trial], ptxas: str, arch: int) -> int:
    """Whether the assembler takes every kernel."""
    kernels = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.ptx")
        for trial in selected:
            source.write_text(trial.ptx)
            target = f"sm_{arch}a" if f".target sm_{arch}a" in trial.ptx else f"sm_{arch}"
            command = [ptxas, f"-arch={target}", "-O0", str(source), "-o", str(source.with_suffix(".cubin"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            kernels, refused = kernels + 1, refused + (done.returncode != 0)
            if done.returncode:
                print(f"{trial.opcode}: {done.stderr.strip().splitlines()[0]}")
    print(f"{kernels} kernels, {refused} refused")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
