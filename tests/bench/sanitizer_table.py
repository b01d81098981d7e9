"""What compute-sanitizer says of the planted bugs, beside ours: `python -m tests.bench.sanitizer_table --record`.

Each program of `tests/fixtures/planted` runs on the GPU under memcheck, racecheck, initcheck and synccheck, in a
process of its own, since a fault ends the context; what never ends is not run there. The emulator's findings on the
same files stand beside. Options: --sanitizer PROGRAM, --jobs PROCESSES AT A TIME (default 8), --record (`--run`,
`--ours`: for the program itself).
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.record import record

PLANTED = Path(__file__).parents[1] / "fixtures" / "planted"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_SECONDS = 120
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_EXPECT = re.compile(r"(?://|#) expect: (.+)$", re.M)
_WORDS = re.compile(r"=========\s+((?:Error|Warning|Invalid|Uninitialized|Barrier|Misaligned|Race)[^\n]*)")


def programs() -> list[Path]:
    """Every planted program and clean twin."""
    files = (path for path in sorted(PLANTED.iterdir()) if path.suffix in (".cu", ".py"))
    return [path for path in files if not path.stem.endswith("_workload")]


def run(path: Path) -> None:
    """Run one program on the GPU, as its workload launches it."""
    import torch

    from kernel_lsp.build.cuda import build_cuda
    from kernel_lsp.build.planner import plan_cuda
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
        names = plan_cuda(workload, [kernel.name for kernel in kernels], arch).names
        built = build_cuda(source, arch, names)
        assert built.binary is not None, built.log
        torch.zeros(1, device="cuda")
        module = LoadedModule(built.binary, {k.name: tuple(p.type for p in k.parameters) for k in kernels})
    launch = bind_launch(module, path, text, workload_path)
    torch.manual_seed(0)
    launch(*make_inputs(workload, workload.cases[0]))
    torch.cuda.synchronize()


def sanitized(sanitizer: str, tool: str, path: Path) -> dict[str, Any]:
    """One tool's verdict on one program: errors or hazards, and the first words about them."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", "86"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # torch asks the driver for what it may not have, and copes
    command += [sys.executable, "-m", "tests.bench.sanitizer_table", "--run", str(path)]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    if "runaway-loop" in _EXPECT.findall(path.read_text()):
        return {"errors": None, "said": "not run: it never ends"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            said, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the program under the tool too
            return {"errors": None, "said": f"not finished after {_SECONDS} s"}
    summaries = [int(count) for count in _SUMMARY.findall(said)]
    words = _WORDS.search(said)
    if not summaries:
        return {"errors": None, "said": (said.strip().splitlines() or ["no summary"])[-1]}
    return {"errors": sum(summaries), "said": words[1] if words else ""}


def emulated() -> dict[str, list[str]]:
    """The emulator's findings on every program, as `kind:line`."""
    import asyncio

    from kernel_lsp.config.settings import Settings
    from kernel_lsp.judge.check import check, find_kernel_files

    found: dict[str, list[str]] = {}
    for report in asyncio.run(check(find_kernel_files([PLANTED]), Settings())):
        runs = report.emulation.runs if report.emulation else ()
        found[report.path.name] = sorted({f"{f.kind}:{f.line}" for r in runs for f in r.findings})
    return found


def main() -> None:
    """Run all tools on all programs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--ours", action="store_true")
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    if options.ours:
        print(json.dumps(emulated()))
        return
    command = [sys.executable, "-m", "tests.bench.sanitizer_table", "--ours"]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    answer = subprocess.run(command, capture_output=True, text=True, env=hidden, check=True)
    ours = json.loads(answer.stdout.splitlines()[-1])
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for path in programs():
            asked = {tool: pool.submit(sanitized, options.sanitizer, tool, path) for tool in TOOLS}
            expected = _EXPECT.findall(path.read_text())
            row = {"program": path.name, "planted": expected, "ours": ours[path.name], "asked": asked}
            rows.append(row)
        for row in rows:
            row["sanitizer"] = {tool: future.result() for tool, future in row.pop("asked").items()}
            said = "  ".join(
                f"{tool} {'-' if v['errors'] is None else v['errors']}" for tool, v in row["sanitizer"].items()
            )
            planted = ", ".join(row["planted"]) or "nothing"
            print(f"{row['program']:40s} {planted:32s} {', '.join(row['ours']) or 'nothing':40s} {said}", flush=True)
    planted = [row for row in rows if row["planted"]]
    clean = [row for row in rows if not row["planted"]]
    figures = {
        "planted": len(planted),
        "found_by_us": sum(bool(row["ours"]) for row in planted),
        "found_by_any_tool": sum(any(v["errors"] for v in row["sanitizer"].values()) for row in planted),
        "clean": len(clean),
        "false_by_us": sum(bool(row["ours"]) for row in clean),
        "false_by_any_tool": sum(any(v["errors"] for v in row["sanitizer"].values()) for row in clean),
        "rows": rows,
    }
    print({key: value for key, value in figures.items() if key != "rows"})
    if options.record:
        print(record("sanitizer_table", figures))


if __name__ == "__main__":
    main()
