"""Refines every example, then judges each variant again in fresh processes: `python -m tests.bench.refine_examples`.

A row's `lines` are how many lines of the user's text a variant replaces, and by how many. Options: --budget SECONDS for
each example (default 45); --only WORD in an example's name; --naive for `tests/fixtures/naive` too; --out NAME of the
result; --variants FOLDER for the refined files; and those of `shards.py`, which spreads examples over the GPUs and
keeps rows in `NAME.jsonl`, so that a run can be cut off and taken up again.
"""

import argparse
import asyncio
import difflib
import statistics
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.search import refine
from kernel_lsp.source.candidate import Candidate
from tests.bench import shards
from tests.bench.record import record
from tests.bench.sessions import scratch_folder, settings_below, warm_pool
from tests.bench.shards import Row, Task

ROOT = Path(__file__).parents[2]
EXAMPLES, NAIVE = ROOT / "examples", ROOT / "tests" / "fixtures" / "naive"
_WORTH = 1.05  # speedup that counts
_AT_ROOFLINE = 0.92  # share of the measured bandwidth from which on nothing is asked


def kernel_files(options: argparse.Namespace) -> dict[str, Path]:
    """Return the files to refine by their names: the examples, and naive kernels if they are asked for."""
    folders = [EXAMPLES, *([NAIVE] if options.naive else [])]
    found = {str(one.path.relative_to(folder)): one.path for folder in folders for one in find_kernel_files([folder])}
    only = options.only
    return {name: path for name, path in found.items() if not only or any(word in name for word in only)}


@asynccontextmanager
async def workplace(options: argparse.Namespace) -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Give a function that refines one file, with processes and folders of its own."""
    files = kernel_files(options)

    async def do(task: Task) -> AsyncIterator[Row]:
        name = str(task["id"])
        yield {"number": "refined", **await refine_one(name, files[name], options)}

    yield do


async def refine_one(name: str, path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one file; an error is a figure too."""
    row: dict[str, Any] = {"example": name}
    try:
        target = make_target(path)
        async with scratch_folder() as folder, warm_pool() as pool:
            settings = settings_below(folder)
            async with open_session(target, settings, pool) as session:
                measured = session.measured
                if measured is None or session.gpu is None:
                    return row | {"error": "this benchmark needs a GPU", "says": "needs a GPU"}
                if (broken := measured.profile.findings.ruling) is not None:
                    return row | {"error": broken.reason, "says": broken.reason}
                row["skipped"] = [f"{c.name}: {c.detail}" for c in measured.profile.findings.checks if c.detail]
                row["weak"] = measured.profile.weak
                roof = measured.harness.bandwidth
                row["timed"] = [
                    {
                        "case": measured.harness.cases[c.draw.case],
                        "mode": c.mode,
                        "baseline_us": round(c.baseline_us, 2),
                        "roofline_share": c.roofline_share(roof, c.baseline_us),
                    }
                    for c in measured.cases
                ]
                found = await refine(session, budget=options.budget)
            row |= figures_of(found)
            if found.variant is None:
                return row | {"says": found.reason[:150]}
            row["lines"] = lines_replaced(target, found.variant)
            if options.variants is not None:
                keep(target, found.variant, options.variants / Path(name).parent)
            async with open_session(target, settings, pool) as again:
                verdict = await again.judge(found.variant)
        row |= {
            "again": verdict.verdict.value,
            "again_speedup": verdict.speedup,
            "again_interval": verdict.interval,
            "again_reason": verdict.reason,
        }
        return row | {"says": f"{row['speedup']:.3f}x, again {row['again']} {verdict.speedup}; {row['label']}"}
    except KernelLspError as error:
        return row | {"error": str(error), "says": str(error)}


