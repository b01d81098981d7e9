"""A steady load: what stretches of both sides say, and when there is one, on a GPU that is made up."""

import asyncio
from types import SimpleNamespace

import pytest
from judge_support import fake_harness, fake_subject, timed

from kernel_lsp import policy
from kernel_lsp.device.nvml import GpuLoad
from kernel_lsp.judge.measure import steady_load as sustained
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.verdict import CheckStatus
from kernel_lsp.runner.messages.subject import Sustain
from kernel_lsp.runner.messages.subject_answers import Stretch

CASE = timed()


class Machine:
    """A GPU with a clock of its own, and two sides that run on it."""

    def __init__(
        self, watts: dict[str, float], us: dict[str, float], counts: bool = True, throttle=(), throttled_from: int = 1
    ) -> None:
        self.watts, self.us, self.counts, self.throttle = watts, us, counts, throttle
        self.throttled_from = throttled_from  # which run
        self.energy = 1000.0
        self.power = 80.0
        self.asked: list[str] = []

    def read_load(self, _gpu) -> GpuLoad:
        throttle = self.throttle if len(self.asked) >= self.throttled_from else ()
        return GpuLoad(self.power, 700.0, self.energy if self.counts else None, throttle)

    def subject(self, side: str):
        async def ask(request, *, deadline):
            seconds = request.seconds
            buffer = CASE.names[0]
            assert request == Sustain(buffer=buffer, seconds=seconds, launch_us=100.0, restores=False, capture=True)
            assert deadline > seconds
            self.asked.append(side)
            self.power = self.watts[side]
            await asyncio.sleep(0.05)
            self.energy += self.watts[side] * seconds
            return Stretch(int(seconds * 1e6 / self.us[side]), seconds, 1500.0)

        return fake_subject(SimpleNamespace(ask=ask))

    def measure(self, monkeypatch):
        monkeypatch.setattr(sustained, "read_load", self.read_load)
        return asyncio.run(sustained.measure(fake_harness(gpu=object()), self.subject("A"), self.subject("B"), CASE))


def test_energy_and_time_of_a_kernel_that_power_limits(monkeypatch):
    machine = Machine({"A": 600, "B": 690}, {"A": 100.0, "B": 80.0}, throttle=("power cap",))
    check, run = machine.measure(monkeypatch)
    assert run is not None
    assert check.status is CheckStatus.PASSED
    assert check.detail == "1.250x (1.250 to 1.250) at 690 W of 700 W"
    assert "".join(machine.asked) == "B" + sustained.ORDER
    assert (run.baseline_us, run.candidate_us) == pytest.approx((100.0, 80.0))
    assert run.speedup == pytest.approx(1.25)
    assert (run.baseline_mj, run.candidate_mj) == pytest.approx((60.0, 55.2)), "watts times the time of a launch"
    assert (run.baseline_w, run.candidate_w) == pytest.approx((600, 690))
    assert run.seconds == pytest.approx(2 * policy.SUSTAINED_STRETCH_SECONDS)
    assert run.throttle == ("power cap",)


def test_a_loss_is_looked_at_for_longer(monkeypatch):
    machine = Machine({"A": 600, "B": 690}, {"A": 80.0, "B": 100.0})
    _, run = machine.measure(monkeypatch)
    assert run is not None
    assert "".join(machine.asked) == "B" + policy.SUSTAINED_TURNS * sustained.ORDER
    further = (policy.SUSTAINED_TURNS - 1) * 2 * policy.SUSTAINED_STRETCH_SECONDS
    assert run.seconds == pytest.approx(2 * policy.SUSTAINED_SHORT_SECONDS + further)
    assert run.interval[1] < 1


def test_stretches_are_short_where_the_first_run_was_not_throttled(monkeypatch):
    machine = Machine({"A": 600, "B": 690}, {"A": 100.0, "B": 80.0})
    _, run = machine.measure(monkeypatch)
    assert run is not None
    assert "".join(machine.asked) == "B" + sustained.ORDER
    assert run.seconds == pytest.approx(2 * policy.SUSTAINED_SHORT_SECONDS)


def test_throttling_in_short_stretches_is_looked_at_for_longer(monkeypatch):
    machine = Machine({"A": 600, "B": 690}, {"A": 100.0, "B": 80.0}, throttle=("power cap",), throttled_from=3)
    _, run = machine.measure(monkeypatch)
    assert run is not None
    assert "".join(machine.asked) == "B" + 2 * sustained.ORDER
    assert run.seconds == pytest.approx(2 * (policy.SUSTAINED_SHORT_SECONDS + policy.SUSTAINED_STRETCH_SECONDS))


def test_a_kernel_that_draws_little_is_spared(monkeypatch):
    machine = Machine({"A": 300, "B": 320}, {"A": 100.0, "B": 80.0})
    check, run = machine.measure(monkeypatch)
    assert run is None
    assert (check.status, check.detail) == (CheckStatus.SKIPPED, "power is no limit: 320 W of 700 W")
    assert machine.asked == ["B"], "one short look, at what would lose"


def test_a_throttled_kernel_is_loaded_though_it_draws_little(monkeypatch):
    machine = Machine({"A": 200, "B": 200}, {"A": 100.0, "B": 100.0}, throttle=("thermal (software)",))
    assert machine.measure(monkeypatch)[1] is not None


def test_a_gpu_that_does_not_count_energy(monkeypatch):
    _, run = Machine({"A": 600, "B": 500}, {"A": 100.0, "B": 80.0}, counts=False).measure(monkeypatch)
    assert run is not None
    assert (run.baseline_mj, run.candidate_mj) == (None, None)
    assert run.baseline_w == pytest.approx(600, abs=1)


def test_a_block_is_taken_back():
    series = Series.empty([CASE])
    series.blocks[0] += [0.1, 0.2]
    series.baseline_us[0] += [1.0, 2.0]
    series.candidate_us[0] += [3.0, 4.0]
    series.discard_last()
    assert (series.combined, series.baseline_us, series.candidate_us, series.discarded) == ([0.1], [[1.0]], [[3.0]], 1)
