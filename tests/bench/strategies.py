"""Strategies with a model at equal tokens and judgements: `python -m tests.bench.strategies --root KernelBench`.

Twelve problems of KernelBench's level 1 are refined by each of `serial`, `beam`, `archive` and `tree`, each within the
same tokens and the same candidates; whichever ends first ends the search. Without `--endpoint` the model is a script
(`scripted_proposer`), whose answers are by our own rewrites and by chance: that tells how strategies spend what a model
proposes, and nothing of models. Without `--root` the two CUDA problems of `examples/kernelbench` are taken.

Trajectories that run side by side may each have a last answer judged beyond the limit; `mean_candidates` says how many.

Options: --root FOLDER of KernelBench's repository; --endpoint URL, --model NAME, --profile ID of a served model;
--tokens (60000) and --candidates (24) of a search; --budget SECONDS (180), which should not be what ends it; --seeds N
(1) searches of each; --only WORD in a problem's name; and those of `shards.py`, which spreads over the GPUs and keeps
rows in `strategies.jsonl`. Without a GPU a dry run: candidates are built and checked on the emulator.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import ModelSettings
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.search import refine
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.kernel import Language
from tests.bench import shards
from tests.bench.record import record
from tests.bench.refine_examples import EXAMPLES
from tests.bench.scripted_proposer import ScriptedProposer
from tests.bench.sessions import scratch_folder, settings_below, warm_pool
from tests.bench.shards import Row, Task
from tests.served_model.fake_server import FakeServer

NAME = "strategies"
STRATEGIES = ("serial", "beam", "archive", "tree")
PROBLEMS = (100, 12, 23, 24, 36, 37, 40, 47, 91, 94, 95, 98)
"""Of level 1, each with a right first answer in `tests/kernelbench` to which many rewrites and settings apply."""
_SET = Path(__file__).parents[1] / "kernelbench"
_MOST_TURNS = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem's name, its file, and a file with a right answer to it."""

    name: str
    path: Path
    answer: Path


def find_problems(root: Path | None) -> list[Problem]:
    """Return the problems in KernelBench's repository, or those of the examples without one.

    Raises:
        FileNotFoundError: the folder holds none of them.
    """
    if root is None:
        folder = EXAMPLES / "kernelbench"
        return [
            Problem(path.stem[:-5], folder / f"{path.stem[:-5]}.py", path) for path in sorted(folder.glob("*_cuda.py"))
        ]
    listed = json.loads((_SET / "candidates.json").read_text())
    found: list[Problem] = []
    for number in PROBLEMS:
        paths = sorted((root / "KernelBench" / "level1").glob(f"{number}_*.py"))
        answers = [
            one["file"]
            for one in listed
            if (one["level"], one["problem"], one["kind"], one["language"]) == (1, number, "right", "inline")
        ]
        if paths and answers:
            found.append(Problem(f"level1/{number}", paths[0], _SET / "candidates" / answers[0]))
    if not found:
        raise FileNotFoundError(f"{root} holds no KernelBench/level1 with problems such as {PROBLEMS[0]}_*.py.")
    return found


def tasks(problems: Sequence[Problem], options: argparse.Namespace) -> list[Task]:
    """Return a task for each problem, whose rows are the searches of each strategy with each seed."""
    numbers = [f"{strategy} {seed}" for seed in range(options.seeds) for strategy in STRATEGIES]
    wanted = [one for one in problems if not options.only or any(word in one.name for word in options.only)]
    return [{"id": one.name, "numbers": numbers} for one in wanted]


@asynccontextmanager
async def workplace(options: argparse.Namespace) -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Give a function that makes a task's searches; each has a session, folders and a server of its own."""
    problems = {one.name: one for one in find_problems(options.root)}

    async def do(task: Task) -> AsyncIterator[Row]:
        async with warm_pool() as pool:
            for number in task["numbers"]:
                strategy, _, seed = str(number).partition(" ")
                yield {"number": number, **await search(problems[task["id"]], strategy, int(seed), options, pool)}

    yield do


