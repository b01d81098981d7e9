"""Random pipelines of Hopper, emulated and on a GPU, byte by byte: `python -m tests.bench.random_pipelines --record`.

Each number is a pipeline: an even one copies (`pipelines/copies.py`), an odd one multiplies (`pipelines/products.py`),
and numbers of their own load or store columns of pixels (`pipelines/columns.py`).
The emulator runs all of them, in processes side by side, and must find nothing wrong; then the GPU runs the same
machine code on the same bytes, and every byte of memory that a launch can reach is compared. Some pipelines are
illegal: in these the emulator must find something, and the GPU must end with an illegal instruction. A pipeline that
the GPU does not finish, or that leaves its context of no use, gets a row that says so, and the others go on in a new
process.

Options: --count (240) pipelines from --first (0) on, --narrow (40) copies more, of boxes whose rows are shorter than
their swizzle, --columns (40) by im2col maps, and --illegal (15) ones at the end; --jobs processes; --emulate-only FILE
writes what the emulator made of them, and --expected FILE takes it from there (so the first part needs no GPU, the
second no compiler); --differing FOLDER keeps the GPU's bytes of those that differ; --seconds (20) for one launch;
--within (480) seconds for the GPU, after which the others are left out; --record.
"""

import argparse
import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from math import inf
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.bench.pipelines import emulated
from tests.bench.pipelines.columns import random_columns
from tests.bench.pipelines.copies import FAULTS, random_copies
from tests.bench.pipelines.emulated import Emulated
from tests.bench.pipelines.pipeline import Pipeline
from tests.bench.pipelines.products import random_product
from tests.bench.record import record

NAME = "random_pipelines"
_BYTES = ("e4m3", "e5m2")
_COLUMNS = 500_000_000  # numbers from here on stand for columns of pixels
_NARROW = 1_000_000_000  # numbers from here on stand for boxes narrower than their swizzle
_ILLEGAL = 2_000_000_000  # and from here on for what ends with an illegal instruction
_REFUSAL = "CUDA_ERROR_ILLEGAL_INSTRUCTION"
_LARGEST = ("largest_ulp", "largest_share")


def draw(number: int) -> Pipeline:
    """The pipeline of a number."""
    if number >= _ILLEGAL:
        return random_copies(number, fault=FAULTS[number % len(FAULTS)])
    if number >= _NARROW:
        return random_copies(number, narrow=True)
    if number >= _COLUMNS:
        return random_columns(number)
    return random_product(number) if number % 2 else random_copies(number)


def emulate(number: int) -> Emulated:
    """What the emulator makes of a pipeline."""
    return emulated.emulate(draw(number))


def on_gpu(path: Path, skip: int, differing: Path | None) -> Iterator[dict[str, Any]]:
    """Run the pipelines of a file on the GPU, but for the first few, and give a row for each."""
    from kernel_lsp.device.driver import CudaError
    from tests.bench.pipelines.gpu import Gpu, difference

    gpu = Gpu()
    for one in emulated.read(path, skip):
        pipeline = draw(one.seed)
        row: dict[str, Any] = {"number": one.seed, "family": pipeline.family, "words": pipeline.words}
        if pipeline.digest != one.digest:
            yield row | {"failed": "the file has another pipeline of this number: write it again"}
            continue
        try:
            after = gpu.run(pipeline, one.cubin)
        except CudaError as error:
            gpu.finish()  # raises if the context is of no use any more
            yield row | {"failed": str(error)}
            continue
        pairs = zip(pipeline.buffers, one.contents(pipeline), after, strict=True)
        found = [difference(buffer.kind, mine, real) for buffer, mine, real in pairs]
        if differing is not None and any(each.other_bytes for each in found):
            np.savez_compressed(differing / f"{one.seed}.npz", *after)
        yield row | {"memory": [dataclasses.asdict(each) for each in found]}


