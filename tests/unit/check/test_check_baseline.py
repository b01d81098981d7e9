"""The baseline in the repository: what it records, and what counts as worse."""

import json
from pathlib import Path

import pytest

from kernel_lsp.check.baseline import (
    BASELINE,
    Baseline,
    Measured,
    find_root,
    name_in,
    needs_timing,
    read_baseline,
    regressions,
    updated,
    write_baseline,
)
from kernel_lsp.check.record import CaseTime
from kernel_lsp.check.timed import median_interval
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels

SOURCE = SourceFile(Path("k.cu"), "// k\n__global__ void f(float* y) {}\n__global__ void g(float* y) {}\n")
KERNELS = find_kernels(SOURCE.text, SOURCE.path)
TIMES = (CaseTime("n=1", 100.04, (99.0, 101.0)),)


def kernel(name: str = "f", **changes) -> KernelResources:
    facts = {
        "registers": 32,
        "shared_bytes": 0,
        "spill_bytes": 0,
        "stack_bytes": 0,
        "threads": 256,
        "occupancy": 1.0,
        "limiter": "warps",
    }
    return KernelResources(name=name, **facts | {"code": f"code of {name}"} | changes)


def record(*resources: KernelResources, times=None, device=None, root=Path("/")):
    baseline = updated(Baseline(), root, [Measured("k.cu", "sm_90", resources, device, times)])
    found = baseline.find("k.cu", "sm_90")
    assert found is not None
    return found


def worse(now: KernelResources, **before) -> list[tuple[str | None, int, str]]:
    return [
        (d.code, d.line, d.message) for d in regressions(SOURCE, KERNELS, [now], record(kernel(now.name, **before)))
    ]


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        ({"registers": 33}, "KL040", "`f` takes 33 registers a thread; 32 are recorded"),
        ({"spill_bytes": 4}, "KL041", "`f` spills 4 bytes a thread; 0 are recorded"),
        (
            {"occupancy": 0.5, "limiter": "registers"},
            "KL042",
            "`f` has an occupancy of 50%, limited by registers; 100% is recorded",
        ),
    ],
)
def test_what_is_worse_is_found_at_the_kernels_name(change, rule, words):
    assert worse(kernel(**change)) == [(rule, 2, words)]
    assert worse(kernel("g", **change))[0][1] == 3


@pytest.mark.parametrize("change", [{}, {"registers": 24}, {"occupancy": 1.0}, {"code": "another"}])
def test_what_is_as_good_or_better_is_not(change):
    assert worse(kernel(**change)) == []
    assert worse(kernel(), registers=40, spill_bytes=8, occupancy=0.5) == []


def test_registers_count_by_the_units_they_are_handed_out_in():
    assert worse(kernel(registers=32), registers=25) == []
    assert worse(kernel(registers=33), registers=32) != []


def test_a_kernel_that_is_not_recorded_is_not_compared():
    assert regressions(SOURCE, KERNELS, [kernel("g", registers=255)], record(kernel("f"))) == []


@pytest.mark.parametrize(("low", "found"), [(105.9, 0), (106.2, 1)])
def test_slower_means_that_the_whole_interval_lies_above(low, found):
    known = record(kernel(), times=TIMES, device="H200")
    now = (CaseTime("n=1", 120.0, (low, 130.0)),)
    slower = regressions(SOURCE, KERNELS, [kernel()], known, now, "H200")
    assert [d.code for d in slower] == ["KL043"] * found
    assert regressions(SOURCE, KERNELS, [kernel()], known, now, "A100") == []


def test_only_other_machine_code_is_timed_again():
    known = record(kernel(), times=TIMES, device="H200")
    assert not needs_timing(known, [kernel()], "H200")
    assert needs_timing(known, [kernel(code="another")], "H200")
    assert not needs_timing(known, [kernel(code="another")], "A100")
    assert not needs_timing(None, [kernel()], "H200")


def test_the_file_is_stable_and_comes_back_as_it_was(tmp_path):
    for name in ("b.cu", "a.cu"):
        (tmp_path / name).touch()
    files = [Measured(n, "sm_90", [kernel("g"), kernel("f")], "H200", TIMES) for n in ("b.cu", "a.cu")]
    path = write_baseline(updated(Baseline(), tmp_path, files), tmp_path)
    assert path == tmp_path / ".kernel-lsp/baseline.json"
    text = path.read_text()
    assert list(json.loads(text)["files"]) == ["a.cu", "b.cu"]
    assert json.loads(text)["files"]["a.cu"]["sm_90"]["times"] == {
        "H200": {"n=1": {"interval": [99, 101], "us": 100.0}}
    }
    assert max(map(len, text.splitlines())) < 90
    assert text.endswith("}\n")
    write_baseline(updated(read_baseline(tmp_path), tmp_path, reversed(files)), tmp_path)
    assert path.read_text() == text
    assert [entry.name for entry in path.parent.iterdir()] == ["baseline.json"]


def test_an_update_touches_what_was_checked_and_drops_what_is_gone(tmp_path):
    for name in ("a.cu", "b.cu", "gone.cu"):
        (tmp_path / name).touch()
    baseline = updated(Baseline(), tmp_path, [Measured(n, "sm_90", [kernel()]) for n in ("a.cu", "b.cu", "gone.cu")])
    (tmp_path / "gone.cu").unlink()
    later = updated(baseline, tmp_path, [Measured("a.cu", "sm_80", [kernel(registers=64)])])
    assert set(later.files) == {"a.cu", "b.cu"}
    assert set(later.files["a.cu"]) == {"sm_80", "sm_90"}
    assert later.files["b.cu"] == baseline.files["b.cu"]


def test_times_of_other_machine_code_do_not_stay(tmp_path):
    (tmp_path / "a.cu").touch()
    timed = updated(Baseline(), tmp_path, [Measured("a.cu", "sm_90", [kernel()], "H200", TIMES)])
    same = updated(timed, tmp_path, [Measured("a.cu", "sm_90", [kernel()])])
    other = updated(timed, tmp_path, [Measured("a.cu", "sm_90", [kernel(code="another")])])
    assert same == timed
    assert other.files["a.cu"]["sm_90"].times == {}


def test_the_root_is_the_nearest_repository_or_project(tmp_path):
    inner = tmp_path / "project" / "kernels"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert find_root(inner / "k.cu") == tmp_path
    (tmp_path / "project" / "pyproject.toml").touch()
    assert find_root(inner / "k.cu") == tmp_path / "project"
    assert name_in(tmp_path / "project", inner / "k.cu") == "kernels/k.cu"


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot be used"), ('{"version": 99}', "newer version"), ('{"files": 1}', "cannot be used")],
)
def test_a_baseline_that_cannot_be_used_is_said(tmp_path, text, words):
    (tmp_path / BASELINE).parent.mkdir()
    (tmp_path / BASELINE).write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        read_baseline(tmp_path)


def test_the_interval_of_a_median():
    assert median_interval([3.0]) == (3.0, 3.0)
    assert median_interval([5.0, 1.0, 3.0]) == (1.0, 5.0)
    # With 25 values the 8th from either end: P(Bin(25, 1/2) <= 7) = 0.0216, and <= 8 would be 0.0539.
    assert median_interval([float(n) for n in range(1, 26)]) == (8.0, 18.0)
