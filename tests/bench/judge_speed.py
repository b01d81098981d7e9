"""How long a verdict takes, and what a race saves.  `python -m tests.bench.judge_speed`.

Texts never built before, each a new comment in a known version, judged by warm workers as between a person's edits:
of a bare CUDA file, a Triton file and a torch extension whose host function the workload calls. Of the code as it
stands, which is timed to the end without a gain, and of a rewrite that is faster, which is confirmed in fresh processes
too. Then the first eight candidates that the search proposes for a file: each judged by itself, one after another, and
all of them built, checked and raced as the search does it, with the judgement of the race's winner.

Options: --count of each version (20), --extensions to build and judge (8), --races of each file (2), and those of
`shards.py`. Rows are kept in `judge_speed.jsonl`.
"""

import asyncio
import math
import random
import shutil
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_lsp.judge.inputs.check import check
from kernel_lsp.judge.race import race
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.stages.load import enter
from kernel_lsp.judge.subject import Subject
from kernel_lsp.refine.proposers import find_proposers
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from tests.bench import shards
from tests.bench.record import record
from tests.bench.sessions import kept, scratch_folder, session_of, settings_below, warm_pool
from tests.bench.shards import Row, Task

NAME = "judge_speed"
ENTRANTS = 8
_EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {"bare CUDA": "cuda/rmsnorm.cu", "Triton": "triton/layernorm.py", "torch extension": "cuda/rotary.cu"}
_VERSIONS = ("as it stands", "a rewrite")
_AT_A_TIME = 2  # judgements in one task of an extension, whose builds take long
_CHECKS_AT_ONCE = 4  # as the search has it
_PAUSE_SECONDS = 0.5


def tasks(count: int, extensions: int, races: int) -> list[Task]:
    """One task for each version of a file, one for every two extensions, and one for each race; the longest first."""
    made: list[Task] = []
    for first in range(0, extensions, _AT_A_TIME):
        numbers = list(range(first, min(first + _AT_A_TIME, extensions)))
        made.append(
            {"id": f"extension {first}", "file": "torch extension", "version": _VERSIONS[0], "numbers": numbers}
        )
    for file in ("Triton", "bare CUDA"):
        made += [{"id": f"race, {file} {n}", "file": file, "race": n, "numbers": [n]} for n in range(races)]
        for version in reversed(_VERSIONS):
            made.append({"id": f"{file}, {version}", "file": file, "version": version, "numbers": list(range(count))})
    return made


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """One GPU's pool, and the judging or racing of one task's versions."""
    async with warm_pool() as pool, scratch_folder() as folder:

        async def do(task: Task) -> AsyncIterator[Row]:
            rows = _race(pool, folder, task) if "race" in task else _judge(pool, folder, task)
            async for row in rows:
                yield row

        yield do


async def _judge(pool: Pool, folder: Path, task: Task) -> AsyncIterator[Row]:
    async with session_of(pool, kernel_file(folder, task["file"]), settings_below(folder)) as session:
        version = first_rewrite(session) if task["version"] == "a rewrite" else session.target.baseline
        for number in task["numbers"]:
            await asyncio.sleep(_PAUSE_SECONDS)  # as between a person's edits: the next worker is made ready meanwhile
            candidate = renewed(version, f"{task['version']} {number}")
            row = kept(await session.judge(candidate, always_run=True))
            yield {"number": number, "file": task["file"], "version": task["version"]} | row


async def _race(pool: Pool, folder: Path, task: Task) -> AsyncIterator[Row]:
    number = task["numbers"][0]
    async with session_of(pool, kernel_file(folder, task["file"]), settings_below(folder)) as session:
        candidates = await first_proposals(session, ENTRANTS, seed=number)
        singles: list[Row] = []
        for candidate in candidates:
            single = renewed(candidate, f"by itself {number}")
            singles.append(kept(await session.judge(single, always_run=True)))
        raced = await race_of(session, [renewed(candidate, f"in a race {number}") for candidate in candidates])
    seconds = [single["seconds"]["total"] for single in singles]
    yield {
        "number": number,
        "file": task["file"],
        "entrants": len(candidates),
        "singles_s": round(sum(seconds), 3),
        "single_s": seconds,
        "single_verdicts": [single["verdict"] for single in singles],
        "single_speedups": [single["speedup"] for single in singles],
        **raced,
        "says": f"{len(candidates)} single judgements {sum(seconds):.2f} s, a race {raced['race_s']:.2f} s, "
        f"with its winner's judgement {raced['race_and_judgement_s']:.2f} s",
    }


