"""Does the judge find what is there, and are its intervals right?  `python -m tests.bench.power`.

Versions of an element-wise kernel, a reduction and a GEMM that do 2 % or 1 % more or less work, as much work, or 30 %
more. What that is in time is measured first, for each of them on the GPU that judges it: blocks of the judge's own
kind, several seconds of them, over several pairs of fresh processes (`truth`). Then the version is judged again and
again.

A gain is decided rightly when it is called FASTER, a loss when it is called SLOWER; how many losses were at least
turned down (SLOWER or NOT_WORTH_IT) is counted too. At an effect of 1 % the margin delta is 0.5 %: with the default of
1 % the effect would lie on the margin itself, where no answer is the right one. An interval covers when it holds the
truth.

Options: --judgements of each kind at 1 % and 2 % (34), --others at none and at 30 % (12), --truths pairs of processes
(12), --truth-ms of blocks in each (250), --kinds, --effects (all), and those of `shards.py`. Rows are kept in
`power.jsonl`.
"""

import asyncio
import math
import random
import statistics
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kernel_lsp import policy
from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.integrity.fresh_inputs import FreshInputs
from kernel_lsp.judge.measure import intervals
from kernel_lsp.judge.measure.blocks import PairedMeasurement, Series, warm_up
from kernel_lsp.judge.measure.cases import TimedCase, ready
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.subject import Subject
from kernel_lsp.source.candidate import Candidate
from tests.bench import shards, specimens
from tests.bench.record import record
from tests.bench.sessions import kept, scratch_folder, session_of, settings_below, warm_pool
from tests.bench.shards import Row, Task

NAME = "power"
KINDS = ("elementwise", "reduction", "gemm")
EFFECTS = (-0.02, -0.01, 0.0, 0.01, 0.02, 0.3)
"""Share of work added; negative is a gain."""
SMALL_DELTA = 0.005
SHAPES = {"elementwise": (1 << 26, 256), "reduction": (1 << 27, 256), "gemm": (1 << 20, 4000)}
"""Elements and depth of each kind, see `specimens.case`."""


def tasks(
    judgements: int,
    others: int,
    truths: int,
    truth_ms: float,
    kinds: Sequence[str] = KINDS,
    effects: Sequence[float] = EFFECTS,
) -> list[Task]:
    """One task for each kind and effect: first its true size, then its judgements."""
    made: list[Task] = []
    for effect in effects:
        count = judgements if 0 < abs(effect) < 0.1 else others
        numbers = [*(f"truth {n}" for n in range(truths)), *range(count)]
        for kind in kinds:
            name = f"{kind}/{effect:+.2f}"
            made.append({"id": name, "kind": kind, "effect": effect, "truth_ms": truth_ms, "numbers": numbers})
    return made


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """One GPU's pool, and the measuring and judging of one task's version."""
    async with warm_pool() as pool, scratch_folder() as folder:

        async def do(task: Task) -> AsyncIterator[Row]:
            kind, effect = task["kind"], task["effect"]
            elements, depth = SHAPES[kind]
            path = specimens.write(folder, kind, elements, specimens.BASE_EXTRA, depth)
            delta = SMALL_DELTA if abs(effect) == 0.01 else policy.DELTA
            settings = settings_below(
                folder, JudgeSettings(families=["normal"], sanitize="off", steady_load="off", delta=delta)
            )
            async with session_of(pool, path, settings) as session:
                for number in task["numbers"]:
                    text = specimens.text(kind, specimens.slower_by(effect), f"{effect:+} {number}")
                    candidate = session.target.version(text, f"{effect:+}", "user")
                    if str(number).startswith("truth"):
                        row = await measure_truth(session, candidate, task["truth_ms"])
                    else:
                        row = kept(await session.judge(candidate, always_run=True))
                    yield {"number": number, "kind": kind, "effect": effect, "delta": delta} | row

        yield do


