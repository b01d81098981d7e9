"""Findings in a helper that was inlined: at its line, with the line of the kernel that called it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kernel_lsp.emulate.findings import Finding, FindingKind
from kernel_lsp.emulate.program import Location
from kernel_lsp.runner.workers.emulated_report import LaunchOutcome, findings

FILE = Path("/home/me/k.cu")


def helper(*called: int, header: bool = False) -> Location:
    """Line 3 of a helper, in the user's file or in a header, as inlined into calls at these lines of the file."""
    outer: Location | None = None
    for line in reversed(called):
        outer = Location(str(FILE), line, 5, outer)
    return Location("/usr/include/vector.h" if header else str(FILE), 3, 12, outer)


def found(*places: Location) -> list[tuple[int, str]]:
    said = [Finding(FindingKind.MISALIGNED, "Thread 0 reads 16 bytes.", place) for place in places]
    outcome = LaunchOutcome("k", cast(Any, SimpleNamespace(findings=said)), 0.0)
    return [(finding.line, finding.message) for finding in findings([outcome], FILE)]


def test_a_helper_of_the_file_says_who_called_it() -> None:
    said = "Thread 0 reads 16 bytes. It is in a helper, called at line 40."
    assert found(helper(40)) == [(3, said)]
    assert found(helper(12, 40))[0][1].endswith("It is in a helper, called at line 12, called at line 40.")


def test_two_calls_of_one_helper_are_two_findings() -> None:
    assert len(found(helper(40), helper(41), helper(41))) == 2


def test_code_of_a_header_is_shown_where_it_is_called() -> None:
    assert found(helper(40, header=True)) == [(40, "Thread 0 reads 16 bytes.")]
    assert found(Location(str(FILE), 7)) == [(7, "Thread 0 reads 16 bytes.")]
