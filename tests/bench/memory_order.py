"""Would memory of other kernels shorten a search? `python -m tests.bench.memory_order`. Needs no GPU.

Recorded races tell how long candidates took (`refine_examples`, `naive_kernels`, `public_kernels`). The candidates of
each kernel are put into another order: by what changes of their kind gained on the *other* kernels (leave one kernel
out), those counting more whose baselines are alike by their facts (registers, shared memory, threads, occupancy,
machine code). A candidate comes after what it was made of: a change of a variant after that variant, settings changed
together after the single ones that were tried before it.

Counted for each kernel, in the recorded order and by memory: candidates until the first gain (a race that the search
would have judged in full), until 95 % of the best speedup, and races of eight until then; by chance, too. Of two
races of a kernel the longer one counts. Twice: over the candidates made of the user's file alone, and over all. The
second flatters any order but the recorded one: only what the search went on from has candidates of its own in the
record, so to hurry to these is to know the end. For what memory itself adds there, two orders that hurry are compared:
`deeper` takes the candidates of the fastest variant so far, as recorded, and `deeper_memory` looks at memory too.

Options: --public FOLDER where `tests.wild.fetch` has put public kernels, for their facts; --record.
"""

import argparse
import asyncio
import json
import math
import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.facts import Compile, facts_of, opcodes, open_builder
from kernel_lsp.source.candidate import SourceFile
from tests.bench.record import RESULTS, record
from tests.bench.refine_examples import EXAMPLES
from tests.bench.sessions import scratch_folder, settings_below
from tests.wild.catalogue import kernels_in

NAME = "memory_order"
_RACE = 8  # candidates in one race, as in `refine.workbench`
_GAIN = 0.985  # largest ratio that is judged in full, as there
_NEAR = 0.95  # share of the best speedup that counts as reached
_SHRINK = 1.0  # kernels' worth of trust in the wider kind of a change
_DRAWS, _RESAMPLES = 100, 4000
_PARTS = ("BAR", "SHFL", "LDS", "LDG", "STG", "ATOM", "MUFU", "FFMA", "HMMA", "BRA")


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate of a race: its label, and its time over the baseline's; None where it failed."""

    label: str
    ratio: float | None


@dataclass(frozen=True, slots=True)
class KernelRaces:
    """The candidates of one kernel as they were tried, and what is known of its baseline."""

    kernel: str
    trials: tuple[Trial, ...]
    facts: Mapping[str, float] = field(default_factory=dict[str, float])


Order = Callable[[Trial], float]
"""What a candidate is expected to gain; the larger comes first."""


def change_of(label: str) -> str:
    """Return the last change of a label; of settings only which are turned, and whether up or down."""
    last = label.rpartition("; ")[2]
    if " -> " not in last:
        return last
    return " + ".join(sorted(_turned(part) for part in last.split(", ")))


def _turned(part: str) -> str:
    name, _, values = re.sub(r" of the loop in line \d+| in line \d+", "", part).rpartition(" -> ")
    name, _, before = name.rpartition(" ")
    if before.isdigit() and values.isdigit():
        return f"{name} {'up' if int(values) > int(before) else 'down'}"
    return f"{name} set"


def kinds_of(change: str) -> tuple[str, str]:
    """Return the two wider kinds of a change: without its numbers, and only whether settings or a rewrite."""
    setting = re.search(r" (up|down|set)\b", change)
    return re.sub(r"\d+", "#", change), "settings" if setting else "rewrite"


def read_races(results: Path = RESULTS) -> list[KernelRaces]:
    """Return the recorded races of all kernels, without facts."""
    rows: list[dict[str, Any]] = []
    for name in ("refine_cuda", "refine_triton"):
        rows += json.loads((results / f"{name}.json").read_text())["figures"]["examples"]
    for name in ("naive_kernels", "public_kernels", "public_kernels_liger"):
        rows += [json.loads(line) for line in (results / f"{name}.jsonl").read_text().splitlines()]
    found: dict[str, KernelRaces] = {}
    for row in rows:
        kernel = row.get("example") or row["task"]
        tried = [one for one in row.get("tried", ()) if not one["judged"]]
        trials = {one["label"]: Trial(one["label"], one["ratio"]) for one in reversed(tried)}
        made = KernelRaces(kernel, tuple(reversed(trials.values())))
        if len(made.trials) > len(found[kernel].trials if kernel in found else ()):
            found[kernel] = made
    return list(found.values())


