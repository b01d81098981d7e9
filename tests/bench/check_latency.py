"""`kernel-lsp check` without a GPU, of every example: `python -m tests.bench.check_latency --record`.

First each file as new: the whole check, with warm workers but for the first file of a language, and in it the emulated
runs of its small cases (every access checked), summed over cases and families of inputs. Then the command line on the
whole tree, unchanged: a fresh process each time, start of Python and printing included, and of this the look-up of each
file. GPUs are hidden. Options: --count RUNS of the unchanged tree (default 10), --only SUBSTRING of an example's path,
--record.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_lsp.check import FileReport, find_kernel_files
from kernel_lsp.check.checker import Checker
from kernel_lsp.config.load import load_settings
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import open_store
from tests.bench.record import record

EXAMPLES = Path(__file__).parents[2] / "examples"
_CLI = "from kernel_lsp.cli.main import main; main()"


async def checked(sources: list[SourceFile]) -> list[FileReport]:
    """The reports on these files, one after another, with the caches that the environment names."""
    settings = load_settings(None)[0]
    with open_store(settings.paths.data) as store:
        async with Checker(settings, store) as checker:
            return [await checker.check(source) for source in sources]


def figures_of(new: FileReport, known: FileReport) -> dict[str, Any]:
    """What one example took: as new, and looked up."""
    assert new.ok, new.diagnostics
    assert not new.remembered
    assert known.remembered
    assert new.emulation is not None
    assert new.emulation.needs_gpu is None
    runs = new.emulation.runs
    return {
        "check_s": round(new.seconds, 2),
        "emulated_runs": len(runs),
        "emulated_s": round(sum(run.seconds for run in runs), 3),
        "longest_run_s": round(max(run.seconds for run in runs), 3),
        "longest_run": next(f"{r.case}, {r.family}" for r in sorted(runs, key=lambda r: -r.seconds)),
        "unchanged_ms": round(known.seconds * 1e3, 1),
    }


def command_seconds(paths: list[str]) -> float:
    """Wall time of one `kernel-lsp check`."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _CLI, "check", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - start


def main() -> None:
    """Measure all examples and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    names = [source for source in find_kernel_files([EXAMPLES]) if asked.only in str(source.path)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {f"XDG_{kind.upper()}_HOME": f"{folder}/{kind}" for kind in ("cache", "data")}
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        new, known = asyncio.run(checked(names)), asyncio.run(checked(names))
        examples: dict[str, Any] = {}
        for source, *reports in zip(names, new, known, strict=True):
            name = str(source.path.relative_to(EXAMPLES))
            found = examples[name] = figures_of(*reports)
            print(
                f"{name:26} {found['check_s']:6.2f} s, {found['emulated_runs']:2} runs {found['emulated_s']:6.3f} s "
                f"({found['longest_run_s']:.3f} s for {found['longest_run']}), {found['unchanged_ms']} ms unchanged"
            )
        seconds = [command_seconds([str(source.path) for source in names]) for _ in range(asked.count)]
    figures = {
        "unchanged_tree_median_s": round(statistics.median(seconds), 3),
        "unchanged_tree_worst_s": round(max(seconds), 3),
        "most_emulated_s": max(found["emulated_s"] for found in examples.values()),
        "examples": examples,
    }
    print({key: value for key, value in figures.items() if key != "examples"})
    if asked.record:
        print(record("check_latency", figures))


if __name__ == "__main__":
    main()
