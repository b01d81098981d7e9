"""What compute-sanitizer says of the planted bugs, beside ours: `python -m tests.bench.sanitizer_table --record`.

Each program of `tests/fixtures/planted` runs on the GPU under memcheck, racecheck, initcheck and synccheck, in a
process of its own, since a fault ends the context; a loop that never ends is not run there, and what hangs at a barrier
is ended after its time. The emulator's findings on the same files stand beside. Rows are printed as they are complete;
interrupted (SIGINT, SIGTERM), it ends what runs and keeps the complete ones.

Options: --sanitizer PROGRAM, --jobs PROCESSES AT A TIME (default: one a core, 16 at most), --seconds FOR EACH RUN
(default 60), --hanging SECONDS for one of a program that hangs by our findings, which come last (default 20), --only
WORD in a program's name, --record; --keep RESULT takes over the rows of an earlier result file, whose programs are not
run again; --ours prints our findings and ends, and --emulated FILE takes them from there, which spares the GPU's time
(`--run`: for the program itself).
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.bench.record import record

PLANTED = Path(__file__).parents[1] / "fixtures" / "planted"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_OURS_SECONDS = 300
_END_SECONDS = 30  # the driver takes its time over the memory of a process that is killed
_STOPS = (signal.SIGINT, signal.SIGTERM)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_EXPECT = re.compile(r"(?://|#) expect: (.+)$", re.M)
_WORDS = re.compile(r"=========\s+((?:Error|Warning|Invalid|Uninitialized|Barrier|Misaligned|Race)[^\n]*)")


def programs(words: Sequence[str] = ()) -> list[Path]:
    """Every planted program and clean twin, or those with one of the words in their names."""
    files = (path for path in sorted(PLANTED.iterdir()) if path.suffix in (".cu", ".py"))
    named = [path for path in files if not path.stem.endswith("_workload")]
    return [path for path in named if not words or any(word in path.name for word in words)]


def run(path: Path) -> None:
    """Run one program on the GPU, as its workload launches it."""
    import torch

    from kernel_lsp.compiler.cuda.build import build_cuda
    from kernel_lsp.compiler.cuda.planner import plan_cuda
    from kernel_lsp.device.device import device_named
    from kernel_lsp.device.driver import LoadedModule
    from kernel_lsp.device.nvml import find_gpus
    from kernel_lsp.source.files import find_kernels, read_source
    from kernel_lsp.workload.execute import load_module
    from kernel_lsp.workload.load import bind_launch, load_workload
    from kernel_lsp.workload.workload import make_inputs

    source, workload_path = read_source(path), path.with_name(f"{path.stem}_workload.py")
    text = workload_path.read_text()
    workload = load_workload(text, workload_path)
    if path.suffix == ".py":
        module: Any = load_module(source.text, path)
    else:
        arch, kernels = find_gpus()[0].arch, find_kernels(source.text, path)
        names = plan_cuda(workload, [kernel.name for kernel in kernels], device_named(arch)).names
        built = build_cuda(source, arch, names)
        assert built.binary is not None, built.log
        torch.zeros(1, device="cuda")
        module = LoadedModule(built.binary, {k.name: tuple(p.type for p in k.parameters) for k in kernels})
    launch = bind_launch(module, path, text, workload_path)
    torch.manual_seed(0)
    launch(*make_inputs(workload, workload.cases[0]))
    torch.cuda.synchronize()


def sanitized(sanitizer: str, tool: str, path: Path, seconds: float, running: set[int]) -> dict[str, Any]:
    """One tool's verdict on one program: errors or hazards, and the first words about them.

    Its process group is in `running` for as long as it runs, to be ended from outside.
    """
    command = [sanitizer, "--tool", tool, "--error-exitcode", "86"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # torch asks the driver for what it may not have, and copes
    command += [sys.executable, "-m", "tests.bench.sanitizer_table", "--run", str(path)]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    if "runaway-loop" in _EXPECT.findall(path.read_text()):
        return {"errors": None, "said": "not run: it never ends"}
    with tempfile.TemporaryFile("w+") as output:  # a pipe may be held open by what outlives the tool
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        )
        running.add(process.pid)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"errors": None, "said": f"not finished after {seconds:g} s{_end(process)}"}
        finally:
            running.discard(process.pid)
        output.seek(0)
        said = output.read()
    summaries = [int(count) for count in _SUMMARY.findall(said)]
    words = _WORDS.search(said)
    if not summaries:
        return {"errors": None, "said": (said.strip().splitlines() or ["no summary"])[-1]}
    return {"errors": sum(summaries), "said": words[1] if words else ""}


def _end(process: subprocess.Popen[bytes]) -> str:
    """Kill a tool and the program under it; what there is to say if that does not end it."""
    os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return ", and it cannot be killed"
    return ""


def complete(
    rows: Sequence[dict[str, Any]],
    sanitizer: str,
    jobs: int,
    seconds: float,
    on_row: Callable[[dict[str, Any]], None],
    *,
    hanging: float = 20.0,
) -> None:
    """Run all tools on the programs of `rows`; `on_row` hears of each row when its last tool is done, till interrupted.

    The verdict of each tool is in `row["sanitizer"]`. Programs in which threads wait for ever come last, as they slow
    down all others on the GPU, and get `hanging` seconds.
    """
    running: set[int] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        asked = {
            pool.submit(sanitized, sanitizer, tool, PLANTED / row["program"], limit, running): (row, tool)
            for limit, some in ((seconds, [row for row in rows if not _hangs(row)]), (hanging, filter(_hangs, rows)))
            for row in some
            for tool in TOOLS
        }
        for future in as_completed(asked):
            row, tool = asked[future]
            row["sanitizer"][tool] = future.result()
            if len(row["sanitizer"]) == len(TOOLS):
                on_row(row)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for group in tuple(running):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(group, signal.SIGKILL)
        pool.shutdown()


def _hangs(row: dict[str, Any]) -> bool:
    return any(found.startswith("deadlock") for found in row["ours"])


def _stop(number: int, frame: object) -> None:
    """What a first signal to end does; `timeout` sends two, and the second must not stop the record."""
    for one in _STOPS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def emulated() -> dict[str, list[str]]:
    """The emulator's findings on every program, as `kind:line`."""
    import asyncio

    from kernel_lsp.check import check, find_kernel_files
    from kernel_lsp.config.settings import Settings

    found: dict[str, list[str]] = {}
    for report in asyncio.run(check(find_kernel_files([PLANTED]), Settings())):
        runs = report.emulation.runs if report.emulation else ()
        found[report.path.name] = sorted({f"{f.kind}:{f.line}" for r in runs for f in r.findings})
    return found


