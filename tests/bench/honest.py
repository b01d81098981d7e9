"""Judges honest programs and counts false accusations: `python -m tests.bench.honest --public FOLDER`.

Each program is judged as a candidate beside a baseline of the same workload, and run even where it is the baseline's
own text under another comment. There are four kinds: `example`, every example beside itself and answers to KernelBench
problems beside theirs; `twin`, every honest program of `tests/exploits`; `kernelbench`, right candidates of
`tests/kernelbench`; `public`, kernels that `python -m tests.wild.fetch FOLDER` gathers, with workloads of `tests/wild`.
A program is refused where its verdict says that it fails, is wrong or cheats, or where it gets none. On a machine
without a GPU the emulator judges.

Options: --public FOLDER, without which none of the last kind are judged; --problems ROOT of KernelBench's repository
(default: FOLDER/kernelbench, else none of the third kind are judged); --only WORD in a judgement's kind and name;
--rounds (1); --limit SECONDS (140) for opening a session and for each judgement; and those of `shards.py`. Rows are
kept in `honest.jsonl`.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Verdict
from kernel_lsp.runner.pool import Pool
from tests.bench import shards
from tests.bench.honest_programs import Program, find_programs
from tests.bench.record import record
from tests.bench.sessions import scratch_folder, settings_below, warm_pool
from tests.bench.shards import Row, Task

NAME = "honest"
REFUSED = {
    Outcome.WRONG,
    Outcome.ILLEGITIMATE,
    Outcome.RUN_FAILED,
    Outcome.BUILD_FAILED,
    Outcome.TIMED_OUT,
}
_REPOSITORY = Path(__file__).parents[2]


def tasks(programs: Iterable[Program], rounds: int, words: Sequence[str]) -> list[Task]:
    """Return one task for each baseline and round, with the names of its programs that hold one of `words`."""
    names: dict[str, list[str]] = {}
    for program in programs:
        if not words or any(word in f"{program.kind} {program.name}" for word in words):
            names.setdefault(program.baseline, []).append(program.name)
    return [
        {"id": f"round {number}, {baseline}", "numbers": below}
        for number in range(1, rounds + 1)
        for baseline, below in names.items()
    ]


@asynccontextmanager
async def workplace(options: argparse.Namespace) -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Give a function that judges the programs of one task, in one session after another of the same pool."""
    known = {program.name: program for program in find_programs(options.public, options.problems)}
    async with scratch_folder() as folder, warm_pool() as pool:

        async def do(task: Task) -> AsyncIterator[Row]:
            programs = [known[name] for name in task["numbers"]]
            async for row in judge_beside_one(programs, pool, folder, options.limit):
                yield row

        yield do


async def judge_beside_one(programs: Sequence[Program], pool: Pool, folder: Path, limit: float) -> AsyncIterator[Row]:
    """Judge programs that share a baseline; where it cannot be used, each gets a row that says why."""
    first = programs[0]
    settings = settings_below(folder, project=first.kernel)
    begun = time.monotonic()
    closing = None
    try:
        target = make_target(first.kernel, workload=first.workload, problems=first.problems)
        context = open_session(target, settings, pool)
        async with asyncio.timeout(limit):
            session = await context.__aenter__()
        closing = context.__aexit__
    except (KernelLspError, TimeoutError, ValueError) as error:
        for program in programs:
            yield without_verdict(program, f"its session: {said(error, limit)}", time.monotonic() - begun)
        return
    try:
        for program in programs:
            yield await judge_one(session, program, limit)
    finally:
        await closing(None, None, None)


