import json

import pytest
import sample_verdicts as sample

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report import units
from kernel_lsp.report.machine import records_json, verdict_json


@pytest.mark.parametrize(
    ("us", "text"), [(0.85, "850 ns"), (3.314, "3.31 µs"), (29.04, "29.0 µs"), (1420, "1.42 ms"), (3.1e6, "3.10 s")]
)
def test_times(us, text):
    assert units.time_text(us) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (49152, "48 KiB"), (1536 * 1024, "1.50 MiB"), (528, "528 B")])
def test_sizes(count, text):
    assert units.size_text(count) == text


def test_bandwidth_is_decimal():
    assert units.bandwidth_text(4_000_000_000, 1e6) == "4.00 GB/s"
    assert units.bandwidth_text(134_225_920, 29.04) == "4,622 GB/s"


@pytest.mark.parametrize(("ratio", "text"), [(1.419, "1.42x"), (1.0042, "1.004x"), (0.5, "0.50x")])
def test_speedups_near_one_keep_a_digit_more(ratio, text):
    assert units.speedup_text(ratio) == text


@pytest.mark.parametrize(("interval", "text"), [((1.401, 1.438), "1.40-1.44"), ((0.998, 1.004), "0.998-1.004")])
def test_intervals(interval, text):
    assert units.interval_text(interval) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.003, "3 ms"), (0.42, "0.42 s"), (12.51, "12.5 s"), (125, "2:05"), (119.6, "2:00")]
)
def test_wall_times(seconds, text):
    assert units.seconds_text(seconds) == text


def test_a_verdict_as_one_object():
    said = json.loads(verdict_json(sample.faster()))
    expected = {"id", "verdict", "stage", "reason", "cases", "speedup", "interval", "seconds", "evidence"}
    assert set(said) >= expected
    assert (said["verdict"], said["stage"], said["interval"]) == ("FASTER", "timed", [1.231, 1.262])
    assert said["cases"][0]["baseline_us"] == 41.2
    assert said["evidence"]["seed"] == 8675309


def test_figures_that_are_not_finite_survive_json():
    errors = sample.evidence().errors[0].model_copy(update={"candidate_max": float("inf")})
    text = verdict_json(sample.faster(evidence=sample.evidence(errors=(errors,))))
    assert json.loads(text, parse_constant=pytest.fail)["evidence"]["errors"][0]["candidate_max"] == "Infinity"
    assert Verdict.model_validate_json(text).evidence.errors[0].candidate_max == float("inf")


def test_records_of_both_kinds():
    said = json.loads(records_json([sample.case("n=1"), {"path": "x.cu"}]))
    assert said[0]["case"] == "n=1"
    assert said[1] == {"path": "x.cu"}
