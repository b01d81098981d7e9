"""Sectors and bank conflicts as the emulator counts them and as the GPU does: `python -m tests.bench.access_counters`.

The examples' launches on their smallest case are repeated on the GPU under Nsight Compute (`ncu`), eight times each,
with the same PTX and memory, and its counters set beside ours. Bank conflicts are counted in wavefronts beyond those
that the addresses need, so a difference of theirs is told in percent of all wavefronts; the GPU counts some of its
own where copies to shared memory arrive between stores, other ones each time, and the fewest of the eight are
compared. All are kept. An example that cannot be replayed is listed with its reason. Options: --ncu PROGRAM,
--record. (`--run FILE` is for the program itself: it makes the launches, and writes our counters.)
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.record import record
from tests.bench.replay import Gpu, Step, Subject, each_example, input_bytes

METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
WAVEFRONTS = {
    "shared_load_conflicts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
"""What conflicts are a share of; of the GPU only, for it counts no copies to shared memory among the stores."""
_TIMES = 8


def counted(step: Step) -> dict[str, int]:
    """Our counters of one launch."""
    return {name: getattr(step.outcome.result.counters.total, name) for name in METRICS}


def run(file: Path) -> None:
    """Emulate and repeat every launch; our counters go to `file`, the GPU's are ncu's business."""
    gpu = Gpu()
    rows: list[dict[str, Any]] = []

    def take(example: str, subject: Subject) -> None:
        cases = range(len(subject.workload.cases))
        smallest = min(cases, key=lambda case: input_bytes(subject.inputs(case)))
        for step in subject.steps(smallest):
            for _ in range(_TIMES):
                gpu.repeat(step)
            rows.append({"example": example, "kernel": step.launch.name, "emulated": counted(step)})

    lacking = each_example(take)
    file.write_text(json.dumps({"rows": rows, "not_replayed": lacking}))


def measured(log: str) -> list[dict[str, int]]:
    """What ncu counted, launch by launch, from its CSV; wavefronts under `NAME of`."""
    lines = [line for line in log.splitlines() if line.startswith('"')]
    launches: dict[str, dict[str, int]] = {}
    names = {metric: name for name, metric in METRICS.items()}
    names |= {metric: f"{name} of" for name, metric in WAVEFRONTS.items()}
    for row in csv.DictReader(lines):
        if (name := names.get(row["Metric Name"])) is not None:
            launches.setdefault(row["ID"], {})[name] = int(float(row["Metric Value"].replace(",", "")))
    return [launches[key] for key in sorted(launches, key=int)]


def compared(ours: dict[str, int], times: Sequence[dict[str, int]]) -> dict[str, Any]:
    """Our counts of a launch beside the GPU's: the fewest of all times, all where they differ, how far we are off."""
    least = {name: min(times, key=lambda counts: counts[name]) for name in METRICS}
    off = {name: difference_percent(ours[name], least[name][name], least[name].get(f"{name} of")) for name in METRICS}
    varied = {name: seen for name in METRICS if len(set(seen := [counts[name] for counts in times])) > 1}
    counted = {"gpu": {name: least[name][name] for name in METRICS}, "difference_percent": off}
    return counted | ({"gpu_each_time": varied} if varied else {})


def difference_percent(ours: int, theirs: int, whole: int | None = None) -> float:
    """By how much ours is off, in percent of `whole`, or of the GPU's count."""
    return 0.0 if ours == theirs else 100.0 * (ours - theirs) / max(theirs if whole is None else whole, 1)


def main() -> None:
    """Count, compare and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    with tempfile.TemporaryDirectory() as folder:
        ours, log = Path(folder) / "ours.json", Path(folder) / "ncu.csv"
        command = [options.ncu, "--clock-control", "none", "--csv", "--log-file", str(log), "--metrics"]
        metrics = ",".join([*METRICS.values(), *WAVEFRONTS.values()])
        command += [metrics, sys.executable, "-m", "tests.bench.access_counters", "--run", str(ours)]
        subprocess.run(command, check=True)
        emulated, real = json.loads(ours.read_text()), measured(log.read_text())
    rows = emulated["rows"]
    assert rows, "no example was replayed"
    assert _TIMES * len(rows) == len(real), f"{len(rows)} launches emulated, {len(real)} times profiled"
    print(f"{'example':34s} {'kernel':24s}" + "".join(f"{name:>26s}" for name in METRICS))
    for number, row in enumerate(rows):
        row |= compared(row["emulated"], real[_TIMES * number : _TIMES * (number + 1)])
        cells = [f"{row['emulated'][n]} {row['gpu'][n]} {row['difference_percent'][n]:+.1f}%" for n in METRICS]
        print(f"{row['example']:34s} {row['kernel']:24s}" + "".join(f"{cell:>26s}" for cell in cells))
    largest = {n: max(abs(row["difference_percent"][n]) for row in rows) for n in METRICS}
    print("largest difference in percent:", largest)
    if options.record:
        figures = {"largest_difference_percent": largest, "not_replayed": emulated["not_replayed"], "rows": rows}
        print(record("access_counters", figures))


if __name__ == "__main__":
    main()
