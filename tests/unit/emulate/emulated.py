"""Kernel files checked as on a machine without a GPU."""

import asyncio
import re
from pathlib import Path

from kernel_lsp import check as checking
from kernel_lsp.check import FileReport, find_kernel_files
from kernel_lsp.config.settings import Settings

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
PLANTED = ROOT / "tests" / "fixtures" / "planted"
_EXPECT = re.compile(r"(?://|#) expect: (.+)$")


def check_files(*paths: Path) -> dict[Path, FileReport]:
    """The report of each kernel file among `paths` and below the folders among them."""
    reports = asyncio.run(checking.check(find_kernel_files(paths), Settings()))
    return {report.path: report for report in reports}


def planted_pairs() -> list[tuple[Path, Path]]:
    """Each planted program and its clean twin."""
    programs = (path for path in sorted(PLANTED.iterdir()) if path.suffix in (".cu", ".py"))
    planted = [path for path in programs if not path.stem.endswith(("_workload", "_clean"))]
    return [(path, path.with_stem(f"{path.stem}_clean")) for path in planted]


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