def emulated_apart() -> dict[str, list[str]]:
    """The same from a process that sees no GPU."""
    command = [sys.executable, "-m", "tests.bench.sanitizer_table", "--ours"]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    answer = subprocess.run(command, capture_output=True, text=True, env=hidden, check=True, timeout=_OURS_SECONDS)
    return json.loads(answer.stdout.splitlines()[-1])


def asked_for(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row for each program that is to be run, and those that an earlier result has of others."""
    ours = json.loads(options.emulated.read_text()) if options.emulated else emulated_apart()
    held: dict[str, dict[str, Any]] = {}
    if options.keep:
        held = {row["program"]: row["sanitizer"] for row in json.loads(options.keep.read_text())["figures"]["rows"]}
    wanted = programs(options.only)
    rows: list[dict[str, Any]] = [
        {
            "program": path.name,
            "planted": _EXPECT.findall(path.read_text()),
            "ours": ours[path.name],
            "sanitizer": held.get(path.name, {}),
        }
        for path in programs()
        if path in wanted or path.name in held
    ]
    return [row for row in rows if not row["sanitizer"]], [row for row in rows if row["sanitizer"]]


def summarise(rows: Sequence[dict[str, Any]], missing: Sequence[str]) -> dict[str, Any]:
    """How many programs we and the tools find, and how many clean ones they complain of."""
    planted = [row for row in rows if row["planted"]]
    clean = [row for row in rows if not row["planted"]]

    def complaints(among: Sequence[dict[str, Any]]) -> int:
        return sum(any(verdict["errors"] for verdict in row["sanitizer"].values()) for row in among)

    return {
        "planted": len(planted),
        "found_by_us": sum(bool(row["ours"]) for row in planted),
        "found_by_any_tool": complaints(planted),
        "clean": len(clean),
        "false_by_us": sum(bool(row["ours"]) for row in clean),
        "false_by_any_tool": complaints(clean),
        "not_finished": sum("not finished" in v["said"] for row in rows for v in row["sanitizer"].values()),
        "programs_missing": sorted(missing),
        "rows": sorted(rows, key=lambda row: row["program"]),
    }


def main() -> None:
    """Run all tools on all programs and print a table."""
    options = _arguments()
    if options.run:
        run(options.run)
        return
    if options.ours:
        print(json.dumps(emulated()))
        return
    every, rows = asked_for(options)
    for number in _STOPS:
        signal.signal(number, _stop)

    def take(row: dict[str, Any]) -> None:
        rows.append(row | {"sanitizer": {tool: row["sanitizer"][tool] for tool in TOOLS}})
        said = "  ".join(f"{t} {'-' if (n := row['sanitizer'][t]['errors']) is None else n}" for t in TOOLS)
        planted = ", ".join(row["planted"]) or "nothing"
        print(f"{row['program']:40s} {planted:32s} {', '.join(row['ours']) or 'nothing':40s} {said}", flush=True)

    complete(every, options.sanitizer, options.jobs, options.seconds, take, hanging=options.hanging)
    figures = summarise(rows, [row["program"] for row in every if len(row["sanitizer"]) < len(TOOLS)])
    print({key: value for key, value in figures.items() if key != "rows"})
    if options.record:
        print(record("sanitizer_table", figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hanging", type=float, default=20.0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--emulated", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--ours", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