async def measure_truth(session: Session, candidate: Candidate, gpu_ms: float) -> Row:
    """ln(candidate / baseline) over so much GPU time of blocks, both in fresh processes."""
    blocks = await measure_blocks(session, candidate, gpu_ms)
    if blocks is None:
        return {"truth": None, "says": "nothing is timed here"}
    series = blocks.series
    found = intervals.summarise(series.combined)
    return {
        "truth": found.mean,
        "deviation": found.deviation,
        "blocks": found.n,
        "us": statistics.median(series.baseline_us[0]),
        "gpu_ms": round(series.gpu_ms, 1),
        "sm_clock_mhz": [min(series.clocks), max(series.clocks)] if series.clocks else None,
        "says": f"{math.expm1(found.mean):+.3%} in {found.n} blocks of deviation {found.deviation:.3%}",
    }


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one pair of processes, and of each the place in memory that it used."""

    series: Series
    places: list[int]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a pair of processes is set up. By default as a judgement does it, but for what a confirmation adds.

    Attributes:
        in_turn: places are made ready for both sides in turn, not for one before the other.
        beside: another process has the candidate loaded and recorded, as the one of a first look.
        renew: inputs are drawn anew before each half of a block.
        halves: half of the baseline's places are made ready before the candidate's, and half after them.
        memories: launches that work in memory of their own.
    """

    in_turn: bool = False
    beside: bool = False
    renew: bool = False
    halves: bool = False
    memories: int = policy.PLACES


async def measure_blocks(
    session: Session, candidate: Candidate, gpu_ms: float, arrangement: Arrangement | None = None
) -> Blocks | None:
    """Blocks of both sides in fresh processes; None where nothing is timed."""
    arrangement = arrangement or Arrangement()
    measured = session.measured
    if measured is None or not measured.cases:
        return None
    harness, cases = measured.harness, measured.cases
    built = await session.builders.build(session.target.workload, candidate)
    sides: list[Subject] = []
    blocks = Blocks(Series.empty(cases), [])
    rng = random.Random(len(candidate.kernel.text))
    other: Subject | None = None
    try:
        if arrangement.beside:
            other = await harness.enter(candidate, built)
            await ready(harness, other, cases)
        for version, build in ((measured.baseline.candidate, measured.baseline.built), (candidate, built)):
            sides.append(await harness.enter(version, build))
        await harness.settle()
        async with session.timer():
            fresh = (
                FreshInputs(harness, sides[0], sides[1], other, same_bits=True, rng=rng) if arrangement.renew else None
            )
            pair = PairedMeasurement(
                harness, sides[0], sides[1], cases, rng, renewal=fresh, spread=arrangement.memories
            )
            if arrangement.in_turn:
                await _ready_in_turn(harness, sides, cases)
            if arrangement.halves:
                await _ready_by_halves(harness, sides, cases)
            await pair.make_ready()
            await warm_up(sides, cases[-1])
            while blocks.series.gpu_ms < gpu_ms:
                if await pair.watched_block(blocks.series):
                    blocks.places.append(pair.placed[0].place)
    finally:
        for side in (*sides, *([other] if other else [])):
            await harness.leave(side)
        harness.refill()
    return blocks


