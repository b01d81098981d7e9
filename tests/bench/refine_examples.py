"""Refines every example, then judges each variant again in fresh processes: `python -m tests.bench.refine_examples`.

Prints a table and records it under `refine_examples`. Options: --budget SECONDS for each example (default 45), --only
NAME... , --out NAME of the result, --variants DIR to keep the refined files.
"""

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.search import refine
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"


async def refine_one(path: Path, budget: float, variants: Path | None) -> dict[str, Any]:
    """Figures of one example; an error is a figure too."""
    settings, target = Settings(), make_target(path)
    started = time.perf_counter()
    row: dict[str, Any] = {"example": str(path.relative_to(EXAMPLES))}
    async with open_session(target, settings) as session:
        measured = session.measured
        assert measured is not None, "this benchmark needs a GPU"
        row["open_seconds"] = round(time.perf_counter() - started, 2)
        if (broken := measured.profile.findings.ruling) is not None:
            return row | {"error": broken.reason}
        row["skipped"] = [f"{c.name}: {c.detail}" for c in measured.profile.findings.checks if c.detail]
        row["weak"] = measured.profile.weak
        row["timed"] = [
            {"case": measured.harness.cases[c.draw.case], "mode": c.mode, "baseline_us": round(c.baseline_us, 2)}
            for c in measured.cases
        ]
        found = await refine(session, budget=budget)
    row |= figures_of(found)
    if found.variant is None or found.best is None:
        return row
    if variants is not None:
        variants.mkdir(parents=True, exist_ok=True)
        (variants / path.name).write_text(found.variant.kernel.text)
        if found.variant.launch is not None and found.variant.launch.text != target.workload.source.text:
            (variants / target.workload.source.path.name).write_text(found.variant.launch.text)
    async with open_session(target, settings) as again:
        verdict = await again.judge(found.variant)
    return row | {
        "again": verdict.verdict.value,
        "again_speedup": verdict.speedup,
        "again_interval": verdict.interval,
        "again_reason": verdict.reason,
    }


def figures_of(found: Refinement) -> dict[str, Any]:
    outcomes: dict[str, int] = {}
    for tried in found.tried:
        outcomes[tried.feedback.verdict.value] = outcomes.get(tried.feedback.verdict.value, 0) + 1
    row: dict[str, Any] = {
        "reason": found.reason,
        "candidates": len(found.tried),
        "outcomes": outcomes,
        "seconds": round(found.seconds, 1),
        "seconds_to_first": None if found.seconds_to_first is None else round(found.seconds_to_first, 1),
        "tried": [
            {
                "label": t.candidate.label,
                "digest": t.candidate.digest,
                "verdict": t.feedback.verdict.value,
                "ratio": t.feedback.ratio,
                "judged": t.verdict is not None,
                "message": t.feedback.message[:200],
            }
            for t in found.tried
        ],
    }
    if found.best is not None:
        best = found.best
        row |= {
            "label": best.evidence.candidate_label,
            "speedup": best.speedup,
            "interval": best.interval,
            "cases": [
                {
                    "case": c.case,
                    "mode": c.mode,
                    "baseline_us": c.baseline_us,
                    "candidate_us": c.candidate_us,
                    "speedup": c.speedup,
                    "interval": c.interval,
                    "baseline_roofline_share": c.baseline_roofline_share,
                    "roofline_share": c.roofline_share,
                }
                for c in best.cases
            ],
            "verdict_seconds": best.seconds,
        }
    return row


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['example']:28s} {row['error'][:150]}"
    head = f"{row['example']:28s} {row['candidates']:3d} candidates {row['seconds']:6.1f} s "
    if row.get("speedup") is None:
        return f"{head} {row['reason'][:110]}"
    low, high = row["interval"]
    large = max(row["cases"], key=lambda c: c["baseline_us"])
    share = f", {large['roofline_share']:.0%} of roofline" if large["roofline_share"] else ""
    return (
        f"{head} {row['speedup']:.3f}x ({low:.3f}-{high:.3f}) first after {row['seconds_to_first']} s, largest case "
        f"{large['baseline_us']:.1f} -> {large['candidate_us']:.1f} us{share}; again {row['again']} "
        f"{row['again_speedup'] or 0:.3f}; {row['label']}"
    )


async def main() -> None:
    """Refine what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=45.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", default="refine_examples")
    parser.add_argument("--variants", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for source in find_kernel_files([EXAMPLES]):
        name = f"{source.path.parent.name}/{source.path.stem}"
        if given.only and not any(part in name for part in given.only):
            continue
        variants = given.variants / source.path.parent.name if given.variants else None
        try:
            rows.append(await refine_one(source.path, given.budget, variants))
        except KernelLspError as error:
            rows.append({"example": name, "error": str(error)})
        print(_line(rows[-1]), flush=True)
        gpu = find_gpus()[0]
        record(given.out, {"budget_s": given.budget, "examples": rows}, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    asyncio.run(main())
