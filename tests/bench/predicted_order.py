"""Predicted against measured order of candidates: `python -m tests.bench.predicted_order`. Needs no GPU.

The races that `refine_examples` has recorded tell how long candidates take. The rewrites of each example and its
settings that differ in one number are made anew; those of a recorded label are built for the GPU of the record, a few
of their blocks are emulated, and their times are predicted (`refine.prediction`). Printed for each example: the rank
correlation (Spearman) of predicted and measured times, the baseline among them, beside that of the instructions alone;
the best measured time, and the best among the three that were predicted to be the fastest.

A record older than the rewrites may have held another text under the same label; one with digests is matched by those.
Options: --races NAME... of results (refine_cuda refine_triton); --only WORD... in an example's name; --most N
candidates of each example (40); --record, which is done after each example, so that what was cut off is kept.
"""

import argparse
import asyncio
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import Device, device_named
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.inputs.findings import RUN_ERRORS
from kernel_lsp.judge.sampling import sample_largest
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.prediction import SampledVersion, predicted_ratio
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels
from tests.bench.record import RESULTS, record
from tests.bench.refine_examples import EXAMPLES
from tests.bench.sessions import scratch_folder, settings_below

NAME = "predicted_order"
_FEWEST = 5  # candidates for a correlation
_FASTER = 0.99  # largest ratio of a gain


@dataclass(frozen=True, slots=True)
class Point:
    """One candidate: measured and predicted time over the baseline's, and the ratio of executed instructions."""

    label: str
    measured: float
    predicted: float
    instructions: float


def proposals(base: Candidate, device: Device) -> Iterator[Candidate]:
    """Yield the rewrites of a file, and its settings that differ in one number; each text once."""
    seen = {base.digest}
    for kernel in find_kernels(base.kernel.text, base.kernel.path):
        space = find_tunables(base, kernel.name, device)
        steps = (space.form({one.name: value}) for one in space.tunables for value in one.choices)
        for candidate in (*find_rewrites(base, kernel, device), *steps):
            if candidate is not None and candidate.digest not in seen:
                seen.add(candidate.digest)
                yield candidate


def measured_ratio(candidate: Candidate, tried: Sequence[dict[str, Any]]) -> float | None:
    """Return the recorded ratio of a candidate's race; None if there is none, or its label is not of one text alone."""
    raced = [one for one in tried if one["ratio"] is not None and not one["judged"]]
    found = [one for one in raced if one["label"] == candidate.label]
    if any("digest" in one for one in raced):
        found = [one for one in raced if one.get("digest") == candidate.digest]
    return found[0]["ratio"] if len(found) == 1 else None


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, ties sharing their mean rank; None where one side is all alike."""
    try:
        return statistics.correlation(_ranks(first), _ranks(second))
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def instructions(version: SampledVersion) -> float:
    """Return the instructions that warps would execute in all blocks."""
    run = version.sample.run
    grids = {one.kernel: 0 for one in run.launches}
    for launch in run.launches:
        grids[launch.kernel] += launch.grid_blocks
    return sum(sum(one.opcodes.values()) * grids[one.kernel] / one.blocks for one in run.totals)


async def points(session: Session, device: Device, tried: Sequence[dict[str, Any]], most: int) -> list[Point]:
    """Return what was predicted of a session's candidates that a record has the times of."""
    measured, built = session.measured, session.baseline_built
    if measured is None or built is None:
        return []
    if (sample := await sample_largest(measured.harness, measured.baseline)) is None:
        return []
    before, found = SampledVersion(built, sample), list[Point]()
    for candidate in proposals(session.target.baseline, device):
        ratio = measured_ratio(candidate, tried)
        if ratio is None or len(found) == most:
            continue
        made = await session.builders.build(session.target.workload, candidate)
        if not made.ok:
            continue
        try:
            subject = await measured.harness.enter(candidate, made)
        except RUN_ERRORS:
            continue
        taken = await sample_largest(measured.harness, subject)
        await measured.harness.leave(subject)
        if taken is not None:
            after = SampledVersion(made, taken)
            executed = instructions(after) / instructions(before)
            found.append(Point(candidate.label, ratio, predicted_ratio(device, before, after), executed))
    return found