def keep(target: Target, variant: Candidate, folder: Path) -> None:
    """Write the files of a variant that differ from the user's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / target.source.path.name).write_text(variant.kernel.text)
    if variant.launch is not None and variant.launch.text != target.workload.source.text:
        (folder / target.workload.source.path.name).write_text(variant.launch.text)


def lines_replaced(target: Target, variant: Candidate) -> tuple[int, int]:
    """Return how many lines of the user's files a variant takes out, and how many it puts in."""
    pairs = [(target.source.text, variant.kernel.text)]
    if variant.launch is not None:
        pairs.append((target.workload.source.text, variant.launch.text))
    out = put = 0
    for before, after in pairs:
        matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
        for kind, first, last, start, end in matcher.get_opcodes():
            if kind != "equal":
                out, put = out + last - first, put + end - start
    return out, put


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many gain 5 % or more, of those that are not at the roofline, and how long the variants are."""
    whole = [row for row in rows if "error" not in row and "failed" not in row]
    below = [row for row in whole if not _is_at_roofline(row)]
    gained = [row for row in below if row.get("again") == "FASTER" and (row["again_speedup"] or 0) >= _WORTH]
    shares = [put / max(out, 1) for out, put in (row["lines"] for row in gained)]
    return {
        "refined": len(whole),
        "below_the_roofline": len(below),
        "gained_5_percent": len(gained),
        "median_lines_put_for_each_taken": statistics.median(shares) if shares else None,
    }


def _is_at_roofline(row: dict[str, Any]) -> bool:
    """Return True if memory alone limits every timed case, and the file as it stands gets nearly all that it gives."""
    shares = [case.get("roofline_share") for case in row.get("timed", ())]
    return bool(shares) and all(share is not None and share >= _AT_ROOFLINE for share in shares)


def figures_of(found: Refinement) -> dict[str, Any]:
    outcomes: dict[str, int] = {}
    for tried in found.tried:
        outcomes[tried.feedback.verdict.value] = outcomes.get(tried.feedback.verdict.value, 0) + 1
    row: dict[str, Any] = {
        "reason": found.reason,
        "candidates": len(found.tried),
        "outcomes": outcomes,
        "seconds": round(found.seconds, 1),
        "seconds_to_first": None if found.seconds_to_first is None else round(found.seconds_to_first, 1),
        "tried": [
            {
                "label": t.candidate.label,
                "digest": t.candidate.digest,
                "verdict": t.feedback.verdict.value,
                "ratio": t.feedback.ratio,
                "judged": t.verdict is not None,
                "message": t.feedback.message[:200],
            }
            for t in found.tried
        ],
    }
    if found.best is not None:
        best = found.best
        row |= {
            "label": best.evidence.candidate_label,
            "speedup": best.speedup,
            "interval": best.interval,
            "cases": [
                {
                    "case": c.case,
                    "mode": c.mode,
                    "baseline_us": c.baseline_us,
                    "candidate_us": c.candidate_us,
                    "speedup": c.speedup,
                    "interval": c.interval,
                    "baseline_roofline_share": c.baseline_roofline_share,
                    "roofline_share": c.roofline_share,
                }
                for c in best.cases
            ],
            "verdict_seconds": best.seconds,
        }
    return row


def _line(row: dict[str, Any]) -> str:
    if (why := row.get("error") or row.get("failed")) is not None:
        return f"{row['task']:28s} {why[:150]}"
    head = f"{row['example']:28s} {row['candidates']:3d} candidates {row['seconds']:6.1f} s "
    if row.get("speedup") is None:
        return f"{head} {row['reason'][:110]}"
    low, high = row["interval"]
    large = max(row["cases"], key=lambda c: c["baseline_us"])
    share = f", {large['roofline_share']:.0%} of roofline" if large["roofline_share"] else ""
    return (
        f"{head} {row['speedup']:.3f}x ({low:.3f}-{high:.3f}) first after {row['seconds_to_first']} s, largest case "
        f"{large['baseline_us']:.1f} -> {large['candidate_us']:.1f} us{share}; again {row['again']} "
        f"{row['again_speedup'] or 0:.3f}; {row['label']}"
    )


def main() -> None:
    """Refine, print, and record; or serve as one GPU's process."""
    parser = shards.parser(__doc__)
    parser.add_argument("--budget", type=float, default=45.0, help="seconds for each")
    parser.add_argument("--only", action="append", default=[], help="files with this in their name")
    parser.add_argument("--naive", action="store_true", help="tests/fixtures/naive too")
    parser.add_argument("--out", default="refine_examples", help="name of the result and of its rows")
    parser.add_argument("--variants", type=Path, help="where refined files are written")
    options = parser.parse_args()
    if options.worker:
        asyncio.run(shards.serve(lambda: workplace(options)))
        return
    tasks: list[Task] = [{"id": name, "numbers": ["refined"]} for name in kernel_files(options)]
    rows = shards.gather(options.out, tasks, options)
    for row in rows:
        print(_line(row))
    figures = summarise(rows)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.record:
        print(record(options.out, {"budget_s": options.budget, **figures, "examples": rows}))


if __name__ == "__main__":
    main()
