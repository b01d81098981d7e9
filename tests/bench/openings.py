"""Where the time of opening sessions goes, from the traces of the verdicts in a store.

`python -m tests.bench.openings FOLDER`; FOLDER is `paths.data` of the command that judged. A session's first verdict
has the seconds of its opening by part, those of its own processes without what they have inside: `oracle: compute the
right answer` is the reference in float64, `oracle: Compare` what a request costs on the way. `tests/bench/pool_gpus`
tells the same of each of its runs.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from kernel_lsp.judge.spans import VerdictTrace, union, unpack
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.store.store import open_store
from tests.bench.shards import Row

SHOWN = 14  # parts


def traces_of(folder: Path) -> list[tuple[str, VerdictTrace]]:
    """The kernel's name and the trace of each verdict in a store that has one, in the order of judging."""
    found: list[tuple[str, VerdictTrace]] = []
    with open_store(folder) as store:
        for row in store.list_verdicts(limit=1 << 20):
            verdict = Verdict.model_validate(store.find_verdict(row.id))
            if (trace := unpack(verdict.evidence.trace)) is not None:
                found.append((Path(verdict.evidence.kernel_path).stem, trace))
    return sorted(found, key=lambda pair: pair[1].began_ns + 1000 * pair[1].us)


def figures_of(traces: Sequence[tuple[str, VerdictTrace]]) -> Row:
    """The openings by session, their parts in sum, and how long a process waited for the GPU.

    `gpu_busy_share` is of the time from the first verdict on to the last, on one lane.
    """
    openings = {name: trace.opening for name, trace in traces if trace.opening}
    parts = defaultdict[str, float](float)
    for opening in openings.values():
        for name, seconds in opening.items():
            parts[name] += seconds
    ends = [trace.began_ns // 1000 + trace.us for _, trace in traces]
    first, last = min(ends, default=0), max(ends, default=0)
    busy = union(clipped(traces, first, last))
    return {
        "openings": openings,
        "opening_parts_s": {name: round(s, 3) for name, s in sorted(parts.items(), key=lambda pair: -pair[1])},
        "gpu_busy_share": round(sum(end - start for start, end in busy) / (last - first), 3) if last > first else None,
        "longest_idle_s": round(max((b[0] - a[1] for a, b in pairwise(busy)), default=0) / 1e6, 2),
    }


def clipped(traces: Iterable[tuple[str, VerdictTrace]], first: int, last: int) -> list[tuple[int, int]]:
    """The times between two, in microseconds of the machine's clock, in which a process waited for the GPU."""
    found = [
        (max(first, start + trace.began_ns // 1000), min(last, end + trace.began_ns // 1000))
        for _, trace in traces
        for start, end in trace.gpu_busy()
    ]
    return [span for span in found if span[0] < span[1]]


def table(figures: Row) -> str:
    """The parts as a Markdown table, the longest first, and the sessions."""
    parts: dict[str, float] = figures["opening_parts_s"]
    total = parts.get("total", 0.0)
    lines = ["| part of all openings | s | share |", "| --- | --- | --- |"]
    for name, seconds in list(parts.items())[:SHOWN]:
        lines.append(f"| {name} | {seconds:.2f} | {seconds / total:.0%} |")
    lines += ["", "| session | s | longest part | s |", "| --- | --- | --- | --- |"]
    for session, opening in sorted(figures["openings"].items(), key=lambda pair: -pair[1]["total"]):
        name, seconds = max(((n, s) for n, s in opening.items() if n != "total"), key=lambda pair: pair[1])
        lines.append(f"| {session} | {opening['total']:.2f} | {name} | {seconds:.2f} |")
    share, idle = figures["gpu_busy_share"], figures["longest_idle_s"]
    return "\n".join([*lines, "", f"GPU waited for in {share} of the time, longest pause {idle} s"])


def main() -> None:
    """Print the figures of one store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = figures_of(traces_of(asked.folder))
    if not figures["openings"]:
        raise SystemExit(f"No verdict in {asked.folder} was the first of a session.")
    print(json.dumps(figures, indent=2) if asked.json else table(figures))


if __name__ == "__main__":
    main()