async def race_of(session: Session, candidates: Sequence[Candidate]) -> Row:
    """Build, check and race candidates as the search does, and judge the winner; wall seconds and standings."""
    measured = session.measured
    assert measured is not None, "only what runs is raced"
    started = time.perf_counter()
    builds = await asyncio.gather(*(session.builders.build(session.target.workload, c) for c in candidates))
    built_s = time.perf_counter() - started
    room = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def checked(number: int) -> Subject | None:
        if not builds[number].ok:
            return None
        async with room:
            entered = await enter(measured.harness, candidates[number], builds[number])
            if isinstance(entered, Ruling):
                return None
            findings = await check(measured.harness, entered, measured.profile, quick=True)
            if findings.ruling is not None:
                await measured.harness.leave(entered)
                return None
            return entered

    subjects = [s for s in await asyncio.gather(*map(checked, range(len(candidates)))) if s is not None]
    checked_s = time.perf_counter() - started
    try:
        standings = await race(session, subjects, random.Random(0))
    finally:
        for subject in subjects:
            await measured.harness.leave(subject)
    raced_s = time.perf_counter() - started
    ranked = sorted((s for s in standings if s.ratio is not None), key=lambda s: s.ratio or math.inf)
    verdict = await session.judge(ranked[0].subject.candidate, always_run=True) if ranked else None
    return {
        "race_build_s": round(built_s, 3),
        "race_check_s": round(checked_s - built_s, 3),
        "race_time_s": round(raced_s - checked_s, 3),
        "race_s": round(raced_s, 3),
        "race_and_judgement_s": round(time.perf_counter() - started, 3),
        "race_ratios": [s.ratio for s in standings],
        "winner": ranked[0].subject.candidate.label if ranked else None,
        "winner_verdict": verdict.verdict.value if verdict else None,
        "winner_speedup": verdict.speedup if verdict else None,
    }


def kernel_file(folder: Path, file: str) -> Path:
    """The kernel file; of the extension a copy whose workload calls the host function."""
    path = _EXAMPLES / FILES[file]
    if file != "torch extension":
        return path
    text = path.with_name("rotary_workload.py").read_text()
    launch = text[text.index("    THREADS = 256") :]
    (folder / "rotary_workload.py").write_text(text.replace(launch, "    return module.rotary_(q, cos, sin)\n"))
    return Path(shutil.copy(path, folder))


def renewed(version: Candidate, comment: str) -> Candidate:
    """The same version under a text that was never built before."""
    sign = "#" if version.kernel.path.suffix == ".py" else "//"
    text = f"{version.kernel.text}\n{sign} {version.label}, {comment}\n"
    return replace(version, kernel=SourceFile(version.kernel.path, text), origin="user")


def first_rewrite(session: Session) -> Candidate:
    """The first rewrite that applies to the session's file."""
    base = session.target.baseline
    for candidate in find_rewrites(base, session.target.kernels[0], session.device):
        return candidate
    raise LookupError(f"no rewrite applies to {base.kernel.path}")


async def first_proposals(session: Session, count: int, seed: int) -> list[Candidate]:
    """The first candidates that the search would propose for the session's file."""
    base = session.target.baseline
    names = [kernel.name for kernel in session.target.kernels]
    found: list[Candidate] = []
    for make in find_proposers(session.settings.refine.proposers, session.device):
        for proposer in make(base, names, seed):
            while len(found) < count and (more := await proposer.next(count - len(found))):
                found += more
    return found


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """Median and 95th percentile of each stage by version, and the races."""
    rows = [row for row in rows if "failed" not in row]
    verdicts: dict[str, Any] = {}
    for file, version in dict.fromkeys((row["file"], row["version"]) for row in rows if "version" in row):
        inside = [row for row in rows if (row["file"], row.get("version")) == (file, version)]
        stages = list(dict.fromkeys(stage for row in inside for stage in row["seconds"]))
        seconds = {stage: [row["seconds"].get(stage, 0.0) for row in inside] for stage in stages}
        outcomes = [row["verdict"] for row in inside]
        verdicts[f"{file}, {version}"] = {
            "verdicts": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "median_s": {stage: round(statistics.median(values), 4) for stage, values in seconds.items()},
            "p95_s": {stage: round(percentile(values, 0.95), 4) for stage, values in seconds.items()},
        }
    races = [
        {key: value for key, value in row.items() if key not in ("says", "number")} for row in rows if "race_s" in row
    ]
    return {"verdicts": verdicts, "races": races}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown tables, in milliseconds: median (95th percentile)."""
    stages = list(dict.fromkeys(s for cell in figures["verdicts"].values() for s in cell["median_s"]))
    lines = [f"| version | verdicts | {' | '.join(stages)} |", "| --- | --- |" + " --- |" * len(stages)]
    for name, cell in figures["verdicts"].items():
        shown = [
            f"{1000 * cell['median_s'][s]:.0f} ({1000 * cell['p95_s'][s]:.0f})" if s in cell["median_s"] else "-"
            for s in stages
        ]
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in cell["verdicts"].items())
        lines.append(f"| {name} | {verdicts} | {' | '.join(shown)} |")
    if figures["races"]:
        lines += ["", "| race | candidates | judged singly, s | raced, s | raced and winner judged, s | winner |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        for row in figures["races"]:
            winner = f"{row['winner']}: {row['winner_verdict']}"
            lines.append(
                f"| {row['file']} | {row['entrants']} | {row['singles_s']:.2f} | {row['race_s']:.2f} | "
                f"{row['race_and_judgement_s']:.2f} | {winner} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the study, or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--extensions", type=int, default=8)
    parser.add_argument("--races", type=int, default=2)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    figures = summarise(shards.gather(NAME, tasks(options.count, options.extensions, options.races), options))
    print(f"\n{table(figures)}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
