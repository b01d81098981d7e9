"""How many bugs planted in the examples their workloads catch: `python -m tests.bench.strength --record NAME`.

Nothing is remembered from before. Options: --record NAME (of the result), PATHS (kernel files; else all examples).
"""

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.config.load import load_settings
from kernel_lsp.mutation_testing import Fate, FileStrength, measure_strength
from tests.bench.record import record

_EXAMPLES = [Path("examples/cuda"), Path("examples/triton")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=_EXAMPLES)
    parser.add_argument("--record", metavar="NAME")
    options = parser.parse_args()
    started = time.perf_counter()
    sources = find_kernel_files(options.paths)
    reports = asyncio.run(measure_strength(sources, load_settings(None)[0], _show))
    seconds = time.perf_counter() - started
    caught = sum(len(report.of(Fate.CAUGHT)) for report in reports)
    counted = caught + sum(len(report.of(Fate.SURVIVED)) for report in reports)
    print(f"{caught} of {counted} caught, {caught / counted:.1%}, in {seconds:.0f} s")
    if options.record:
        figures = {"caught": caught, "counted": counted, "caught_share": caught / counted, "seconds": seconds}
        device = next((report.device for report in reports if report.device != "emulator"), None)
        name = device.removesuffix(", emulator") if device else None
        files = {str(report.path): _figures(report) for report in reports}
        print(record(options.record, figures | {"files": files}, device=name))


def _show(report: FileStrength) -> None:
    counts = ", ".join(f"{len(report.of(fate))} {fate}" for fate in Fate if report.of(fate))
    print(f"{report.path}: {report.problem or counts}, {report.seconds:.1f} s", flush=True)
    for mutant in (*report.of(Fate.SURVIVED), *report.of(Fate.UNKNOWN)):
        print(f"    {mutant.line}: {mutant.fate}: {mutant.bug}: {mutant.what}: {mutant.reason}", flush=True)


def _figures(report: FileStrength) -> dict[str, Any]:
    by: dict[str, int] = {}
    for mutant in report.of(Fate.CAUGHT):
        kind = mutant.by if mutant.by.startswith("emulator") else mutant.by.partition(":")[0]
        by[kind] = by.get(kind, 0) + 1
    missed = [
        {"line": mutant.line, "bug": mutant.bug, "what": mutant.what, "reason": mutant.reason}
        for mutant in report.of(Fate.SURVIVED)
    ]
    return {
        "caught": len(report.of(Fate.CAUGHT)),
        "survived": missed,
        "same_machine_code": len(report.of(Fate.SAME_CODE)),
        "not_built": len(report.of(Fate.NOT_BUILT)),
        "unknown": [f"{mutant.line}: {mutant.reason}" for mutant in report.of(Fate.UNKNOWN)],
        "caught_by": dict(sorted(by.items())),
        "problem": report.problem,
        "seconds": round(report.seconds, 1),
    }


if __name__ == "__main__":
    main()
