"""Judges public kernels as who has one would, and refines them: `python -m tests.bench.public_kernels --public FOLDER`.

Each kernel gets a pool of processes and folders of its own, so that nothing is kept from before. The session is opened
and the kernel judged beside itself; the first such verdict (`itself 1`, with the opening) is a cold one, the others are
warm. Then versions with a planted bug each are judged (`bug`), and the kernel is refined (`refined`). Bugs are the
faults that `project.toml` names, then those that `check --strength` plants: such as `project.toml` names, then others
in an order by chance, as far as they change the machine code of what is launched.

Options: --public FOLDER that `python -m tests.wild.fetch FOLDER` has filled; --only WORD in a kernel's name, as
`liger/swiglu`; --times (3) it is judged beside itself; --bugs (2); --budget SECONDS (60) for refining, 0 for not; and
those of `shards.py`. Rows are kept in `public_kernels.jsonl`.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.spans import unpack
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.search import refine
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.mutations import find_mutations
from tests.bench import shards
from tests.bench.honest_programs import ORIGIN, again
from tests.bench.record import record
from tests.bench.refine_examples import figures_of
from tests.bench.sessions import kept, scratch_folder, settings_below, warm_pool
from tests.bench.shards import Row, Task
from tests.wild.catalogue import PublicKernel, kernels_in

NAME = "public_kernels"
FOUND = (Outcome.WRONG, Outcome.RUN_FAILED, Outcome.TIMED_OUT)


def tasks(targets: Iterable[str], options: argparse.Namespace) -> list[Task]:
    """Return one task for each kernel with one of the words of `--only` in its name, or for all."""
    numbers = [f"itself {number}" for number in range(1, options.times + 1)]
    numbers += [f"bug {number}" for number in range(1, options.bugs + 1)]
    numbers += ["refined"] if options.budget else []
    return [
        {"id": name, "numbers": numbers}
        for name in targets
        if not options.only or any(word in name for word in options.only)
    ]


@asynccontextmanager
async def workplace(options: argparse.Namespace) -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Give a function that does all that is asked of one kernel, from the start."""
    targets = by_name(options.public)

    async def do(task: Task) -> AsyncIterator[Row]:
        async for row in rows_of(*targets[task["id"]], task["numbers"], options.budget):
            yield row

    yield do


def by_name(folder: Path) -> dict[str, tuple[PublicKernel, Path]]:
    """Return the public kernels that are in a folder, by name, each with the file of its first version."""
    return {kernel.name: (kernel, paths[0]) for kernel, paths in kernels_in(folder)}


async def rows_of(kernel: PublicKernel, path: Path, numbers: Sequence[str], budget: float) -> AsyncIterator[Row]:
    """Judge and refine one kernel; a row for each of the numbers, or for the first one what went wrong."""
    began = time.perf_counter()
    async with scratch_folder() as folder, warm_pool() as pool:
        try:
            target = make_target(path, workload=kernel.workload)
            async with open_session(target, settings_below(folder, project=path), pool) as session:
                opened = time.perf_counter() - began
                text = target.source.text
                for number in (number for number in numbers if number.startswith("itself")):
                    text = again(path, text)
                    row = await verdict_on(session, target.version(text, number, ORIGIN), number)
                    yield row | ({"opening_s": round(opened, 3)} if number == "itself 1" else {})
                bugs = [number for number in numbers if number.startswith("bug")]
                faults = faults_of(kernel, path, target.source.text)
                async for number, bug in planted(session, bugs, kernel.bugs, faults):
                    yield await verdict_on(session, bug, number)
                if "refined" in numbers:
                    found = figures_of(await refine(session, budget=budget))
                    yield {"number": "refined", **found, "says": f"{found.get('speedup')}x, {found['reason']}"[:200]}
        except KernelLspError as error:
            yield {"number": numbers[0], "verdict": "none", "reason": str(error), "says": f"no verdict: {error}"}


