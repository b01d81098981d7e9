"""How long a verdict takes with warm workers: `python -m tests.bench.judge_latency`.

Judges 20 fresh variants (a new comment makes each a text never built before) of one CUDA and one Triton example and
prints median and worst seconds by stage, once for variants that are no faster and once for ones that are.
"""

import argparse
import asyncio
import statistics
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.pipeline import Session, open_session
from kernel_lsp.judge.target import make_target
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"


async def judge_many(session: Session, text: str, comment: str, count: int) -> dict[str, Any]:
    """Figures over `count` judgements of the same code under new texts."""
    seconds: list[dict[str, float]] = []
    verdicts: list[str] = []
    for number in range(count):
        candidate = session.target.version(f"{text}\n{comment} variant {number}\n", f"variant {number}", "user")
        await asyncio.sleep(0.5)  # as between a person's edits: the next worker is made ready meanwhile
        verdict = await session.judge(candidate, always_run=True)
        seconds.append(verdict.seconds)
        verdicts.append(verdict.verdict.value)
    stages = {name for row in seconds for name in row}
    return {
        "verdicts": {v: verdicts.count(v) for v in set(verdicts)},
        "median_s": {s: round(statistics.median(row.get(s, 0.0) for row in seconds), 4) for s in sorted(stages)},
        "worst_s": {s: round(max(row.get(s, 0.0) for row in seconds), 4) for s in sorted(stages)},
    }


async def main() -> None:
    """Measure the examples named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--cuda", default="cuda/rmsnorm.cu")
    parser.add_argument("--triton", default="triton/rmsnorm.py")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    for name, comment in ((given.cuda, "//"), (given.triton, "#")):
        target = make_target(EXAMPLES / name)
        async with open_session(target, Settings()) as session:
            figures[name] = await judge_many(session, target.source.text, comment, given.count)
        print(name, figures[name], flush=True)
    gpu = find_gpus()[0]
    record("judge_latency", figures, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    asyncio.run(main())
