"""Liger's operators as workloads, with nothing written: `python -m tests.bench.captured_liger`.

A program calls sixteen operators of Liger's (of the folder that `tests/wild/fetch.py` fills), forward and backward, and
is captured. Figures: the operators both of whose passes became workloads, and their bytes on disk; and of the captured
functions, how many are held to themselves in float64, and how many files pass `check` as they stand. Without a GPU all
of it runs on the emulator. Options: --public DIR (default .public), --only WORD for files of that name, --no-check,
--record.
"""

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.check import check
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER
from tests.bench.record import record

GOAL_OPERATORS, GOAL_FLOAT64 = 0.95, 0.90
_OPERATORS = {
    "cross_entropy": "LigerCrossEntropyFunction.apply(rand(12, 200), labels, None)[0]",
    "dyt": "LigerDyTFunction.apply(rand(12, 96), rand(1), rand(96), rand(96))",
    "fused_add_rms_norm": "LigerFusedAddRMSNormFunction.apply(rand(12, 96), rand(12, 96), rand(96), 1e-6)[0]",
    "geglu": "LigerGELUMulFunction.apply(rand(12, 96), rand(12, 96))",
    "group_norm": "LigerGroupNormFunction.apply(rand(3, 8, 20), rand(8), rand(8), 8, 2, 1e-6)",
    "jsd": "LigerJSDFunction.apply(rand(12, 200).log_softmax(-1), rand(12, 200).log_softmax(-1).detach())",
    "kl_div": "LigerKLDivLossFunction.apply(rand(12, 200).log_softmax(-1), rand(12, 200).softmax(-1).detach())",
    "layer_norm": "LigerLayerNormFunction.apply(rand(12, 96), rand(96), rand(96), 1e-6)",
    "poly_norm": "LigerPolyNormFunction.apply(rand(12, 96), rand(3), rand(), 1e-6, False)",
    "relu_squared": "LigerReLUSquaredFunction.apply(rand(12, 96))",
    "rms_norm": 'LigerRMSNormFunction.apply(rand(12, 96), rand(96), 1e-6, 0.0, "llama", False)',
    "rope": "sum(LigerRopeFunction.apply(rand(2, 4, 6, 16), rand(2, 4, 6, 16), angles.cos(), angles.sin()))",
    "softmax": "LigerSoftmaxFunction.apply(rand(12, 200))",
    "sparsemax": "LigerSparsemaxFunction.apply(rand(12, 96), -1)",
    "swiglu": "LigerSiLUMulFunction.apply(rand(12, 96), rand(12, 96))",
    "tvd": "LigerTVDLossFunction.apply(rand(12, 200).softmax(-1), rand(12, 200).softmax(-1).detach())",
}
_PROGRAM = """import importlib
import json
import sys
import torch

torch.manual_seed(0)
labels = torch.randint(200, (12,), device="cuda")
angles = torch.rand(1, 6, 16, device="cuda")
failed = {}


def rand(*shape):
    return torch.randn(shape, device="cuda").requires_grad_()


for file, called in json.loads(sys.argv[1]).items():
    try:
        result = eval(called, {**vars(importlib.import_module(file)), **globals()})
        (result * torch.rand_like(result)).sum().backward()
    except Exception as error:
        failed[file] = f"{type(error).__name__}: {error}"[:300]
with open("failed.json", "w") as file:
    json.dump(failed, file)
"""


async def figures(public: Path, operators: dict[str, str], *, checked: bool) -> dict[str, Any]:
    """Return the figures; `operators` are calls by files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        for path in (public / "liger").glob("*.py"):
            if not path.stem.endswith("_workload"):
                shutil.copy(path, folder)
        shutil.copytree(public / "liger" / "liger_kernel", folder / "liger_kernel")
        (folder / "program.py").write_text(f"import os\nos.chdir({str(folder)!r})\n{_PROGRAM}")
        command = [sys.executable, str(folder / "program.py"), json.dumps(operators)]
        captured = capture_program(command, folder / FOLDER, emulate=not find_gpus(), aside=True)
        failed = json.loads((folder / "failed.json").read_text())
        found = _operators(captured, operators)
        row: dict[str, Any] = {"failed": failed, "operators": len(operators), "functions": len(captured.written)}
        row["both_passes"] = sorted(one for one in found if one not in failed and _has_both(one, found[one]))
        row["without"] = {one.name: one.why for one in captured.seen.kernels if one.why}
        row["share"] = len(row["both_passes"]) / (len(operators) - len(failed))
        row["bytes_a_function"] = sum(path.stat().st_size for path in captured.written) / len(captured.written)
        if checked:
            row |= await _checked(folder, found)
    return row


def _operators(captured: Captured, operators: dict[str, str]) -> dict[str, list[str]]:
    """Return the captured functions of each operator's file."""
    pairs = [(Path(made.kernel).stem, made.function) for made in captured.seen.captures]
    return {name: [function for file, function in pairs if file == name] for name in operators}


def _has_both(name: str, functions: list[str]) -> bool:
    """Return True if both passes are captured; a loss whose forward pass makes the gradient too has one."""
    whole = name in ("cross_entropy", "jsd", "tvd")
    return bool(functions) and (whole or any(re.search("back|bwd", one) for one in functions))


async def _checked(folder: Path, found: dict[str, list[str]]) -> dict[str, Any]:
    settings = load_settings(None)[0]
    rungs, passed, problems = dict[str, str](), 0, list[str]()
    for name in (name for name, functions in found.items() if functions):
        try:
            (report,) = await check([read_source(folder / f"{name}.py")], settings)
        except KernelLspError as error:
            problems.append(f"{name}: {error}")
            continue
        passed += report.ok
        problems += [f"{name}: {one.message}" for one in report.diagnostics if not report.ok]
        for one in report.diagnostics:
            if said := re.search(r"\.(\w+)\.\w+\.capture\.json: as right as the captured function, (.*)", one.message):
                rungs[f"{name}.{said[1]}"] = said[2]
        print(f"{name}: {'passes' if report.ok else 'fails'}", file=sys.stderr, flush=True)
    wide = sum(said == "in float64" for said in rungs.values())
    others = {name: said for name, said in rungs.items() if said != "in float64"}
    checked = {"files_checked": sum(map(bool, found.values())), "files_passed": passed, "problems": problems}
    return {**checked, "float64": wide, "float64_share": wide / max(len(rungs), 1), "other_rungs": others}


async def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", type=Path, default=Path(".public"))
    parser.add_argument("--only", default="")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    operators = {name: call for name, call in _OPERATORS.items() if given.only in name}
    row = await figures(given.public.resolve(), operators, checked=not given.no_check)
    row |= {"goal_operators": GOAL_OPERATORS, "goal_float64": GOAL_FLOAT64}
    print(json.dumps(row, indent=2))
    if given.record:
        record("captured_liger", row)


if __name__ == "__main__":
    asyncio.run(main())
