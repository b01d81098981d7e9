"""Refines naive kernels that have versions by hand: `python -m tests.bench.naive_kernels --public FOLDER`.

Of each public kernel with several versions (`tests/wild`), whose files `python -m tests.wild.fetch FOLDER` has put
there, the first version is refined without a model. What was found is judged again in fresh processes, and so are the
versions by hand. A row's `share` is the speedup found over the best one by hand; 1 is a variant as fast as that.

Options: --public FOLDER; --only WORD in a kernel's name, as `llm.c/softmax`; --budget SECONDS (120) for refining, 0 for
not; --keep FOLDER for the refined files; and those of `shards.py`. Rows are kept in `naive_kernels.jsonl`.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.search import refine
from kernel_lsp.source.candidate import Candidate
from tests.bench import shards
from tests.bench.honest_programs import ORIGIN
from tests.bench.record import record
from tests.bench.refine_examples import figures_of
from tests.bench.sessions import scratch_folder, settings_below, warm_pool
from tests.bench.shards import Row, Task
from tests.wild.catalogue import PublicKernel, kernels_in

NAME = "naive_kernels"


def with_versions(folder: Path) -> dict[str, tuple[PublicKernel, list[Path]]]:
    """Return the public CUDA kernels in a folder that have versions by hand, by name, with the files of these."""
    return {k.name: (k, paths) for k, paths in kernels_in(folder) if len(k.versions) > 1 and paths[0].suffix != ".py"}


def tasks(kernels: dict[str, tuple[PublicKernel, list[Path]]], options: argparse.Namespace) -> list[Task]:
    """Return one task for each kernel with one of the words in its name, or for all."""
    found, only = ["refined", "again"] if options.budget else [], options.only
    return [
        {"id": name, "numbers": [*found, *(f"by hand {v}" for v in kernel.versions[1:])]}
        for name, (kernel, _) in kernels.items()
        if not only or any(word in name for word in only)
    ]


@asynccontextmanager
async def workplace(options: argparse.Namespace) -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Give a function that refines one kernel and judges what it is held against."""
    kernels = with_versions(options.public)

    async def do(task: Task) -> AsyncIterator[Row]:
        async for row in rows_of(*kernels[task["id"]], options, task["numbers"]):
            yield row

    yield do


@asynccontextmanager
async def _session(target: Target) -> AsyncGenerator[Session]:
    """Open a session with processes and folders of its own."""
    async with (
        scratch_folder() as folder,
        warm_pool() as pool,
        open_session(target, settings_below(folder), pool) as session,
    ):
        yield session


def keep(variant: Candidate, folder: Path) -> None:
    """Write the files of a variant."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (variant.kernel, variant.launch):
        if file is not None:
            (folder / file.path.name).write_text(file.text)


async def rows_of(
    kernel: PublicKernel, paths: Sequence[Path], options: argparse.Namespace, numbers: Sequence[str]
) -> AsyncIterator[Row]:
    """Give the rows of one kernel that are asked for: refined, judged again, and each version by hand.

    What is to be judged again has to be found anew, where an earlier run was cut off between the two.
    """
    target = make_target(paths[0], workload=kernel.workload)
    try:
        candidates: dict[str, Candidate] = {}
        if {"refined", "again"} & set(numbers):
            async with _session(target) as session:
                found = await refine(session, budget=options.budget)
            yield {"number": "refined", **figures_of(found), "says": found.reason[:200]}
            if found.variant is None:
                nothing = {"verdict": None, "speedup": None, "interval": None, "label": None}
                yield {"number": "again", **nothing, "reason": found.reason, "says": "nothing was found to judge"}
            else:
                candidates["again"] = found.variant
                if options.keep is not None:
                    keep(found.variant, options.keep / kernel.name)
        by_hand = [version for version in kernel.versions[1:] if f"by hand {version}" in numbers]
        if not by_hand and not candidates:
            return
        async with _session(target) as session:
            for version in by_hand:
                path = paths[kernel.places.index(kernel.place(version))]
                text, launch = path.read_text(), kernel.launch_text(version)
                label = f"by hand {version}"
                candidates[label] = target.version(text, label, ORIGIN, launch)
            for number, candidate in candidates.items():
                verdict = await session.judge(candidate, always_run=True)
                yield {
                    "number": number,
                    "verdict": verdict.verdict.value,
                    "speedup": verdict.speedup,
                    "interval": verdict.interval,
                    "label": candidate.label,
                    "reason": verdict.reason,
                    "says": f"{verdict.verdict.value} {verdict.speedup}",
                }
    except KernelLspError as error:
        yield {"number": numbers[0], "failed": str(error)}


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Return, for each kernel, the speedup found, the best by hand, the share of it, and what was changed."""
    kernels: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = kernels.setdefault(row["task"], {"found": 1.0, "by_hand": None, "best": None, "label": None, "why": None})
        if "failed" in row:
            one["why"] = one["why"] or row["failed"]
            continue
        speedup = row.get("speedup")
        if row["number"] == "again":
            right = row["verdict"] == Outcome.FASTER and speedup
            one |= {"found": speedup if right else 1.0, "label": row["label"], "why": row["reason"]}
        elif row["number"] == "refined":
            one["seconds_to_first"] = row.get("seconds_to_first")
            one["why"] = one["why"] or row.get("reason")
        elif speedup and row["verdict"] == Outcome.FASTER and speedup > (one["by_hand"] or 1.0):
            one |= {"by_hand": speedup, "best": row["number"]}
    shares = [one["found"] / (one["by_hand"] or 1.0) for one in kernels.values()]
    for one, share in zip(kernels.values(), shares, strict=True):
        one["share"] = round(share, 3)
    return {
        "kernels": len(kernels),
        "at_least_0.8_of_the_best": sum(share >= 0.8 for share in shares),
        "below_0.4_of_the_best": sum(share < 0.4 for share in shares),
        "by_kernel": kernels,
    }


def main() -> None:
    """Refine, print, and record if asked to; or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--public", type=Path, required=True, help="where `tests.wild.fetch` has put public kernels")
    parser.add_argument("--only", action="append", default=[], help="kernels with this in their name")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for refining each")
    parser.add_argument("--keep", type=Path, help="where refined files are written")
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(lambda: workplace(options)))
        return
    figures = summarise(shards.gather(NAME, tasks(with_versions(options.public), options), options))
    for name, value in figures.items():
        if name != "by_kernel":
            print(f"{name}: {value}")
    for name, one in figures["by_kernel"].items():
        by_hand = f"by hand {one['by_hand']} ({one['best']})"
        print(f"{one['share']:6.2f}  {name}: {one['found']:.2f}x, {by_hand}; {one['label']}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
