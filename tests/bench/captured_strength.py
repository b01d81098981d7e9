"""Planted bugs that a capture catches, beside those of the written workload: `python -m tests.bench.captured_strength`.

Of each file a program calls what its written workload launches, on that workload's own inputs, and is captured. Then
bugs are planted in the file, the same for both, and either workload is asked. The figure is the share that each of them
catches, and by how many points the capture's is less. Without a GPU all of it runs on the emulator, with cases of at
most --most elements. Options: PATHS (Triton files; else some of examples/triton), --most N (default 400000), --record.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernel_lsp.capture.run import capture_program
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.mutation_testing import Fate, FileStrength, measure_strength
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.spec import workload_path
from tests.bench.record import record

GOAL_POINTS = 5.0
_EXAMPLES = Path("examples/triton")
_FILES = [_EXAMPLES / f"{name}.py" for name in ("rmsnorm", "softmax", "layernorm", "swiglu", "rotary")]
_PROGRAM = """import importlib
import sys
import torch

kernels, workload = map(importlib.import_module, sys.argv[1:3])
own = [f for name, f in vars(kernels).items() if callable(f) and getattr(f, "__module__", "") == kernels.__name__
       and type(f).__name__ == "function" and name not in ("inputs", "reference", "launch") and name[0] != "_"]
for case in workload.CASES:
    inputs = workload.inputs(**case)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if int(sys.argv[3]) and sum(x.numel() for x in inputs if isinstance(x, torch.Tensor)) > int(sys.argv[3]):
        continue
    workload.launch(kernels, *inputs) if hasattr(workload, "launch") else own[0](*inputs)
"""


async def both(path: Path, most: int) -> dict[str, Any]:
    """Return the figures of a file: what its written workload catches of the planted bugs, and what a capture does."""
    settings = load_settings(None)[0]
    written = await measure_strength([read_source(path)], settings)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        beside = workload_path(path)
        for file in (path, *([beside] if beside.is_file() else [])):
            shutil.copy(file, folder)
        (folder / "program.py").write_text(_PROGRAM)
        named = beside.stem if beside.is_file() else path.stem
        command = [sys.executable, str(folder / "program.py"), path.stem, named, str(most)]
        captured = capture_program(command, folder / "captures", emulate=most > 0, aside=True)
        if captured.code or not captured.written:
            return {"error": f"ended with {captured.code}, {len(captured.written)} workloads"}
        source = read_source((folder / path.name).resolve())
        by_capture: list[FileStrength] = []
        for workload in captured.written:
            by_capture += await measure_strength([source], settings, workload=workload)
    return {"written": _share(written), "captured": _share(by_capture)}


def _share(reports: list[FileStrength]) -> dict[str, Any]:
    """Return what any of these workloads catches, of the bugs that change the machine code."""
    caught = {(one.line, one.what) for report in reports for one in report.of(Fate.CAUGHT)}
    missed = {(one.line, one.what) for report in reports for one in report.of(Fate.SURVIVED)} - caught
    problems = [report.problem for report in reports if report.problem]
    share = len(caught) / (len(caught) + len(missed)) if caught or missed else None
    return {"caught": len(caught), "missed": sorted(map(list, missed)), "share": share, "problems": problems}


async def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=_FILES)
    parser.add_argument("--most", type=int, default=400000)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    rows: dict[str, Any] = {}
    for path in given.paths:
        rows[str(path)] = await both(path, 0 if find_gpus() else given.most)
        print(json.dumps({str(path): rows[str(path)]}), flush=True)
        if given.record:
            record("captured_strength", {"goal_points": GOAL_POINTS, **_summed(rows), "files": rows})
    print(json.dumps(_summed(rows)))


def _summed(rows: dict[str, Any]) -> dict[str, Any]:
    shares: dict[str, Any] = {}
    for kind in ("written", "captured"):
        found = [row[kind] for row in rows.values() if kind in row]
        caught, missed = (sum(one["caught"] for one in found), sum(len(one["missed"]) for one in found))
        shares[kind] = caught / (caught + missed) if caught + missed else None
    if None in shares.values():
        return shares
    return {**shares, "points_less": 100 * (shares["written"] - shares["captured"])}


if __name__ == "__main__":
    asyncio.run(main())