@asynccontextmanager
async def _served(proposer: ScriptedProposer) -> AsyncGenerator[str]:
    """Serve a script on a socket, and yield its address; a socket's path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="ks-"))
    server = FakeServer(folder / "s", key=None)
    server.reply = proposer.reply
    await server.open()
    try:
        yield f"unix:{server.socket}"
    finally:
        await server.close()
        shutil.rmtree(folder, ignore_errors=True)


async def search(problem: Problem, strategy: str, seed: int, options: argparse.Namespace, pool: Pool) -> dict[str, Any]:
    """Return the figures of one search; an error is a figure too."""
    target = make_target(problem.path)
    async with scratch_folder() as folder:
        settings = settings_below(folder)
        limits = {"tokens": options.tokens, "candidates": options.candidates, "turns": _MOST_TURNS}
        of_search = {"strategy": strategy, "proposers": [], "write": "cuda", "untimed": True}
        changes: dict[str, Any] = {"refine": settings.refine.model_copy(update=of_search | limits)}
        settings = settings.model_copy(update=changes)
        try:
            async with open_session(target, settings, pool) as session:
                first = problem.answer.read_text()
                proposer = ScriptedProposer(first, problem.path, Language.TORCH, session.device)
                async with _served(proposer) as socket:
                    model = ModelSettings(
                        profile=options.profile, name=options.model, endpoint=options.endpoint or socket
                    )
                    session.settings = settings.model_copy(update={"model": model})
                    return await _figures(session, options.budget, seed)
        except KernelLspError as error:
            return {"error": str(error), "says": str(error)}


async def _figures(session: Session, budget: float, seed: int) -> dict[str, Any]:
    last: list[SearchProgress] = []

    def watch(progress: SearchProgress) -> None:
        last[:] = [progress]

    found = await refine(session, budget=budget, on_progress=watch, seed=seed)
    verdicts = {one.candidate.digest: one.feedback.verdict for one in found.tried}  # the last said of each
    speedup = found.best.speedup if found.best is not None else None
    return {
        "speedup": speedup,
        "interval": found.best.interval if found.best is not None else None,
        "seconds": round(found.seconds, 1),
        "seconds_to_first": found.seconds_to_first,
        "tokens": last[0].talking.tokens if last else 0,
        "turns": last[0].talking.turn if last else 0,
        "candidates": len(verdicts),
        "right": sum(not verdict.is_failure for verdict in verdicts.values()),
        "outcomes": Counter(verdict.value for verdict in verdicts.values()),
        "label": found.variant.label if found.variant is not None else None,
        "reason": found.reason,
        "says": f"{speedup or 1:.3f}x, {len(verdicts)} candidates; {found.reason[:100]}",
    }


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Return for each strategy the mean speedup over all problems, none counting as 1, and what it spent; and a table.

    Problems count on which every strategy has as many searches as the others, so that a study cut short is fair.
    """
    by_problem: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if "error" not in row and "failed" not in row:
            strategy = str(row["number"]).partition(" ")[0]
            by_problem.setdefault(row["task"], {}).setdefault(strategy, []).append(row)
    whole = {name: found for name, found in by_problem.items() if len({len(found.get(s, [])) for s in STRATEGIES}) == 1}
    figures: dict[str, Any] = {"problems": len(whole)}
    for strategy in STRATEGIES if whole else ():
        mine = [row for found in whole.values() for row in found[strategy]]
        first = [row["seconds_to_first"] for row in mine if row["seconds_to_first"] is not None]
        figures[strategy] = {
            "geometric_mean_speedup": statistics.geometric_mean(row["speedup"] or 1.0 for row in mine),
            "searches_with_a_gain": len(first),
            "median_seconds_to_first": statistics.median(first) if first else None,
            "mean_tokens": statistics.mean(row["tokens"] for row in mine),
            "mean_candidates": statistics.mean(row["candidates"] for row in mine),
            "mean_right": statistics.mean(row["right"] for row in mine),
            "by_problem": {name: [row["speedup"] for row in found[strategy]] for name, found in whole.items()},
        }
    return figures


def main() -> None:
    """Search, print, and record if asked to; or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--root", type=Path, help="KernelBench's repository")
    parser.add_argument("--endpoint", help="OpenAI-compatible server of a real model")
    parser.add_argument("--model", default="tiny", help="its name there")
    parser.add_argument("--profile", default="kevin-32b", help="its profile")
    parser.add_argument("--tokens", type=int, default=60_000, help="of one search")
    parser.add_argument("--candidates", type=int, default=24, help="of one search")
    parser.add_argument("--budget", type=float, default=180.0, help="seconds of one search")
    parser.add_argument("--seeds", type=int, default=1, help="searches of each strategy on each problem")
    parser.add_argument("--only", action="append", default=[], help="problems with this in their name")
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(lambda: workplace(options)))
        return
    try:
        problems = find_problems(options.root)
    except FileNotFoundError as error:
        parser.error(str(error))
    found = summarise(shards.gather(NAME, tasks(problems, options), options))
    model = options.model if options.endpoint else "a script: rewrites and settings by chance (scripted_proposer)"
    figures = {"model": model, "tokens": options.tokens, "candidates": options.candidates, **found}
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
