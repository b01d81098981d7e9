"""KernelBench's problems judge themselves: `python -m tests.bench.kernelbench_problems --root DIR`.

DIR is the folder with `level1`, `level2` and so on. Of each problem the reference is run, `Model` is judged as
`ModelNew` (it must be SAME on a GPU, and right on the emulator without one: there the case as written is scaled down),
and so is an answer that returns zeros (it must not pass). What cannot be judged is listed with the reason. Beside that
it says which problems take zeros under KernelBench's own tolerances, `atol` and `rtol` of 1e-4, on the same case.

Options: --levels 1,2,3, --problems 19,36, --limit SECONDS for a problem (default 120), and those of `shards.py`. Rows
are kept in `kernelbench_problems.jsonl`.
"""

import asyncio
import gc
import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus, free_bytes
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import open_session, start_pool
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.runner.pool import Pool
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.problem import choose_for_emulator, choose_for_gpu
from tests.bench import shards
from tests.bench.record import record
from tests.bench.shards import Row, Task

NAME = "kernelbench_problems"
TOLERANCE = 1e-4  # KernelBench's for float32
ZEROS = """

def nothing(returned):
    if isinstance(returned, torch.Tensor):
        return torch.zeros_like(returned)
    return type(returned)(nothing(part) for part in returned) if isinstance(returned, (tuple, list)) else returned


class ModelNew(Model):
    def forward(self, *inputs):
        return nothing(super().forward(*inputs))
"""
WEAK = "cannot tell right from wrong"
GOOD = {Outcome.SAME, Outcome.UNTIMED, Outcome.AMBIGUOUS, Outcome.NOT_WORTH_IT}


def renamed(text: str) -> str:
    """The problem as an answer to itself."""
    return re.sub(r"\bModel\b", "ModelNew", text)


def zeros_pass(path: Path) -> bool | str:
    """Whether zeros pass for the right answer under KernelBench's tolerances; a sentence where that cannot be told."""
    gpu = next(iter(find_gpus()), None)
    try:
        with nullcontext() if gpu else Instead("cpu"), torch.no_grad():
            workload = load_workload(path.read_text(), path, "cuda" if gpu else "cpu", 0)
            assert workload.problem is not None
            chosen = choose_for_gpu(workload.problem, free_bytes(gpu)) if gpu else choose_for_emulator(workload.problem)
            case = chosen.cases[chosen.decisive[0]]
            answers = workload.problem.reference(case, *workload.problem.inputs(**case))
            return all(torch.allclose(torch.zeros_like(a), a, atol=TOLERANCE, rtol=TOLERANCE) for a in answers)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


async def judge_problem(path: Path, pool: Pool, seconds: float) -> dict[str, Any]:
    """What is found of one problem."""
    started, row = time.perf_counter(), dict[str, Any]()
    try:
        async with asyncio.timeout(seconds), open_session(make_target(path), Settings(), pool) as session:
            assert session.harness is not None
            workload = session.harness.workload
            row["case"] = workload.cases[workload.decisive[0]]
            row["scaled"] = workload.scaled
            row["open_seconds"] = round(time.perf_counter() - started, 2)
            text = session.target.source.text
            itself = await session.judge(session.target.version(renamed(text), "itself", "user"), always_run=True)
            row["itself"] = said(itself)
            zeros = await session.judge(session.target.version(text + ZEROS, "zeros", "user"))
            row["zeros"] = said(zeros)
    except TimeoutError:
        row["error"] = f"not done within {seconds:.0f} s"
    except KernelLspError as error:
        row["error"] = error.message
    row["seconds"] = round(time.perf_counter() - started, 2)
    return row


def said(verdict: Verdict) -> dict[str, Any]:
    """A verdict in short."""
    skipped = {c.name: c.detail for c in verdict.evidence.checks if c.status == "skipped"}
    return {"verdict": verdict.verdict.value, "reason": verdict.reason, "skipped": skipped}


def tasks(root: Path, levels: Iterable[str], numbers: set[str], limit: float) -> list[Task]:
    """One task for each problem of these levels and, if there are any, of these numbers."""
    paths = [
        path
        for level in levels
        for path in sorted((root / f"level{level}").glob("*.py"), key=lambda p: int(p.name.split("_")[0]))
        if not numbers or path.name.split("_")[0] in numbers
    ]
    return [{"id": f"{p.parent.name}/{p.name}", "path": str(p), "limit": limit, "numbers": [0]} for p in paths]


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """One GPU's pool, and the judging of one problem."""
    async with start_pool(load_settings()[0]) as pool:

        async def do(task: Task) -> AsyncIterator[Row]:
            path = Path(task["path"])
            row = await judge_problem(path, pool, task["limit"])
            row["zeros_pass"] = zeros_pass(path)
            gc.collect()
            torch.cuda.empty_cache()  # the next problem is judged on the same GPU
            verdicts = row.get("error") or f"{row['itself']['verdict']}, zeros {row['zeros']['verdict']}"
            yield {"number": 0, "says": f"{row['seconds']:.1f} s, {verdicts[:110]}"} | row

        yield do


def summary(found: Iterable[Row]) -> dict[str, Any]:
    """Counts, and the names of what does not fit."""
    rows = {r["task"]: {"error": r["failed"], "zeros_pass": r["failed"]} if "failed" in r else r for r in found}
    judged = {name: row for name, row in rows.items() if "error" not in row}
    return {
        "problems": len(rows),
        "judged": len(judged),
        "not_judged": {name: row["error"] for name, row in rows.items() if "error" in row},
        "scaled": sum(bool(row["scaled"]) for row in judged.values()),
        "itself": dict(Counter(row["itself"]["verdict"] for row in judged.values())),
        "itself_not_same": {
            n: f"{r['itself']['verdict']}: {r['itself']['reason']}"
            for n, r in judged.items()
            if r["itself"]["verdict"] != Outcome.SAME
        },
        "zeros": dict(Counter(row["zeros"]["verdict"] for row in judged.values())),
        "zeros_not_rejected": {
            n: r["zeros"]["reason"]
            for n, r in judged.items()
            if r["zeros"]["verdict"] in {*GOOD, Outcome.FASTER} and WEAK not in r["zeros"]["reason"]
        },
        "never_timed_as_zeros_are_right": [n for n, r in judged.items() if WEAK in r["zeros"]["reason"]],
        "zeros_pass_under_kernelbench": [name for name, row in rows.items() if row["zeros_pass"] is True],
        "zeros_not_tried_under_kernelbench": {
            n: r["zeros_pass"] for n, r in rows.items() if r["zeros_pass"] not in (True, False)
        },
    }


def main() -> None:
    """Judge the problems that are asked for, or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--problems", default="")
    parser.add_argument("--limit", type=float, default=120.0)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    numbers = {number for number in options.problems.split(",") if number}
    wanted = tasks(options.root, options.levels.split(","), numbers, options.limit)
    figures = summary(shards.gather(NAME, wanted, options))
    print(json.dumps(figures, indent=2))
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
