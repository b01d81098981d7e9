"""A kernel against itself: who calls it faster?  `python -m tests.bench.aa`.

Four kinds of kernel (element-wise, reduction, softmax, GEMM) of 2^12 to 2^27 elements, on a GPU of their own and with
a second process that keeps it busy; if asked for, also with a bench on all other GPUs that it sees (`neighbours.py`).
Both sides are the same machine code, compiled from texts that differ in a comment;
the judge is told to run and time what it would else call the same program at once. It takes its whole way, from the
text to the confirmation, but for other input families than plain ones. Each pair is then also timed by
`triton.testing.do_bench` and in KernelBench's way (`stopwatches.py`), where a mean that is lower by more than 1 %
counts as "faster".

Options: --pairs of each kind and size (5), --sizes as exponents (12 to 27; every third with a rival), --kinds,
--regimes (idle, busy; neighbour, which needs --gpus 1 and a second one), and those of `shards.py`. Rows are kept in
`aa.jsonl`, those of one regime alone in `aa_REGIME.jsonl`.
"""

import asyncio
import statistics
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest import mock

from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.source.candidate import Candidate
from tests.bench import shards, specimens
from tests.bench.neighbours import busy_neighbours
from tests.bench.record import record
from tests.bench.rival import busy_gpu
from tests.bench.sessions import kept, scratch_folder, session_of, settings_below, warm_pool
from tests.bench.shards import Row, Task
from tests.bench.stopwatches import Stopwatches

NAME = "aa"
REGIMES = ("idle", "busy")
NEIGHBOUR = "neighbour"
CLAIMS = ("judge", "do_bench", "kernelbench")
LONG_US = 50.0
_EXPONENTS = tuple(range(12, 28))


def tasks(pairs: int, exponents: Sequence[int], kinds: Sequence[str], regimes: Sequence[str] = REGIMES) -> list[Task]:
    """One task for each regime, kind and size; with a rival every third size only, the large ones first."""
    made: list[Task] = []
    for regime in regimes:
        for exponent in sorted(exponents, reverse=True):
            if regime == "busy" and len(exponents) > 6 and (exponent - max(exponents)) % 3:
                continue
            for kind in kinds:
                name = f"{regime}/{kind}/2^{exponent}"
                made.append(
                    {"id": name, "regime": regime, "kind": kind, "exponent": exponent, "numbers": list(range(pairs))}
                )
    return made


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """One GPU's pool, its stopwatches, and the judging of one task's pairs."""
    async with warm_pool() as pool, scratch_folder() as folder, AsyncExitStack() as stack:
        watches: Stopwatches | None = None
        if find_gpus():
            watches = await Stopwatches.start()
            stack.push_async_callback(watches.close)
            stack.enter_context(mock.patch.object(pool, "pids", known(pool.pids, watches.pid)))
        settings = settings_below(folder, JudgeSettings(families=["normal"], sanitize="off", steady_load="off"))
        judged_beside: Callable[[], int] | None = None

        async def do(task: Task) -> AsyncIterator[Row]:
            nonlocal judged_beside
            if task["regime"] == NEIGHBOUR and judged_beside is None:  # the last regime: it stays until all is done
                judged_beside = await stack.enter_async_context(busy_neighbours())
            path = specimens.write(folder, task["kind"], 1 << task["exponent"])
            async with AsyncExitStack() as around:
                if task["regime"] == "busy":
                    await around.enter_async_context(busy_gpu())
                session = await around.enter_async_context(session_of(pool, path, settings))
                rows: list[tuple[Candidate, Row]] = []
                for number in task["numbers"]:
                    text = specimens.text(task["kind"], comment=f"the same again, {task['regime']} {number}")
                    candidate = session.target.version(text, "itself", "user")
                    row = kept(await session.judge(candidate, always_run=True))
                    row |= {"judged_beside": judged_beside()} if judged_beside else {}
                    rows.append((candidate, {"number": number} | _about(task) | row))
                if session.harness is not None:
                    await session.harness.settle()  # what sets up the next workers would disturb the others
                for candidate, row in rows:
                    if watches is not None:
                        for name, measured in (await watches.measure(session, candidate)).items():
                            row[name] = {"ms": [measured.baseline_ms, measured.candidate_ms]}
                            row[name]["faster"] = measured.says_faster
                    yield row

        yield do


