"""What memory makes of a kernel's time, and what the order of allocating it.  `python -m tests.bench.placement`.

The same machine code does the same work, yet it takes a little longer in one place of memory than in another. The
judge's launches and blocks take places in turn, so that this averages away; it does, if the places of a process have
nothing in common. A block's place is memory for a whole segment, of whose launches each has its own. Here kernels of
the study of power are timed over several pairs of fresh processes (`power.measure_blocks`): with places that are
allocated for both sides in turn, and with those of one side before those of the other; those also beside a process that
has the candidate recorded, with inputs that are drawn anew for each half of a block, and with both, as in a
confirmation.

Of each way it is told how far single blocks lie apart (`noise`), how far places within a process do (`places`), what
the means of processes should then scatter by (`expected`), and what they do scatter by (`processes`), as standard
deviations of ln(time), both sides together; and what ln(candidate / baseline) does from one pair to the next (`ratio`).

Options: --pairs of processes (10), --gpu-ms of blocks in each (500), --kinds, --ways (all), and those of `shards.py`.
Rows are kept in `placement.jsonl`.
"""

import asyncio
import math
import statistics
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kernel_lsp.config.settings import JudgeSettings
from tests.bench import power, shards, specimens
from tests.bench.power import Arrangement
from tests.bench.record import record
from tests.bench.sessions import scratch_folder, session_of, settings_below, warm_pool
from tests.bench.shards import Row, Task

NAME = "placement"
WAYS = {
    "in turn": Arrangement(in_turn=True),
    "one side first": Arrangement(),
    "beside another": Arrangement(beside=True),
    "inputs drawn anew": Arrangement(renew=True),
    "as in a confirmation": Arrangement(beside=True, renew=True),
    "baseline in halves": Arrangement(beside=True, renew=True, halves=True),
    "in 32 memories": Arrangement(beside=True, renew=True, memories=32),
}
EFFECT = -0.02


def tasks(pairs: int, gpu_ms: float, kinds: Sequence[str] = power.KINDS, ways: Iterable[str] = WAYS) -> list[Task]:
    """One task for each kind and way."""
    return [
        {"id": f"{kind}/{way}", "kind": kind, "way": way, "gpu_ms": gpu_ms, "numbers": list(range(pairs))}
        for kind in kinds
        for way in ways
    ]


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """One GPU's pool, and the measuring of one task's pairs."""
    async with warm_pool() as pool, scratch_folder() as folder:

        async def do(task: Task) -> AsyncIterator[Row]:
            kind = task["kind"]
            elements, depth = power.SHAPES[kind]
            path = specimens.write(folder, kind, elements, specimens.BASE_EXTRA, depth)
            async with session_of(pool, path, settings_below(folder, JudgeSettings(families=["normal"]))) as session:
                for number in task["numbers"]:
                    text = specimens.text(kind, specimens.slower_by(EFFECT), f"{task['way']} {number}")
                    candidate = session.target.version(text, "to be timed", "user")
                    blocks = await power.measure_blocks(session, candidate, task["gpu_ms"], WAYS[task["way"]])
                    row: Row = {"number": number, "kind": kind, "way": task["way"]}
                    if blocks is None:
                        yield row | {"us": None, "says": "nothing is timed here"}
                        continue
                    sides = [blocks.series.baseline_us[0], blocks.series.candidate_us[0]]
                    yield row | {
                        "places": blocks.places,
                        "us": [[round(us, 3) for us in side] for side in sides],
                        "says": " and ".join(f"{statistics.fmean(side):.2f} us" for side in sides),
                    }

        yield do


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """The components by kind and way."""
    rows = [row for row in rows if row.get("us") is not None]
    figures: dict[str, Any] = {}
    for kind, way in sorted({(row["kind"], row["way"]) for row in rows}):
        found = [row for row in rows if (row["kind"], row["way"]) == (kind, way)]
        if len(found) > 1:
            figures.setdefault(kind, {})[way] = {"pairs": len(found)} | components(found)
    return figures


def components(pairs: Sequence[Row]) -> dict[str, float]:
    """Standard deviations of ln(time) from the microseconds of blocks, of both sides of each pair.

    The variance between places is that of their means less what noise makes of them, and that between processes is of
    either side by itself: their code differs.
    """
    noise: list[float] = []
    between: list[float] = []
    means: list[list[float]] = []
    expected: list[float] = []
    for pair in pairs:
        means.append([])
        for side in pair["us"]:
            places = _by_place(side, pair["places"])
            within = statistics.fmean(statistics.variance(place) for place in places if len(place) > 1)
            of_means = statistics.variance(statistics.fmean(place) for place in places)
            noise.append(within)
            between.append(of_means - within * statistics.fmean(1 / len(place) for place in places))
            means[-1].append(statistics.fmean(statistics.fmean(place) for place in places))
            expected.append(of_means / len(places))
    seen = [statistics.variance(side) for side in zip(*means, strict=True)]
    return {
        "us": round(math.exp(statistics.fmean(mean for both in means for mean in both)), 3),
        "noise": _deviation(noise),
        "places": _deviation(between),
        "expected": _deviation(expected),
        "processes": _deviation(seen),
        "ratio": _deviation([statistics.variance(candidate - baseline for baseline, candidate in means)]),
    }


def _by_place(us: Sequence[float], places: Sequence[int]) -> list[list[float]]:
    """ln(time) of the blocks in each place."""
    found: dict[int, list[float]] = {}
    for block, place in zip(us, places, strict=True):
        found.setdefault(place, []).append(math.log(block))
    return list(found.values())


def _deviation(variances: Sequence[float]) -> float:
    return round(math.sqrt(max(0.0, statistics.fmean(variances))), 6)


def table(figures: dict[str, Any]) -> str:
    """The components as a Markdown table."""
    names = ("noise", "places", "expected", "processes", "ratio")
    lines = [f"| kernel | allocated | pairs | us | {' | '.join(names)} |", "| --- " * (4 + len(names)) + "|"]
    for kind, ways in figures.items():
        for way, found in ways.items():
            shares = " | ".join(f"{found[name]:.3%}" for name in names)
            lines.append(f"| {kind} | {way} | {found['pairs']} | {found['us']} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Run the study, or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--gpu-ms", type=float, default=500.0)
    parser.add_argument("--kinds", nargs="+", default=power.KINDS, choices=power.KINDS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    figures = summarise(shards.gather(NAME, tasks(options.pairs, options.gpu_ms, options.kinds, options.ways), options))
    print(f"\n{table(figures)}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