async def judge_one(session: Session, program: Program, limit: float) -> Row:
    """Judge one program; the row of its verdict, or of what went wrong."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(limit):
            verdict = await session.judge(program.candidate(session.target), always_run=True)
    except (KernelLspError, TimeoutError, ValueError) as error:
        return without_verdict(program, said(error, limit), time.monotonic() - begun)
    return row_of(program, verdict, time.monotonic() - begun)


def said(error: BaseException, limit: float) -> str:
    """What an error says, for a row."""
    if isinstance(error, TimeoutError):
        return f"nothing came within {limit:g} s"
    return without_paths(f"{type(error).__name__}: {error}")


def without_paths(text: str) -> str:
    """A text without the folder that this repository lies in."""
    return text.replace(f"{_REPOSITORY}{os.sep}", "")


def without_verdict(program: Program, why: str, seconds: float) -> Row:
    """The row of a program that got no verdict, which counts as refused."""
    return {
        "number": program.name,
        "kind": program.kind,
        "verdict": "none",
        "stage": "none",
        "reason": why,
        "refused": True,
        "seconds": round(seconds, 3),
        "says": f"REFUSED {seconds:.1f} s, no verdict: {why[:300]}",
    }


def row_of(program: Program, verdict: Verdict, seconds: float) -> Row:
    """The row of a verdict, with the checks that were passed and those that were left out."""
    refused = verdict.verdict in REFUSED
    reason = without_paths(verdict.reason)
    ended = Counter(check.status for check in verdict.evidence.checks)
    return {
        "number": program.name,
        "kind": program.kind,
        "verdict": verdict.verdict.value,
        "stage": verdict.stage.value,
        "reason": reason,
        "refused": refused,
        "speedup": verdict.speedup,
        "interval": verdict.interval,
        "passed": ended[CheckStatus.PASSED],
        "skipped": [
            f"{check.name}, {check.case}: {without_paths(check.detail)}"
            for check in verdict.evidence.checks
            if check.status is CheckStatus.SKIPPED
        ],
        "seconds": round(seconds, 3),
        "stages": {stage: round(taken, 3) for stage, taken in verdict.seconds.items()},
        "says": f"{'REFUSED' if refused else 'ok'} {seconds:.1f} s, {verdict.verdict.value} at {verdict.stage.value}, "
        f"{ended[CheckStatus.PASSED]} checks passed, {ended[CheckStatus.SKIPPED]} skipped: {reason[:300]}",
    }


def summarise(found: Sequence[Row]) -> dict[str, Any]:
    """Counts by kind and verdict, and every refusal with its reason."""
    judged = [row for row in found if "failed" not in row]
    refusals = [row for row in judged if row["refused"]]
    kinds = sorted({row["kind"] for row in judged})
    return {
        "judgements": len(judged),
        "programs": len({row["number"] for row in judged}),
        "refused": len(refusals),
        "refused_share": round(len(refusals) / len(judged), 4) if judged else None,
        "untimed": sum(row["verdict"] == Outcome.UNTIMED for row in judged),
        "by_kind": {
            kind: {
                "judgements": sum(row["kind"] == kind for row in judged),
                "refused": sum(row["kind"] == kind for row in refusals),
                "verdicts": dict(Counter(row["verdict"] for row in judged if row["kind"] == kind).most_common()),
            }
            for kind in kinds
        },
        "seconds_of_a_judgement_median": round(statistics.median(row["seconds"] for row in judged), 2)
        if judged
        else None,
        "refusals": [f"{row['number']}: {row['verdict']}, {row['stage']}: {row['reason']}" for row in refusals],
        "not_judged": [f"{row['task']}, {row['number']}: {row['failed']}" for row in found if "failed" in row],
    }


def print_table(figures: dict[str, Any]) -> None:
    """Print counts by kind, then every refusal."""
    print(f"\n{'kind':12s} {'judged':>7s} {'refused':>8s}  verdicts")
    for kind, counts in figures["by_kind"].items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts["verdicts"].items())
        print(f"{kind:12s} {counts['judgements']:7d} {counts['refused']:8d}  {verdicts}")
    print(f"{'all':12s} {figures['judgements']:7d} {figures['refused']:8d}")
    for title in ("refusals", "not_judged"):
        print(f"\n{title}: {len(figures[title])}")
        for line in figures[title]:
            print(f"  {line}")


def main() -> None:
    """Judge, print, and record if asked to; or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--public", type=Path, help="where `tests.wild.fetch` has put public kernels")
    parser.add_argument("--problems", type=Path, help="KernelBench's repository")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=140.0, help="seconds for a session to open, and for a judgement")
    parser.add_argument("--only", action="append", default=[], help="judgements with this in their name")
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(lambda: workplace(options)))
        return
    programs = find_programs(options.public, options.problems)
    figures = summarise(shards.gather(NAME, tasks(programs, options.rounds, options.only), options))
    print_table(figures)
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
