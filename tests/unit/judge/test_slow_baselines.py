"""A baseline of seconds a launch: said early, judged with few launches, within a bound, and as sure as it says."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from simulated_gpu import NEAR, SimulatedGpu, judged

from kernel_lsp import policy
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Verdict


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    return SimulatedGpu(monkeypatch)


def verdict_on(
    gpu: SimulatedGpu, tmp_path: Path, baseline: Sequence[float], candidate: Sequence[float], **options: float | str
) -> tuple[Verdict, list[str]]:
    """The verdict on one candidate beside a baseline, by seconds on each case, and what was said meanwhile."""
    said: list[str] = []

    async def judging() -> Verdict:
        async with gpu.opened(baseline, tmp_path, said, **options) as session:
            return await judged(session, candidate)

    return asyncio.run(judging()), said


@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 1.5])
def test_a_clear_gain_over_a_slow_baseline_is_confirmed_within_the_bound(
    seconds: float, gpu: SimulatedGpu, tmp_path: Path
) -> None:
    verdict, said = verdict_on(gpu, tmp_path, [seconds], [seconds / 25])
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert gpu.clock.s < policy.SLOW_BUDGET_SECONDS
    assert verdict.speedup == pytest.approx(25, rel=0.05)
    assert len(said) == 1
    assert f"{seconds:.1f} s on case n=0" in said[0]


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0, 3.0, 12.0, 30.0])
@pytest.mark.parametrize("share", [0.04, 0.9, 1.0, 1.3, 40.0])
def test_whatever_it_is_compared_with_it_ends(seconds: float, share: float, gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, _ = verdict_on(gpu, tmp_path, [seconds], [seconds * share])
    assert gpu.clock.s <= policy.SLOW_BUDGET_SECONDS + 2 * seconds
    if share >= 1:
        assert verdict.verdict is not Outcome.FASTER, verdict.reason
    if verdict.verdict is Outcome.AMBIGUOUS and verdict.speedup is None:
        assert f"{seconds:.1f} s on case n=0" in verdict.reason
        assert "A smaller case takes less" in verdict.reason


def test_what_cannot_be_timed_says_what_to_do_and_times_nothing(gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, said = verdict_on(gpu, tmp_path, [3.0], [0.1])
    assert (verdict.verdict, verdict.cases) == (Outcome.AMBIGUOUS, ())
    assert "right, but not timed" in verdict.reason
    assert "does not fit into 20 s" in verdict.reason
    assert gpu.count(3.0) == 2, "on plain inputs and on others"
    assert said


def test_more_time_judges_what_is_slower_still(gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, _ = verdict_on(gpu, tmp_path, [3.0], [0.1], slow_budget_s=60.0)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert 20 < gpu.clock.s < 60


def test_it_is_said_after_two_launches(gpu: SimulatedGpu, tmp_path: Path) -> None:
    counts: list[int] = []

    class Said(list[str]):
        def append(self, text: str, /) -> None:
            counts.append(gpu.count(1.0))

    async def opening() -> None:
        async with gpu.opened([1.0], tmp_path, Said()):
            pass

    asyncio.run(opening())
    assert counts == [2]


def test_fewer_pairs_have_a_wider_interval(gpu: SimulatedGpu, tmp_path: Path) -> None:
    quick, _ = verdict_on(gpu, tmp_path, [0.3], [0.2])
    slow, _ = verdict_on(gpu, tmp_path, [1.4], [1.4 / 1.5 * 0.1])
    widths = []
    for verdict, blocks in ((quick, policy.SLOW_MOST_PAIRS), (slow, policy.SLOW_LEAST_PAIRS)):
        assert verdict.interval is not None, verdict.reason
        assert verdict.cases[0].confirmation_blocks == blocks, verdict.reason
        widths.append(verdict.interval[1] / verdict.interval[0] - 1)
    assert widths[0] > 4 * policy.PLACE_SCATTER_SHARE, "one place of memory tells less than sixteen"
    assert widths[1] > widths[0]


@pytest.mark.parametrize("share", [0.5, 2 / 3, 0.9])
def test_spare_time_goes_to_inputs_only_where_no_pair_needs_it(share: float, gpu: SimulatedGpu, tmp_path: Path) -> None:
    for seed in range(4):  # what is looked at by chance makes a judgement longer or shorter
        gpu.rng.seed(seed)
        (tmp_path / str(seed)).mkdir()
        verdict, _ = verdict_on(gpu, tmp_path / str(seed), [0.3], [0.3 * share])
        assert verdict.verdict is Outcome.FASTER, verdict.reason


def test_what_is_left_out_is_said(gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, _ = verdict_on(gpu, tmp_path, [1.4], [0.05], steady_load="auto")
    skipped = {check.name: check.detail for check in verdict.evidence.checks if check.status is CheckStatus.SKIPPED}
    assert "a launch of the baseline takes 1.4 s there" in skipped["inputs: spiked"]
    assert "are not known" in skipped["determinism"]
    assert "is slow" in skipped["steady load"]
    assert "takes too much memory or time" in skipped["other sizes"]


def test_a_quick_case_beside_a_slow_one_keeps_all_its_inputs(gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, _ = verdict_on(gpu, tmp_path, [0.001, 1.0], [0.0005, 0.03])
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert gpu.clock.s < policy.SLOW_BUDGET_SECONDS
    passed = {(check.name, check.case) for check in verdict.evidence.checks if check.status is CheckStatus.PASSED}
    assert {("inputs: spiked", "n=0"), ("inputs: vast", "n=0"), ("inputs: normal", "n=1")} <= passed


def test_a_quick_baseline_is_judged_as_ever(gpu: SimulatedGpu, tmp_path: Path) -> None:
    verdict, said = verdict_on(gpu, tmp_path, [0.002], [0.001])
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert verdict.cases[0].confirmation_blocks == policy.CONFIRMATION_BLOCKS
    assert said == []
    sizes = [check for check in verdict.evidence.checks if check.name == "other sizes"]
    assert [(check.status, check.case) for check in sizes] == [(CheckStatus.PASSED, NEAR)]


def test_several_candidates_share_the_measurement_of_the_baseline(gpu: SimulatedGpu, tmp_path: Path) -> None:
    async def judging() -> list[Verdict]:
        async with gpu.opened([1.0], tmp_path, []) as session:
            return [await judged(session, [seconds]) for seconds in (0.05, 0.04)]

    assert [verdict.verdict for verdict in asyncio.run(judging())] == [Outcome.FASTER] * 2