def faults_of(kernel: PublicKernel, path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Give label and text of a kernel's first file, at `path`, with each fault of `project.toml` that must be found.

    A header that has the fault takes the place of the line that includes it; a fault elsewhere is left out.
    """
    project = path.parents[len(Path(kernel.places[0]).parts) - 1]
    for fault in kernel.faults:
        label = f"{fault.code}, line {fault.line} of {Path(fault.file).name}: `{fault.old}` → `{fault.new}`"
        include = f'#include "{Path(fault.file).name}"'
        if fault.code and fault.file == kernel.places[0] and fault.old in text:
            yield label, text.replace(fault.old, fault.new, 1)
        elif fault.code and include in text:
            header = (project / fault.file).read_text()
            if fault.old in header:
                yield label, text.replace(include, header.replace(fault.old, fault.new, 1), 1)


async def planted(
    session: Session, numbers: Sequence[str], first: Collection[str], faults: Iterable[tuple[str, str]]
) -> AsyncIterator[tuple[str, Candidate]]:
    """Give as many versions with a bug, labelled with line and change: `faults`, then those of the labels in `first`.

    They are the same ones each time for the same file.
    """
    target = session.target
    same = (await session.builders.build(target.workload, target.baseline)).digests
    mutations = list(find_mutations(target.source, target.language))
    random.Random(target.source.text).shuffle(mutations)
    labelled = [(f"line {mutation.line}: {mutation.what}", mutation) for mutation in mutations]
    ordered = sorted(labelled, key=lambda one: one[0] not in first)
    versions = [*faults, *((label, mutation.applied_to(target.source.text)) for label, mutation in ordered)]
    left = list(numbers)
    for label, text in versions:
        if not left:
            return
        candidate = target.version(text, label, ORIGIN)
        built = await session.builders.build(target.workload, candidate)
        if built.ok and built.digests != same:
            yield left.pop(0), candidate


async def verdict_on(session: Session, candidate: Candidate, number: str) -> Row:
    """Judge one version to the end, and return the row of it; the session's first one has the parts of its opening."""
    verdict = await session.judge(candidate, always_run=True)
    trace = unpack(verdict.evidence.trace)
    parts = {"opening": trace.opening} if trace is not None and trace.opening else {}
    return {"number": number, "label": candidate.label, **kept(verdict), **parts}


def summarise(found: Sequence[Row]) -> dict[str, Any]:
    """Verdicts beside itself and of planted bugs, seconds of cold and warm ones, and gains of refining, by kernel."""
    judged = [row for row in found if "failed" not in row]
    warm = [_seconds(row) for row in judged if row["number"].startswith("itself") and row["number"] != "itself 1"]
    cold = [_seconds(row) + row["opening_s"] for row in judged if "opening_s" in row]
    kernels: dict[str, dict[str, Any]] = {}
    for row in judged:
        kernel = kernels.setdefault(row["task"], {"itself": [], "bugs": []})
        if row["number"] == "refined":
            kernel |= {
                name: row.get(name) for name in ("speedup", "interval", "candidates", "seconds_to_first", "reason")
            }
        elif row["number"].startswith("bug"):
            kernel["bugs"].append(f"{row['label']}: {row['verdict']}")
        else:
            kernel["itself"].append(row["verdict"])
    own = [row for row in judged if row["number"].startswith("itself")]
    bugs = [row for row in judged if row["number"].startswith("bug")]
    return {
        "kernels": len(kernels),
        "itself": len(own),
        "itself_same_or_ambiguous": sum(row["verdict"] in (Outcome.SAME, Outcome.AMBIGUOUS) for row in own),
        "bugs": len(bugs),
        "bugs_wrong": sum(row["verdict"] in FOUND for row in bugs),
        "cold_verdict_s_median": _median(cold),
        "warm_verdict_s_median": _median(warm),
        "refined": sum("speedup" in row and row["speedup"] is not None for row in judged if row["number"] == "refined"),
        "by_kernel": kernels,
        "not_judged": [f"{row['task']}, {row['number']}: {row['failed']}" for row in found if "failed" in row],
    }


def _seconds(row: Row) -> float:
    return row["seconds"]["total"] if "seconds" in row else 0.0


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def main() -> None:
    """Judge and refine, print, and record if asked to; or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--public", type=Path, required=True, help="where `tests.wild.fetch` has put public kernels")
    parser.add_argument("--only", action="append", default=[], help="kernels with this in their name")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--bugs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(lambda: workplace(options)))
        return
    figures = summarise(shards.gather(NAME, tasks(by_name(options.public), options), options))
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