def _places(cases: Sequence[TimedCase]) -> int:
    """So many places that as many launches work in memory of their own as in a judgement."""
    return -(-policy.PLACES // min(case.buffers for case in cases))


async def _ready_by_halves(harness: Harness, sides: Sequence[Subject], cases: Sequence[TimedCase]) -> None:
    """Record the baseline in half of the places, then the candidate in all."""
    places = _places(cases)
    for side, count in zip(sides, (places // 2, places), strict=True):
        for place in range(count):
            await ready(harness, side, [case.at(place) for case in cases])


async def _ready_in_turn(harness: Harness, sides: Sequence[Subject], cases: Sequence[TimedCase]) -> None:
    """Record both sides in one place after the other."""
    for place in range(_places(cases)):
        for side in sides:
            await ready(harness, side, [case.at(place) for case in cases])


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """The figures by effect, and by kind within it."""
    rows = [row for row in rows if "failed" not in row]
    truths = _truths(rows)
    judged = [row for row in rows if "verdict" in row and (row["kind"], row["effect"]) in truths]
    figures: dict[str, Any] = {"judgements": len(judged), "by_effect": {}}
    for effect in sorted({row["effect"] for row in judged}):
        inside = [row for row in judged if row["effect"] == effect]
        kinds = sorted({row["kind"] for row in inside})
        figures["by_effect"][f"{effect:+.2f}"] = _figures(inside, truths) | {
            "kinds": {
                kind: _figures([row for row in inside if row["kind"] == kind], truths) | _size(truths[kind, effect])
                for kind in kinds
            }
        }
    if judged:
        figures["coverage"] = _coverage(judged, truths)
    return figures


def _truths(rows: Sequence[Row]) -> dict[tuple[str, float], list[Row]]:
    """By kind and effect the measurements of the true size, where there is one at least."""
    found: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        if row.get("truth") is not None:
            found.setdefault((row["kind"], row["effect"]), []).append(row)
    return found


def _true_value(measurements: Sequence[Row]) -> float:
    return statistics.fmean(row["truth"] for row in measurements)


def _size(measurements: Sequence[Row]) -> dict[str, Any]:
    """The true change in time, and how far single pairs of processes lie from it."""
    values = [row["truth"] for row in measurements]
    return {
        "true_change": round(math.expm1(_true_value(measurements)), 6),
        "deviation_between_processes": round(statistics.stdev(values), 6) if len(values) > 1 else None,
        "truth_gpu_ms": round(sum(row["gpu_ms"] for row in measurements), 1),
        "us": round(statistics.median(row["us"] for row in measurements), 2),
    }


def _figures(rows: Sequence[Row], truths: dict[tuple[str, float], list[Row]]) -> dict[str, Any]:
    effect = rows[0]["effect"]
    verdicts = [row["verdict"] for row in rows]
    right = {"FASTER"} if effect < 0 else {"SLOWER"} if effect > 0 else {"SAME", "NOT_WORTH_IT", "AMBIGUOUS"}
    figures: dict[str, Any] = {
        "delta": rows[0]["delta"],
        "judgements": len(rows),
        "right_share": _share(verdict in right for verdict in verdicts),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        "median_gpu_ms": statistics.median(row["gpu_ms"] for row in rows),
        "median_s": statistics.median(row["seconds"]["total"] for row in rows),
    }
    if effect > 0:
        figures["turned_down_share"] = _share(verdict in ("SLOWER", "NOT_WORTH_IT") for verdict in verdicts)
    return figures | {"coverage": _coverage(rows, truths)}


def _coverage(rows: Sequence[Row], truths: dict[tuple[str, float], list[Row]]) -> dict[str, Any]:
    """How many intervals hold the true value: of claims measured twice (a t interval), and of others."""
    figures: dict[str, Any] = {}
    for name, confirmed in (("confirmed", True), ("at_any_look", False)):
        inside = [row for row in rows if row["interval"] is not None and row["confirmed"] is confirmed]
        if inside:
            covered = _share(covers(row, _true_value(truths[row["kind"], row["effect"]])) for row in inside)
            widths = [math.log(row["interval"][1] / row["interval"][0]) / 2 for row in inside if row["interval"][0]]
            figures[name] = {
                "intervals": len(inside),
                "covered_share": covered,
                "median_half_width": round(statistics.median(widths), 6) if widths else None,
            }
    return figures


def covers(row: Row, truth: float) -> bool:
    """Whether the interval of a row's speedup holds the true ln(candidate / baseline)."""
    low, high = row["interval"]
    return low <= math.exp(-truth) <= high


def _share(events: Iterable[bool]) -> float:
    happened = list(events)
    return round(sum(happened) / len(happened), 4)


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| work | kernel | us | true change | judgements | right | turned down | verdicts | covered | GPU ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for effect, of_effect in figures["by_effect"].items():
        for kind, cell in (*of_effect["kinds"].items(), ("all", of_effect)):
            verdicts = ", ".join(f"{count} {name}" for name, count in cell["verdicts"].items())
            covered = ", ".join(f"{c['covered_share']:.1%} of {c['intervals']}" for c in cell["coverage"].values())
            change = f"{cell['true_change']:+.2%}" if "true_change" in cell else ""
            down = f"{cell['turned_down_share']:.1%}" if "turned_down_share" in cell else ""
            lines.append(
                f"| {float(effect):+.0%} | {kind} | {cell.get('us', '')} | {change} | {cell['judgements']} | "
                f"{cell['right_share']:.1%} | {down} | {verdicts} | {covered} | {cell['median_gpu_ms']:.0f} |"
            )
    for name, found in figures.get("coverage", {}).items():
        lines.append(f"\n{name}: {found['covered_share']:.1%} of {found['intervals']} intervals hold the true value")
    return "\n".join(lines)


def main() -> None:
    """Run the study, or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--judgements", type=int, default=34)
    parser.add_argument("--others", type=int, default=12)
    parser.add_argument("--truths", type=int, default=12)
    parser.add_argument("--truth-ms", type=float, default=250.0)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--effects", nargs="+", type=float, default=EFFECTS, choices=EFFECTS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    counts = options.judgements, options.others, options.truths
    wanted = tasks(*counts, options.truth_ms, options.kinds, options.effects)
    figures = summarise(shards.gather(NAME, wanted, options))
    print(f"\n{table(figures)}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
