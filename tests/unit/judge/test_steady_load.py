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
COUNTER_STEP_S = 0.1  # of the counter of energy, as an H200's


class Machine:
    """A GPU with a clock of its own, and two sides that run on it; the clock is by side."""

    def __init__(
        self,
        watts: dict[str, float],
        us: dict[str, float],
        clock: float | None = 1500.0,
        *,
        counts: bool = True,
        tells_power: bool = True,
    ) -> None:
        self.watts, self.us, self.clock, self.counts = watts, us, clock, counts
        self.tells_power = tells_power
        self.asked: list[str] = []
        self.lengths: list[float] = []

    def read_load(self, _gpu) -> GpuLoad:
        power = self.watts[self.asked[-1]] if self.tells_power else None
        return GpuLoad(power, 700.0, None, ("power cap",) if power == 700 else ())

    def subject(self, side: str):
        async def ask(request, *, deadline):
            seconds = request.seconds
            buffer = CASE.names[0]
            assert request == Sustain(buffer=buffer, seconds=seconds, launch_us=100.0, restores=False, capture=True)
            assert deadline > seconds
            self.asked.append(side)
            self.lengths.append(seconds)
            await asyncio.sleep(0.03)
            return Stretch(int(seconds * 1e6 / self.us[side]), seconds, self.clock)

        return fake_subject(SimpleNamespace(ask=ask))

    def measure(self, monkeypatch, gain: float = 1.25, short_mhz: float | None = 1500.0):
        monkeypatch.setattr(sustained, "read_load", self.read_load)
        sides = self.subject("A"), self.subject("B")
        short = sustained.ShortRuns(gain, short_mhz)
        return asyncio.run(sustained.measure(fake_harness(gpu=object()), *sides, CASE, short))


def test_a_clock_that_holds_takes_nothing(monkeypatch):
    machine = Machine({"A": 600, "B": 690}, {"A": 80.0, "B": 100.0}, 1498.0)
    check, run = machine.measure(monkeypatch, gain=0.9)
    assert run is None
    assert check.status is CheckStatus.PASSED
    assert check.detail == "its clock held: 1,498 MHz at 690 W of 700 W, 1,500 MHz in short runs"
    assert (machine.asked, machine.lengths) == (
        ["B", "B"],
        [policy.SUSTAINED_LEAD_SECONDS, policy.SUSTAINED_PROBE_SECONDS],
    ), "at first the clock has not fallen yet"


def test_a_clock_that_falls_by_less_than_the_gain_cannot_take_it(monkeypatch):
    machine = Machine({"A": 600, "B": 700}, {"A": 100.0, "B": 80.0}, 1350.0)
    check, run = machine.measure(monkeypatch, gain=1.2)
    assert run is None
    said = "its clock fell by 10.0%, less than it gains: 1,350 MHz at 700 W of 700 W, 1,500 MHz in short runs"
    assert check.detail == said
    assert machine.measure(monkeypatch, gain=1.1)[1] is not None, "1.1 of 0.9 is a loss"


def test_energy_and_time_of_a_kernel_that_power_limits(monkeypatch):
    machine = Machine({"A": 600, "B": 700}, {"A": 100.0, "B": 80.0}, 1200.0)
    check, run = machine.measure(monkeypatch)
    assert run is not None
    assert check.detail == "1.250x (1.250 to 1.250) at 700 W of 700 W"
    assert "".join(machine.asked) == "BB" + sustained.ORDER
    assert (run.baseline_us, run.candidate_us) == pytest.approx((100.0, 80.0))
    assert run.speedup == pytest.approx(1.25)
    assert (run.baseline_mj, run.candidate_mj) == pytest.approx((60.0, 56.0)), "watts times the time of a launch"
    assert (run.baseline_w, run.candidate_w, run.limit_w) == pytest.approx((600, 700, 700))
    assert (run.baseline_clock_mhz, run.candidate_clock_mhz) == (1200.0, 1200.0)
    assert run.seconds == pytest.approx(2 * policy.SUSTAINED_STRETCH_SECONDS)
    assert run.throttle == ("power cap",)


def test_a_loss_is_looked_at_for_longer(monkeypatch):
    machine = Machine({"A": 600, "B": 700}, {"A": 80.0, "B": 100.0}, 1000.0)
    _, run = machine.measure(monkeypatch)
    assert run is not None
    assert "".join(machine.asked) == "BB" + policy.SUSTAINED_TURNS * sustained.ORDER
    assert run.interval[1] < 1


@pytest.mark.parametrize(("clock", "short_mhz"), [(None, 1500.0), (1500.0, None)])
def test_without_a_clock_both_sides_are_run(clock, short_mhz, monkeypatch):
    machine = Machine({"A": 100, "B": 100}, {"A": 100.0, "B": 80.0}, clock)
    assert machine.measure(monkeypatch, short_mhz=short_mhz)[1] is not None


def test_a_gpu_that_does_not_tell_its_power(monkeypatch):
    machine = Machine({"A": 600, "B": 500}, {"A": 100.0, "B": 80.0}, 1000.0, tells_power=False)
    check, run = machine.measure(monkeypatch)
    assert check.detail == "1.250x (1.250 to 1.250)"
    assert run is not None
    assert (run.baseline_w, run.candidate_w, run.baseline_mj, run.candidate_mj) == (None, None, None, None)


def readings(watts: float, seconds: float, first_step_s: float, before_w: float = 100.0) -> list[tuple[float, GpuLoad]]:
    """What a GPU says every 5 ms of a stretch whose power differs from that before; its counter moves in steps."""
    made: list[tuple[float, GpuLoad]] = []
    for number in range(int(seconds / 0.005)):
        at = number * 0.005
        steps = 0 if at < first_step_s else 1 + int((at - first_step_s + 1e-9) / COUNTER_STEP_S)
        first_j = before_w * (COUNTER_STEP_S - first_step_s) + watts * first_step_s
        energy = 1000.0 + (first_j + (steps - 1) * watts * COUNTER_STEP_S if steps else 0.0)
        made.append((at, GpuLoad(before_w, 700.0, energy, ())))
    return made


@pytest.mark.parametrize("first_step_s", [0.0, 0.02, 0.05, 0.095])
def test_power_is_told_between_two_steps_of_the_counter_of_energy(first_step_s):
    stretch = readings(650.0, policy.SUSTAINED_STRETCH_SECONDS, first_step_s)
    assert sustained.mean_watts(stretch) == pytest.approx(650.0, rel=0.01)


def test_power_of_a_stretch_too_short_for_the_counter_is_the_last_reading():
    assert sustained.mean_watts(readings(650.0, 0.09, 0.05, before_w=640.0)) == 640.0
    assert sustained.mean_watts([]) is None


def test_a_block_is_taken_back():
    series = Series.empty([CASE])
    series.blocks[0] += [0.1, 0.2]
    series.baseline_us[0] += [1.0, 2.0]
    series.candidate_us[0] += [3.0, 4.0]
    series.discard_last()
    assert (series.combined, series.baseline_us, series.candidate_us, series.discarded) == ([0.1], [[1.0]], [[3.0]], 1)
