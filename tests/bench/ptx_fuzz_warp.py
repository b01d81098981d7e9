"""Instructions of warps, tensor cores, atomics and of Hopper, drawn at random: the emulator's answers beside a GPU's.

    python -m tests.bench.ptx_fuzz_warp [--seed N] [--warps N] [--family NAME] [--only TEXT] [--arch N] [--record]

Each opcode becomes one kernel that many warps execute on operands of their own, with random but legal sets of active
lanes and member masks, random cells and addresses, histories of barriers. What the ISA leaves undefined is not
compared. The table has one row an opcode: instances (warps that executed it), results compared, results that differ,
and for floating-point results the largest distance in units in the last place. Each family (a module of `ptx_trials`)
runs in a process of its own, which is started anew behind a trial that fails or hangs: its row says why, and which
step was under way. When `--within` seconds are over, the others are left out. `--assemble` only has every kernel
assembled by the given ptxas, which needs no GPU; `--emulator` runs the kernels on the whole emulator, which must agree
with its own parts.
"""

import argparse
import dataclasses
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.ptx_trials import bulk, cells, clusters, maps, matrices, mbarriers, warpgroups, warps
from tests.bench.ptx_trials.trial import Array, Trial
from tests.bench.random_pipelines import lines

FAMILIES: dict[str, Callable[[np.random.Generator, int, int], Iterator[Trial]]] = {
    module.__name__.rpartition(".")[2]: module.trials
    for module in (warps, cells, matrices, warpgroups, mbarriers, clusters, bulk, maps)
}

_NO_TIME = "no time was left"


@dataclasses.dataclass(frozen=True)
class Row:
    """How one trial went; `failed` says why it has no results."""

    opcode: str
    instances: int
    compared: int
    differing: int
    largest_ulp: int | None
    first: str
    failed: str = ""


def main() -> int:
    """The table on standard output; exit status 1 where anything differs, fails or is left out."""
    arguments = _arguments()
    families = arguments.family or list(FAMILIES)
    if arguments.assemble:
        every = itertools.chain.from_iterable(trials(family, arguments) for family in families)
        return assemble(every, arguments.assemble, arguments.arch)
    if arguments.worker is not None:
        serve(arguments)
        return 0
    rows, cut, end = list[Row](), dict[str, str](), time.monotonic() + arguments.within
    with ThreadPoolExecutor(1 if arguments.emulator else len(families)) as pool:
        found = pool.map(lambda family: gather(family, end, arguments), families)
        for family, (some, why) in zip(families, found, strict=True):
            rows += some
            cut |= {family: why} if why else {}
            print("\n".join(map(text, some)), flush=True)
    figures = {
        "forms": len(rows),
        "instances": sum(row.instances for row in rows),
        "forms_that_differ": sum(row.differing > 0 for row in rows),
        "forms_that_failed": sum(bool(row.failed) for row in rows),
        "families_cut": cut,
    }
    print(", ".join(f"{name}: {value}" for name, value in figures.items()))
    if arguments.record:
        from tests.bench.record import record

        print(record("ptx_fuzz_warp", {**figures, "rows": [dataclasses.asdict(row) for row in rows]}))
    return int(any(figures[name] for name in ("forms_that_differ", "forms_that_failed", "families_cut")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warps", type=int, default=128, help="of each opcode, a multiple of 4")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="may be given several times")
    parser.add_argument("--only", default="", help="opcodes that contain this")
    parser.add_argument("--arch", type=int, default=90, help="target, and the machine's architecture")
    parser.add_argument("--seconds", type=float, default=30.0, help="for one trial on the GPU")
    parser.add_argument("--within", type=float, default=480.0, help="seconds for all of them")
    parser.add_argument("--assemble", metavar="PTXAS")
    parser.add_argument("--emulator", action="store_true", help="run the kernels on the emulator in place of a GPU")
    parser.add_argument("--record", action="store_true", help="write results/ptx_fuzz_warp.json")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def trials(family: str, arguments: argparse.Namespace) -> Iterator[Trial]:
    """The trials of a family that are asked for."""
    every = FAMILIES[family](np.random.default_rng(arguments.seed), arguments.arch, arguments.warps)
    return (trial for trial in every if arguments.only in trial.opcode)


def serve(arguments: argparse.Namespace) -> None:
    """Write a row before each step of each trial of a family but the first `--worker` ones, and one with its results.

    The rows before name the step in `failed`, for the process that listens should this one end there.
    """
    if arguments.emulator:
        from tests.bench.ptx_trials.machine import Machine as Runner
    else:
        from tests.bench.ptx_trials.gpu import Gpu as Runner

    runner = Runner()
    for trial in itertools.islice(trials(arguments.family[0], arguments), arguments.worker, None):
        begun = Row(trial.opcode, trial.instances, 0, 0, None, "")
        tell(compare(trial, runner.run(trial, partial(_tell_step, begun))))


def _tell_step(begun: Row, step: str) -> None:
    tell(dataclasses.replace(begun, failed=step))


def tell(row: Row) -> None:
    """Write a row for the process that listens."""
    print(json.dumps(dataclasses.asdict(row)), flush=True)


def gather(family: str, end: float, arguments: argparse.Namespace) -> tuple[list[Row], str]:
    """The rows of a family, and why these are not all; empty if they are.

    Behind a trial that fails a new process goes on. At `end` on the monotonic clock no more are awaited.
    """
    rows = list[Row]()
    while True:
        said = list[Row]()
        why = listen(family, len(rows), end, arguments, said.append)
        rows += [row for row in said if not row.failed]
        if why == _NO_TIME or not said or not said[-1].failed:
            return rows, why
        rows.append(dataclasses.replace(said[-1], failed=f"{why or 'its process ended'} while {said[-1].failed}"))


def listen(family: str, skip: int, end: float, arguments: argparse.Namespace, take: Callable[[Row], None]) -> str:
    """Why a process of a family, which leaves out the first trials, ended; empty if it had no more. It may be killed.

    `take` gets the rows that it writes.
    """
    command = [sys.executable, "-m", "tests.bench.ptx_fuzz_warp", "--worker", str(skip), "--family", family]
    for name in ("seed", "warps", "only", "arch"):
        command += [f"--{name}", str(getattr(arguments, name))]
    command += ["--emulator"] if arguments.emulator else []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        assert process.stdout is not None
        try:
            for line in lines(process.stdout, arguments.seconds, end):
                take(Row(**json.loads(line)))
            status = process.wait()
        except TimeoutError:
            return _NO_TIME if time.monotonic() > end else f"no answer in {arguments.seconds:g} s"
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        if status < 0:
            return f"signal {-status} ({signal.strsignal(-status)})"
        return "" if status == 0 else (said.read().strip().splitlines() or [f"exit status {status}"])[-1]


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
    said = f"failed: {row.failed}" if row.failed else row.first
    return f"{row.opcode:72} {row.instances:6} {row.compared:8} {row.differing:7} {largest:>8}  {said}".rstrip()


def assemble(selected: Iterator[Trial], ptxas: str, arch: int) -> int:
    """Whether the assembler takes every kernel."""
    kernels = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.ptx")
        for trial in selected:
            source.write_text(trial.ptx)
            target = f"sm_{arch}a" if f".target sm_{arch}a" in trial.ptx else f"sm_{arch}"
            command = [ptxas, f"-arch={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            kernels, refused = kernels + 1, refused + (done.returncode != 0)
            if done.returncode:
                print(f"{trial.opcode}: {done.stderr.strip().splitlines()[0]}")
    print(f"{kernels} kernels, {refused} refused")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