def serve(options: argparse.Namespace) -> None:
    """Write a row for each pipeline to standard output, and end with a row that says why if a call fails."""
    try:
        for row in on_gpu(options.expected, options.worker, options.differing):
            print(json.dumps(row), flush=True)
    except Exception as error:  # the context is of no use after most of them; the next process goes on
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)


def gather(path: Path, numbers: Sequence[int], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give a row for each pipeline of a file, from processes that are started anew when one dies or hangs.

    When `--within` seconds are over, no other process is started.
    """
    done, end = 0, time.monotonic() + options.within
    while done < len(numbers) and time.monotonic() < end:
        command = [sys.executable, "-m", "tests.bench.random_pipelines", "--worker", str(done), "--expected", str(path)]
        command += ["--differing", str(options.differing)] if options.differing else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        why = ""
        try:
            for line in lines(process.stdout, options.seconds):
                if time.monotonic() > end:
                    return
                row = json.loads(line)
                if "number" not in row:
                    why = row["failed"]
                    break
                done += 1
                yield row
        except TimeoutError:
            why = f"no answer in {options.seconds:g} s"
        finally:
            process.kill()
            process.wait()
        if done < len(numbers):
            pipeline = draw(numbers[done])
            failed = why or "its process ended"
            yield {"number": numbers[done], "family": pipeline.family, "words": pipeline.words, "failed": failed}
            done += 1


def lines(stream: IO[str], seconds: float, end: float = inf) -> Iterator[str]:
    """Give the lines of a stream.

    Raises:
        TimeoutError: none came for so long, or it is later than `end` on the monotonic clock.
    """
    held: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            held.put(line)
        held.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = held.get(timeout=max(0.0, min(seconds, end - time.monotonic())))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return
        yield line


def all_emulated(numbers: Iterable[int], jobs: int) -> Iterator[Emulated]:
    """What the emulator makes of pipelines, from several processes."""
    with ProcessPoolExecutor(jobs) as pool:
        for one in pool.map(emulate, numbers, chunksize=4):
            for finding in one.findings if one.seed < _ILLEGAL else ():
                print(f"{one.seed}: {draw(one.seed).words}: the emulator finds {finding}", flush=True)
            yield one


def of_bytes(family: str) -> bool:
    """Whether a family multiplies 8-bit floats."""
    return any(kind in family for kind in _BYTES)


def summarise(all_rows: Sequence[dict[str, Any]], findings: dict[int, Sequence[str]]) -> dict[str, Any]:
    """How many pipelines are equal, all and by family, and how many illegal ones are refused."""
    families: dict[str, dict[str, Any]] = {}
    rows = [row for row in all_rows if row["number"] < _ILLEGAL]
    illegal = [row for row in all_rows if row["number"] >= _ILLEGAL]
    for row in rows:
        family = families.setdefault(
            row["family"],
            {
                "pipelines": 0,
                "equal": 0,
                "failed": 0,
                "bytes": 0,
                "other_bytes": 0,
                "largest_ulp": 0,
                "largest_share": 0.0,
            },
        )
        memory = row.get("memory", [])
        family["pipelines"] += 1
        family["failed"] += "failed" in row
        family["equal"] += "failed" not in row and not any(each["other_bytes"] for each in memory)
        family["bytes"] += sum(each["nbytes"] for each in memory)
        family["other_bytes"] += sum(each["other_bytes"] for each in memory)
        for name in _LARGEST:
            family[name] = max([family[name], *(each[name] for each in memory)])
    return {
        "pipelines": len(rows),
        "with_every_bit_claimed": len(rows),
        "of_these_equal_in_every_byte": sum(family["equal"] for family in families.values()),
        "sums_of_8_bit_floats": sum(of_bytes(row["family"]) for row in rows),
        "of_these_equal": sum(families[f]["equal"] for f in families if of_bytes(f)),
        "emulator_findings": sum(bool(found) for number, found in findings.items() if number < _ILLEGAL),
        "failed": [f"{row['number']}, {row['words']}: {row['failed']}" for row in rows if "failed" in row],
        "illegal": len(illegal),
        "illegal_not_refused": [
            f"{row['number']}, {row['words']}: {row.get('failed', 'it ended')}" for row in illegal if not _expected(row)
        ],
        "illegal_without_finding": [n for n, found in findings.items() if n >= _ILLEGAL and not found],
        "left_out": len(findings) - len(all_rows),
        "families": dict(sorted(families.items())),
        "differing": [
            row | {"memory": [each for each in row["memory"] if each["other_bytes"]]}
            for row in rows
            if any(each["other_bytes"] for each in row.get("memory", []))
        ],
    }


def main() -> None:
    """Emulate, run, compare and print; ends with 1 where something differs that should not, or fails."""
    options = _arguments()
    if options.worker is not None:
        serve(options)
        return
    if options.differing:
        options.differing.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pipelines-") as folder:
        path = options.expected or options.emulate_only or Path(folder, "expected.npz")
        began = time.perf_counter()
        if options.expected is None:
            parts = (
                *((options.first, options.count), (_COLUMNS, options.columns)),
                *((_NARROW, options.narrow), (_ILLEGAL, options.illegal)),
            )
            numbers = chain.from_iterable(range(first, first + count) for first, count in parts)
            emulated.write(path, all_emulated(numbers, options.jobs))
        held = {one.seed: one for one in emulated.read(path)}
        emulating = time.perf_counter() - began
        alone = sum(one.seconds for one in held.values())
        print(f"{len(held)} pipelines emulated: {alone:.1f} s of processor time, {emulating:.1f} s in all", flush=True)
        if options.emulate_only:
            raise SystemExit(any(bool(one.findings) != (number >= _ILLEGAL) for number, one in held.items()))
        began, rows = time.perf_counter(), list[dict[str, Any]]()
        for row in gather(path, list(held), options):
            rows.append(row)
            if not _expected(row):
                print(_said(row), flush=True)
        figures = summarise(rows, {number: one.findings for number, one in held.items()})
        figures |= {"emulated_s": round(emulating, 1), "gpu_s": round(time.perf_counter() - began, 1)}
    for name, value in figures.items():
        if name not in ("differing", "families"):
            print(f"{name}: {value}")
    for name, family in figures["families"].items():
        print(f"{name:28s} {family}")
    if options.record:
        print(record(NAME, figures))
    different = figures["pipelines"] - figures["of_these_equal_in_every_byte"]
    wrong = ("failed", "emulator_findings", "illegal_not_refused", "illegal_without_finding", "left_out")
    raise SystemExit(bool(different or any(figures[name] for name in wrong)))


def _expected(row: dict[str, Any]) -> bool:
    """Return True for a pipeline that is equal, or illegal and refused."""
    if row["number"] >= _ILLEGAL:
        return _REFUSAL in row.get("failed", "")
    return "failed" not in row and not any(each["other_bytes"] for each in row["memory"])


def _said(row: dict[str, Any]) -> str:
    """One line about a pipeline that is not as expected."""
    told = f"{row['number']} {row['family']} ({row['words']}): "
    if row["number"] >= _ILLEGAL and "failed" not in row:
        return told + "it is illegal, but ended"
    if "failed" in row:
        return told + row["failed"]
    each = [
        f"b{number}: {m['other_elements']} of {m['elements']} elements differ, {m['largest_ulp']} ulp, {m['first']}"
        for number, m in enumerate(row["memory"])
        if m["other_bytes"]
    ]
    return told + "; ".join(each)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--narrow", type=int, default=40)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--illegal", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--emulate-only", type=Path, metavar="FILE")
    parser.add_argument("--expected", type=Path, metavar="FILE")
    parser.add_argument("--differing", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--within", type=float, default=480.0)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