def figures_of(found: Sequence[Point]) -> dict[str, Any]:
    """Return the figures of one example; without correlations if there are too few candidates."""
    row: dict[str, Any] = {"candidates": len(found)}
    if len(found) < _FEWEST:
        return row
    times = [*(one.measured for one in found), 1.0]
    top = sorted(found, key=lambda one: one.predicted)[:3]
    return row | {
        "rank_correlation": rank_correlation(times, [*(one.predicted for one in found), 1.0]),
        "rank_correlation_of_instructions": rank_correlation(times, [*(one.instructions for one in found), 1.0]),
        "best_ratio": min(one.measured for one in found),
        "best_ratio_of_predicted_three": min(one.measured for one in top),
        "points": [[one.label, one.measured, one.predicted] for one in found],
    }


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over examples with a correlation; and how often the three hold the fastest of all."""
    known = [row for row in rows if row.get("rank_correlation") is not None]
    if not known:
        return {"examples_with_correlation": 0}
    by_instructions = [row["rank_correlation_of_instructions"] or 0.0 for row in known]
    faster = [row for row in known if row["best_ratio"] < _FASTER]
    hits = [row["best_ratio_of_predicted_three"] <= row["best_ratio"] for row in faster]
    return {
        "examples_with_correlation": len(known),
        "mean_rank_correlation": statistics.mean(row["rank_correlation"] for row in known),
        "median_rank_correlation": statistics.median(row["rank_correlation"] for row in known),
        "mean_rank_correlation_of_instructions": statistics.mean(by_instructions),
        "examples_with_a_faster_candidate": len(faster),
        "best_among_predicted_three": sum(hits),
    }


def line(row: dict[str, Any]) -> str:
    """Return one row of the printed table."""
    head = f"{row['example']:28s} {row.get('candidates', 0):3d} candidates"
    if row.get("rank_correlation") is None:
        return f"{head}  {row.get('error', 'too few for a correlation')}"
    return (
        f"{head}  rank correlation {row['rank_correlation']:5.2f}, by instructions "
        f"{row['rank_correlation_of_instructions'] or 0.0:5.2f}; best {row['best_ratio']:.3f}, "
        f"of the predicted three {row['best_ratio_of_predicted_three']:.3f}"
    )


async def example_row(name: str, device: Device, tried: Sequence[dict[str, Any]], most: int) -> dict[str, Any]:
    """Return the row of one example; an error is a row too."""
    async with scratch_folder() as folder:
        settings: Settings = settings_below(folder).model_copy(update={"arch": [device.arch]})
        try:
            async with open_session(make_target(EXAMPLES / name), settings) as session:
                return {"example": name, **figures_of(await points(session, device, tried, most))}
        except KernelLspError as error:
            return {"example": name, "error": str(error)}


async def main() -> None:
    """Predict, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", nargs="*", default=["refine_cuda", "refine_triton"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the emulator counts, on any machine
    rows: list[dict[str, Any]] = []
    for name in options.races:
        kept = json.loads((RESULTS / f"{name}.json").read_text())
        device = device_named(kept["device"].rpartition("NVIDIA ")[2])
        for example in kept["figures"]["examples"]:
            known = {row["example"] for row in rows if row.get("candidates")}
            wanted = not options.only or any(word in example["example"] for word in options.only)
            if not wanted or "tried" not in example or example["example"] in known:
                continue
            rows.append(await example_row(example["example"], device, example["tried"], options.most))
            print(line(rows[-1]), flush=True)
            if options.record:
                record(NAME, {**summarise(rows), "races": options.races, "examples": rows})
    for name, value in summarise(rows).items():
        print(f"{name}: {value if isinstance(value, int) else round(value, 3)}")


if __name__ == "__main__":
    asyncio.run(main())
