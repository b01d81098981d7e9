"""Every example runs on the emulator, is right there, and nothing is found; planted bugs are found at their line."""

from pathlib import Path

import pytest
from emulated import EXAMPLES, check_files, expected_findings, findings_of, planted_pairs

from kernel_lsp.rules import asynchronous
from kernel_lsp.source.files import find_kernels
from tests.sampling import first_of_each, params

pytest.importorskip("torch")
pytest.importorskip("triton")

ALL = sorted(p for p in EXAMPLES.glob("*/*") if p.suffix in (".cu", ".py") and find_kernels(p.read_text(), p))
PAIRS = planted_pairs()
KINDS = {
    *("out-of-bounds", "misaligned", "uninitialised global", "uninitialised shared", "shared-race", "global-race"),
    *("divergent-barrier", "inactive-lane", "runaway-loop", "deadlock"),
    *(rule.name for rule in asynchronous.RULES),
}


def told(paths: list[Path], every_time):
    """Return the paths as parameters, of which some are tried every time."""
    return params(paths, every_time, lambda path: f"{path.parent.name}/{path.name}")


QUICK = [EXAMPLES / "cuda/gemv.cu", EXAMPLES / "triton/rmsnorm.py"]
BUG_OF_EACH = first_of_each(
    [planted for planted, _ in PAIRS], lambda path: {kind for kind, _ in expected_findings(path)}
)
A_TWIN = [clean for planted, clean in PAIRS if planted in BUG_OF_EACH][:1]


@pytest.fixture(scope="module")
def checked(request):
    """Return the report of each file that a test of this run asks for."""
    mine = (item for item in request.session.items if item.path == request.path)
    paths = {item.callspec.params["path"] for item in mine if hasattr(item, "callspec")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return check_files(*sorted(paths))


def test_there_are_thirty_two_examples():
    assert len(ALL) == 32


@pytest.mark.parametrize("path", told(ALL, QUICK))
def test_an_example_is_right_on_the_emulator(checked, path: Path):
    report = checked[path]
    assert report.ok, report.diagnostics
    assert report.emulation is not None
    assert report.emulation.needs_gpu is None
    first = report.emulation.runs[0]
    assert first.family == "normal"
    assert {finding for run in report.emulation.runs for finding in run.findings} == set()
    assert sum(total.launches for total in first.totals) >= 1
    assert any(line.load_requests for line in first.counters)
    assert all(Path(line.path) == path for line in first.counters if line.load_requests)
    lines = len(path.read_text().splitlines())
    assert all(0 < line.line <= lines for line in first.counters if line.load_requests)


def test_planted_bugs_are_at_least_two_of_each_kind():
    kinds = [kind for planted, _ in PAIRS for kind in {kind for kind, _ in expected_findings(planted)}]
    assert len(PAIRS) >= 36
    assert set(kinds) == KINDS
    assert min(kinds.count(kind) for kind in KINDS) >= 2
    assert all(expected_findings(clean) == set() for _, clean in PAIRS)


@pytest.mark.parametrize("path", told([planted for planted, _ in PAIRS], BUG_OF_EACH))
def test_a_planted_bug_is_found_at_its_line(checked, path: Path):
    report = checked[path]
    assert findings_of(report) == expected_findings(path)
    assert not report.ok


@pytest.mark.parametrize("path", told([clean for _, clean in PAIRS], A_TWIN))
def test_nothing_is_found_in_the_clean_twin(checked, path: Path):
    report = checked[path]
    assert findings_of(report) == set()
    assert report.ok, report.diagnostics