def known(pids: Callable[[], frozenset[int]], pid: int) -> Callable[[], frozenset[int]]:
    """What tells the judge its own processes, and one more that it would take for a stranger's."""
    return lambda: pids() | {pid}


def _about(task: Task) -> Row:
    return {key: task[key] for key in ("regime", "kind", "exponent")}


def called_faster(row: Row, claim: str) -> bool:
    """Whether one of `CLAIMS` calls the pair of a row faster."""
    return row["verdict"] == "FASTER" if claim == "judge" else row[claim]["faster"]


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """The figures of all rows that were timed by everybody."""
    timed = [row for row in rows if row.get("us") is not None and "do_bench" in row]
    figures: dict[str, Any] = {"pairs": len(timed)}
    for regime in (*REGIMES, NEIGHBOUR):
        of_regime = [row for row in timed if row["regime"] == regime]
        if not of_regime:
            continue
        long = [row for row in of_regime if row["us"] > LONG_US]
        figures[regime] = {
            "pairs": len(of_regime),
            "false_faster": {claim: sum(called_faster(row, claim) for row in of_regime) for claim in CLAIMS},
            "pairs_above_50_us": len(long),
            "false_faster_above_50_us": {claim: sum(called_faster(row, claim) for row in long) for claim in CLAIMS},
            "verdicts": _counts(row["verdict"] for row in of_regime),
            "tagged_shared": sum(row["shared"] for row in of_regime),
            "median_gpu_ms": statistics.median(row["gpu_ms"] for row in of_regime),
            "median_s": statistics.median(row["seconds"]["total"] for row in of_regime),
            "judged_beside": max((row.get("judged_beside", 0) for row in of_regime), default=0),
            "by_kind_and_size": _by_cell(of_regime),
        }
    return figures


def _by_cell(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    cells: dict[str, dict[str, Any]] = {}
    for kind, exponent in sorted({(row["kind"], row["exponent"]) for row in rows}):
        inside = [row for row in rows if (row["kind"], row["exponent"]) == (kind, exponent)]
        cells[f"{kind} 2^{exponent}"] = {
            "us": round(statistics.median(row["us"] for row in inside), 2),
            "pairs": len(inside),
            "false_faster": {claim: sum(called_faster(row, claim) for row in inside) for claim in CLAIMS},
        }
    return cells


def _counts(values: Iterable[str]) -> dict[str, int]:
    listed = list(values)
    return {value: listed.count(value) for value in sorted(set(listed))}


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table: pairs called faster, by kind and size, for each regime."""
    lines: list[str] = []
    for regime in (*REGIMES, NEIGHBOUR):
        if regime not in figures:
            continue
        of_regime = figures[regime]
        lines += [f"{regime}: {of_regime['pairs']} pairs, {of_regime['verdicts']}", ""]
        lines += [
            "| kernel | us | pairs | the judge | do_bench | KernelBench |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        rows = list(of_regime["by_kind_and_size"].items())
        for name, pairs, us, found in (
            *((name, cell["pairs"], f"{cell['us']:g}", cell["false_faster"]) for name, cell in rows),
            ("above 50 us", of_regime["pairs_above_50_us"], "", of_regime["false_faster_above_50_us"]),
            ("all", of_regime["pairs"], "", of_regime["false_faster"]),
        ):
            lines.append(f"| {name} | {us} | {pairs} | {' | '.join(str(found[claim]) for claim in CLAIMS)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run the study, or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=_EXPONENTS, help="exponents of two")
    parser.add_argument("--kinds", nargs="+", default=specimens.KINDS, choices=specimens.KINDS)
    parser.add_argument("--regimes", nargs="+", default=REGIMES, choices=(*REGIMES, NEIGHBOUR))
    options = parser.parse_args()
    if NEIGHBOUR in options.regimes and (options.gpus != 1 or options.regimes[-1] != NEIGHBOUR):
        parser.error(f"{NEIGHBOUR} is the last regime, on one GPU: --gpus 1 leaves the others to what runs beside")
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    name = NAME if len(options.regimes) == len(REGIMES) else "_".join((NAME, *options.regimes))
    rows = shards.gather(name, tasks(options.pairs, options.sizes, options.kinds, options.regimes), options)
    figures = summarise(rows)
    print(f"\n{table(figures)}")
    if options.record:
        print(record(name, figures))


if __name__ == "__main__":
    main()
