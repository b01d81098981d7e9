"""Judges every example against itself: `python -m tests.bench.self_judgement`.

The same code under a new comment must never be FASTER, and mostly be SAME. Also prints, by timing mode, how far the
medians of both sides lay apart in microseconds: what memory and code placement alone can make (`judge/timing.py`).
Options: --count JUDGEMENTS of each example (default 3).
"""

import argparse
import asyncio
import math
import statistics
import time
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"


async def judge_itself(path: Path, count: int, until: float = math.inf) -> list[Verdict]:
    """So many verdicts on the text of `path` with a comment added; none is begun after `until`, by `time.monotonic`."""
    comment = "#" if path.suffix == ".py" else "//"
    verdicts: list[Verdict] = []
    async with open_session(make_target(path), Settings()) as session:
        text = session.target.source.text
        while len(verdicts) < count and time.monotonic() < until:
            again = f"{text}\n{comment} again {len(verdicts)}\n"
            verdicts.append(await session.judge(session.target.version(again, "itself", "user"), always_run=True))
    return verdicts


async def main() -> None:
    """Judge all examples and record what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3)
    count = parser.parse_args().count
    outcomes: dict[str, int] = {}
    apart: dict[str, list[float]] = {}
    rows: list[dict[str, Any]] = []
    for source in find_kernel_files([EXAMPLES]):
        verdicts = await judge_itself(source.path, count)
        for verdict in verdicts:
            outcomes[verdict.verdict.value] = outcomes.get(verdict.verdict.value, 0) + 1
            for case in verdict.cases:
                apart.setdefault(case.mode, []).append(abs(case.candidate_us - case.baseline_us))
        found = [{"verdict": v.verdict.value, "interval": v.interval, "reason": v.reason} for v in verdicts]
        rows.append({"example": str(source.path.relative_to(EXAMPLES)), "verdicts": found})
        print(f"{rows[-1]['example']:26s} {', '.join(v.verdict.value for v in verdicts)}", flush=True)
    spread = {
        mode: {"cases": len(us), "median_us": statistics.median(us), "largest_us": max(us)}
        for mode, us in apart.items()
    }
    print(outcomes, spread)
    gpu = find_gpus()[0]
    figures = {"outcomes": outcomes, "sides_apart": spread, "examples": rows}
    record("self_judgement", figures, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    asyncio.run(main())