def gains(races: KernelRaces) -> dict[str, float]:
    """Return what changes, and wider kinds of them, gained over what they were made of: the log of the speedup.

    A loss or a failure is 0. Of a change that was tried several times the best counts, of a kind the mean of its own.
    """
    ratios = {one.label: one.ratio for one in races.trials}
    found: dict[str, float] = {}
    for one in races.trials:
        start = ratios.get(one.label.rpartition("; ")[0]) or 1.0
        gain = max(0.0, math.log(start / one.ratio)) if one.ratio else 0.0
        change = change_of(one.label)
        found[change] = max(found.get(change, 0.0), gain)
    kinds: dict[str, list[float]] = {}
    for change, gain in found.items():
        for kind in set(kinds_of(change)):
            kinds.setdefault(kind, []).append(gain)
    return {kind: statistics.mean(values) for kind, values in kinds.items()} | found


def likeness(one: Mapping[str, float], other: Mapping[str, float], spread: Mapping[str, float]) -> float:
    """Return how alike two baselines are, up to 1; a half where one has no facts."""
    both = [name for name in one if name in other and spread.get(name)]
    if not both:
        return 0.5
    return math.exp(-statistics.mean(((one[name] - other[name]) / spread[name]) ** 2 for name in both) / 2)


def memory(target: KernelRaces, others: Sequence[KernelRaces]) -> Order:
    """Return the expected gain of a candidate by what other kernels gained: of its change, its kind, anything."""
    names = {name for one in others for name in one.facts}
    spread = {name: statistics.pstdev([one.facts[name] for one in others if name in one.facts]) for name in names}
    weighed = [(likeness(target.facts, one.facts, spread), gains(one)) for one in others]

    def mean(name: str, prior: float) -> float:
        known = [(weight, told[name]) for weight, told in weighed if name in told]
        return (sum(w * gain for w, gain in known) + _SHRINK * prior) / (sum(w for w, _ in known) + _SHRINK)

    @cache
    def of_change(change: str) -> float:
        kind, widest = kinds_of(change)
        return mean(change, mean(kind, mean(widest, 0.0)))

    return lambda trial: of_change(change_of(trial.label))


def before(trials: Sequence[Trial]) -> list[set[int]]:
    """Return the places of what has to come before each candidate."""
    places = {one.label: place for place, one in enumerate(trials)}
    found: list[set[int]] = []
    for place, one in enumerate(trials):
        made_of, _, last = one.label.rpartition("; ")
        needed = {places[made_of]} if made_of in places else set[int]()
        if " -> " in last and ", " in last:
            singles = (f"{made_of}; {part}" if made_of else part for part in last.split(", "))
            needed |= {places[single] for single in singles if places.get(single, place) < place}
        found.append({other for other in needed if other != place})
    return found


def ordered(trials: Sequence[Trial], expected: Order, *, deeper: bool = False) -> list[Trial]:
    """Return the candidates, of those that are possible the most promising first; of equals the earlier.

    With `deeper`, what a candidate is expected to gain comes on top of what its variant has gained.
    """
    needed, left, done = before(trials), list(range(len(trials))), set[int]()
    ratios = {one.label: one.ratio for one in trials} if deeper else {}
    start = [-math.log(ratios.get(one.label.rpartition("; ")[0]) or 1.0) for one in trials]
    found: list[Trial] = []
    while left:
        ready = [place for place in left if needed[place] <= done] or left
        best = max(ready, key=lambda place: (start[place] + expected(trials[place]), -place))
        left.remove(best)
        done.add(best)
        found.append(trials[best])
    return found


def until(trials: Sequence[Trial], most: float) -> int:
    """Return how many candidates it takes to reach a ratio, which one of them does."""
    return next(count for count, one in enumerate(trials, 1) if one.ratio is not None and one.ratio <= most)


