"""How long a verdict takes with warm workers: `python -m tests.bench.judge_latency`.

Judges so many texts never built before (a new comment in each) of one CUDA and one Triton example, and prints median
and worst seconds by stage: of the code as it stands, which is timed to the end without a gain, and of a rewrite that is
faster, which is confirmed in fresh processes too. Options: --count JUDGEMENTS of each kind (default 20).
"""

import argparse
import asyncio
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.pipeline import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.rewrites import REWRITES
from kernel_lsp.source.candidate import Candidate, SourceFile
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("cuda/rmsnorm.cu", "triton/layernorm.py")


async def judge_many(session: Session, candidate: Candidate, count: int) -> dict[str, Any]:
    """Figures over `count` judgements of the same code under new texts."""
    comment = "#" if candidate.kernel.path.suffix == ".py" else "//"
    seconds: list[dict[str, float]] = []
    verdicts: list[str] = []
    reasons: dict[str, str] = {}
    for number in range(count):
        text = f"{candidate.kernel.text}\n{comment} {candidate.label} {number}\n"
        await asyncio.sleep(0.5)  # as between a person's edits: the next worker is made ready meanwhile
        version = replace(candidate, kernel=SourceFile(candidate.kernel.path, text))
        verdict = await session.judge(version, always_run=True)
        seconds.append(verdict.seconds)
        verdicts.append(verdict.verdict.value)
        reasons[verdict.verdict.value] = verdict.reason
    stages = sorted({name for row in seconds for name in row})
    return {
        "verdicts": {v: verdicts.count(v) for v in sorted(set(verdicts))},
        "last_reasons": reasons,
        "median_s": {s: round(statistics.median(row.get(s, 0.0) for row in seconds), 4) for s in stages},
        "worst_s": {s: round(max(row.get(s, 0.0) for row in seconds), 4) for s in stages},
    }


def first_rewrite(session: Session) -> Candidate:
    """The first rewrite that applies to the session's file."""
    base = session.target.baseline
    for rewrite in REWRITES[base.language]:
        for candidate in rewrite(base.kernel, base.launch, session.target.kernels[0]):
            return candidate
    raise LookupError(f"no rewrite applies to {base.kernel.path}")


async def main() -> None:
    """Measure both examples and record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    count = parser.parse_args().count
    figures: dict[str, Any] = {}
    for name in NAMES:
        async with open_session(make_target(EXAMPLES / name), Settings()) as session:
            for candidate in (session.target.baseline, first_rewrite(session)):
                version = replace(candidate, origin="user")
                figures[f"{name}: {candidate.label}"] = found = await judge_many(session, version, count)
                print(name, candidate.label, found, flush=True)
    gpu = find_gpus()[0]
    record("judge_latency", figures, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    asyncio.run(main())
