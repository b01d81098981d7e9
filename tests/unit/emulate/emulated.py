"""Kernel files checked as on a machine without a GPU."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge import check as checking
from kernel_lsp.judge.check import FileReport, find_kernel_files

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
PLANTED = ROOT / "tests" / "fixtures" / "planted"
_EXPECT = re.compile(r"(?://|#) expect: (.+)$")


def check_files(paths: Sequence[Path], workload: Path | None = None) -> dict[Path, FileReport]:
    """The report of each kernel file among `paths`."""
    reports = asyncio.run(checking.check(find_kernel_files(paths), Settings(), workload=workload))
    return {report.path: report for report in reports}


def planted_pairs() -> list[tuple[Path, Path, Path]]:
    """Each planted program, its clean twin and the workload of both."""
    pairs: list[tuple[Path, Path, Path]] = []
    for workload in sorted(PLANTED.glob("*_workload.py")):
        name = workload.name.removesuffix("_workload.py")
        (planted,) = (path for path in PLANTED.glob(f"{name}.*") if path.suffix in (".cu", ".py"))
        pairs.append((planted, planted.with_stem(f"{name}_clean"), workload))
    return pairs


def expected_findings(path: Path) -> set[tuple[str, int]]:
    """What the comments of a planted program announce: `(kind, line)`."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    return {(match[1], line) for line, text in lines if (match := _EXPECT.search(text))}


def findings_of(report: FileReport) -> set[tuple[str, int]]:
    """What the emulator found in a file, in the same terms."""
    assert report.emulation is not None, report.diagnostics
    return {
        (f"{finding.kind} {finding.space}" if finding.kind == "uninitialised" else finding.kind, finding.line)
        for run in report.emulation.runs
        for finding in run.findings
    }