def figures_of(races: KernelRaces, expected: Order) -> dict[str, Any] | None:
    """Return the figures of one kernel in the recorded order, by memory and by chance; None where nothing gains."""
    best = min((one.ratio for one in races.trials if one.ratio is not None), default=1.0)
    if best > _GAIN:
        return None
    drawn = random.Random(races.kernel)
    chances = [ordered(races.trials, lambda _: drawn.random()) for _ in range(_DRAWS)]
    orders: dict[str, Sequence[Trial]] = {
        "recorded": races.trials,
        "memory": ordered(races.trials, expected),
        "deeper": ordered(races.trials, lambda _: 0.0, deeper=True),
        "deeper_memory": ordered(races.trials, expected, deeper=True),
    }
    row: dict[str, Any] = {"kernel": races.kernel, "candidates": len(races.trials), "best_ratio": best}
    for name, most in (("first", _GAIN), ("near_best", best / _NEAR)):
        counts = {order: until(trials, most) for order, trials in orders.items()}
        races_of = {f"{order}_races": math.ceil(count / _RACE) for order, count in counts.items()}
        row[name] = {**counts, **races_of, "chance": statistics.mean(until(one, most) for one in chances)}
    return row


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means over kernels, and the share of the time that is left by memory, with 95 % intervals."""
    found: dict[str, Any] = {"kernels": len(rows)}
    for name in ("first", "near_best"):
        told = [row[name] for row in rows]
        found[name] = {f"mean_{key}": statistics.mean(one[key] for one in told) for key in told[0]}
        for key, after, without in (("share", "memory", "recorded"), ("deeper_share", "deeper_memory", "deeper")):
            for unit in ("", "_races"):
                pairs = [(float(one[after + unit]), float(one[without + unit])) for one in told]
                share, low, high = share_left(pairs)
                found[name] |= {key + unit: share, f"{key}{unit}_interval": [low, high]}
    return found


def share_left(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the sum of the first over that of the second, with its 95 % interval by resampling the pairs."""
    drawn = random.Random(0)
    shares = sorted(
        sum(a for a, _ in sample) / sum(b for _, b in sample)
        for sample in (drawn.choices(pairs, k=len(pairs)) for _ in range(_RESAMPLES))
    )
    share = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    return share, shares[_RESAMPLES // 40], shares[-_RESAMPLES // 40]


def leave_one_out(every: Sequence[KernelRaces]) -> dict[str, Any]:
    """Return the table over kernels and its summary."""
    rows: list[dict[str, Any]] = []
    for one in every:
        others = [other for other in every if other.kernel != one.kernel]
        if (row := figures_of(one, memory(one, others))) is not None:
            rows.append(row)
    return {**summarise(rows), "rows": rows}


def from_the_file(races: KernelRaces) -> KernelRaces:
    """Return the candidates that were made of the user's file, not of a variant."""
    return KernelRaces(races.kernel, tuple(one for one in races.trials if "; " not in one.label), races.facts)


async def facts_of_file(builder: Compile, path: Path, settings: Settings, workload: Path | None) -> dict[str, float]:
    """Return the facts of a kernel file as numbers of a like size; none where it cannot be built."""
    try:
        built = (await builder(SourceFile(path, path.read_text()), settings, workload))["sm_90"]
    except (KernelLspError, OSError):
        return {}
    kernels = facts_of("sm_90", built).kernels
    if not built.ok or not kernels:
        return {}
    counts = opcodes(built, settings)
    total = sum(counts.values()) or 1
    found = {
        "registers": math.log2(max(one.registers for one in kernels)),
        "shared": math.log2(1 + max(one.shared_bytes for one in kernels)),
        "threads": math.log2(max(one.threads or 1 for one in kernels)),
        "occupancy": min(one.occupancy or 0.0 for one in kernels),
        "instructions": math.log2(total),
        "triton": float(built.build.way == "triton"),
    }
    parts = {part: sum(n for name, n in counts.items() if name.startswith(part)) / total for part in _PARTS}
    return found | {part: round(math.sqrt(share), 4) for part, share in parts.items()}


async def all_facts(every: Sequence[KernelRaces], public: Path | None) -> list[KernelRaces]:
    """Return the races with the facts of their baselines, built for the GPU of the records."""
    wild = {kernel.name: (paths[0], kernel.workload) for kernel, paths in kernels_in(public)} if public else {}
    found: list[KernelRaces] = []
    async with scratch_folder() as folder, open_builder() as builder:
        for one in every:
            path, workload = wild.get(one.kernel, (EXAMPLES / one.kernel, None))
            settings = settings_below(folder, project=path.parent).model_copy(update={"arch": ["sm_90"]})
            told = await facts_of_file(builder, path, settings, workload) if path.is_file() else {}
            found.append(KernelRaces(one.kernel, one.trials, told))
    return found


def line(name: str, told: Mapping[str, Any]) -> str:
    """Return one row of the printed summary."""
    means = ", ".join(
        f"{key} {told[f'mean_{key}']:.1f}" for key in ("recorded", "memory", "chance", "deeper", "deeper_memory")
    )
    keys = ("share", "share_races", "deeper_share", "deeper_share_races")
    shares = ", ".join(
        f"{key} {told[key]:.2f} ({told[f'{key}_interval'][0]:.2f} to {told[f'{key}_interval'][1]:.2f})" for key in keys
    )
    return f"{name}: {means} candidates\n    {shares}"


def main() -> None:
    """Order, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    every = asyncio.run(all_facts(read_races(), options.public))
    figures: dict[str, Any] = {"with_facts": sum(bool(one.facts) for one in every)}
    figures["facts"] = {one.kernel: dict(one.facts) for one in every if one.facts}
    for name, races in (("of_the_file", [from_the_file(one) for one in every]), ("of_all", every)):
        figures[name] = leave_one_out(races)
        for measure in ("first", "near_best"):
            print(line(f"{name}, {measure}, {figures[name]['kernels']} kernels", figures[name][measure]))
    if options.record:
        record(NAME, figures)


if __name__ == "__main__":
    main()
