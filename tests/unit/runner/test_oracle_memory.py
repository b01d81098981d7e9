"""What the oracle keeps in memory, and what it makes again."""

from unittest.mock import Mock

import pytest
import torch
from oracle_support import MIXER, Trial, Version, kernel

from kernel_lsp.errors import NoRoomError, WorkloadError
from kernel_lsp.runner.messages import oracle as messages
from kernel_lsp.runner.messages.oracle_answers import Compared
from kernel_lsp.runner.spans import WORKER
from kernel_lsp.runner.workers import comparison, oracle
from kernel_lsp.runner.workers.comparison import Distance
from kernel_lsp.runner.workers.error_bounds import Bounds
from kernel_lsp.runner.workers.input_sets import InputSets
from kernel_lsp.runner.workers.output_errors import Allowance
from kernel_lsp.workload.families import FAMILIES

WORKLOAD = """import torch
CASES = [dict(n=12)]
def inputs(n):
    return torch.randn(n, 8, device="cuda").t(), torch.randn(1, device="cuda").expand(n), 0.5
def reference(x, bias, scale):
    return (x + bias) * scale
"""


def draw_all(trial: Trial) -> list[str]:
    keys = [trial.draw(family, number, key=family) for number, family in enumerate(FAMILIES)]
    varied = [
        f"normal/{number}" for number in range(len(trial.workload.arguments)) if trial.vary("normal", number).made
    ]
    return [*keys, *varied, trial.touch("normal")]


def content(trial: Trial, key: str) -> list[object]:
    """Bits, types and strides of inputs, and what is expected."""
    leaves = [
        (leaf.stride(), leaf.dtype, leaf.contiguous().view(-1).view(torch.uint8).tolist())
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in trial.leaves(key)
    ]
    return [*leaves, *(repr(output.tolist()) for output in trial.oracle.inputs.expected(key).outputs)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [WORKLOAD, MIXER.read_text()], ids=["workload", "problem"])
def test_inputs_that_are_made_again_have_the_same_bits(text):
    lavish, thrifty = (Trial(text, keep=keep, path=str(MIXER)) for keep in (None, 0))
    keys = draw_all(lavish)
    assert draw_all(thrifty) == keys
    assert len(lavish.oracle.inputs.kept) == len(keys) > len(FAMILIES) + 2
    for key in (*keys, *reversed(keys)):
        assert content(thrifty, key) == content(lavish, key)
        assert thrifty.oracle.inputs.kept == (key,)


def test_nothing_is_made_twice_while_it_fits(monkeypatch):
    trial = Trial(WORKLOAD, keep=30_000)
    keys = draw_all(trial)
    monkeypatch.setattr(InputSets, "_made", lambda *_: pytest.fail("made again"))
    monkeypatch.setattr(InputSets, "reference", lambda *_: (torch.zeros(1),))
    for key in keys:
        trial.oracle.inputs.expected(key)


def test_what_was_used_last_is_kept():
    trial = Trial(WORKLOAD, keep=2 * (12 * 8 + 1) * 4 + 100)
    for number in range(5):
        trial.draw(number=number, key=str(number))
    assert trial.oracle.inputs.kept == ("2", "3", "4")
    trial.leaves("2")
    trial.leaves("0")
    assert trial.oracle.inputs.kept == ("4", "2", "0")


def test_an_expanded_input_is_counted_once():
    trial = Trial(WORKLOAD)
    assert trial.made[trial.draw()].input_bytes == (12 * 8 + 1) * 4


def test_inputs_that_cannot_be_made_again_are_refused():
    text = "import itertools\n" + WORKLOAD.replace("def inputs", "count = itertools.count()\ndef inputs")
    trial = Trial(text.replace(", 0.5", " + next(count), 0.5"), keep=0)
    first, _ = trial.draw(), trial.draw(number=1)
    with pytest.raises(WorkloadError, match="other values under the same seed"):
        trial.leaves(first)


def test_inputs_outlive_that_memory_was_short_when_they_were_to_go(monkeypatch):
    trial = Trial(WORKLOAD, keep=0)
    first = trial.draw()
    usual = content(trial, first)
    with monkeypatch.context() as patch:
        patch.setattr(InputSets, "_prints_of", Mock(side_effect=torch.OutOfMemoryError))
        with pytest.raises(torch.OutOfMemoryError):
            trial.draw(number=1)
    trial.draw(number=1)
    assert content(trial, first) == usual


def test_a_trivial_answer_passes_whatever_is_kept():
    text = WORKLOAD.replace("(x + bias) * scale", "x.clone()")
    found = []
    for keep in (None, 0):
        trial = Trial(text, keep=keep)
        for key, number in (("normal", 1), ("other", 2)):
            trial.draw(number=number, key=key)
        trial.oracle.errors._allowances["normal"] = Allowance(
            (torch.float32,), (1.0,), (Distance(0.5, 0.2, None, 0),), (Bounds(4.0, 1.0),)
        )
        request = messages.Discriminate(key="normal", other="other", outputs=("float32",))
        found.append(trial.oracle.discriminate(request))
    assert found == [("a copy of `x`",)] * 2


class Exact(Version):
    """A version that returns the right answer, or one that is off by a given amount."""

    def __init__(self, trial: Trial, key: str) -> None:
        super().__init__(trial, kernel("x"))
        self.trial, self.key = trial, key

    def answer(self, off: float = 0.0, *, baseline: bool = False) -> Compared:
        self.fill(self.key)
        truth = self.trial.oracle.inputs.expected(self.key).outputs[0]
        return self.compare(self.key, self.publish((truth + off).float()), baseline=baseline)


@pytest.fixture
def version(monkeypatch):
    trial = Trial(WORKLOAD)
    trial.draw(number=1, key="normal")
    trial.touch("normal")
    one = Exact(trial, "normal")
    one.answer(baseline=True)
    trial.touch("normal")  # it has the errors that are allowed now
    one.readings = Mock(side_effect=comparison.distance)
    monkeypatch.setattr(comparison, "distance", one.readings)
    return one


def test_bits_that_were_right_are_read_once(version):
    first, again = version.answer(), version.answer()
    assert first == again
    assert first.distances[0].index is None
    assert version.readings.call_count == 1
    nearly = version.answer(off=1e-7)
    assert nearly.fingerprints != first.fingerprints
    assert version.readings.call_count == 2


def test_what_is_wrong_is_read_each_time(version):
    found = [version.answer(off=1.0) for _ in range(2)]
    assert [one.distances[0].index for one in found] == [(0, 0), (0, 0)]
    assert version.readings.call_count == 2


def test_inputs_that_were_changed_show_where_the_outputs_are_known(version):
    version.answer()
    version.fill("normal")
    specs = version.publish(version.trial.oracle.inputs.expected("normal").outputs[0].float())
    place = version.trial.made["normal"].arguments[0].offset
    version.bind("in", version.trial.made["normal"]).data[place] ^= 1
    found = version.compare("normal", specs)
    assert found.changed_inputs == ("x",)
    assert version.readings.call_count == 1


def test_inputs_that_lie_there_no_longer_are_not_looked_at(version):
    version.fill("normal")
    specs = version.publish(version.trial.oracle.inputs.expected("normal").outputs[0].float())
    version.fill("normal/touched")
    assert version.compare("normal", specs).changed_inputs == ("x", "bias")
    assert version.compare("normal", specs, untouched=False).changed_inputs == ()


def test_bits_that_were_right_for_other_inputs_of_the_key_are_read_again(version):
    right = version.answer()
    version.fill("normal/touched")
    specs = version.publish(version.trial.oracle.inputs.expected("normal/touched").outputs[0].float())
    known = version.compare("normal/touched", specs)
    assert known.distances[0].index is None
    version.trial.touch("normal", 99)
    version.fill("normal/touched")
    stale = version.compare("normal/touched", specs)
    assert stale.fingerprints == known.fingerprints != right.fingerprints
    assert stale.distances[0].index is not None


def test_known_bits_are_read_again_beside_a_new_baseline(version):
    version.answer()
    version.answer(baseline=True)
    before = version.readings.call_count
    version.answer()
    assert version.readings.call_count == before + 1


def test_outputs_of_one_checksum_cannot_be_made_by_who_does_not_know_the_oracle():
    output = torch.randn(4096)
    assert len({Trial(WORKLOAD).oracle.checksum(output) for _ in range(3)}) == 3


def test_a_fresh_draw_is_held_to_what_the_baseline_was_held_to_on_another():
    trial = Trial(WORKLOAD)
    first, second = trial.draw(), trial.draw(number=1, like="0/normal/0")
    later = trial.draw("large", 3, like=second)
    assert "like" not in later
    rough = kernel("((x + bias) * scale) * (1 + 3e-6)", "x, bias, scale")
    (own,) = trial.baseline(rough, first)
    fresh = trial.draw(number=2, like=first)
    found = Version(trial, rough).judge(fresh)
    assert found.baseline == own.baseline
    assert found.distances[0].index is None
    assert Version(trial, kernel("(x + bias) * scale + 1e-3", "x, bias, scale")).judge(fresh).distances[0].index


@pytest.mark.parametrize(
    ("takes", "reserved", "found", "fits"),
    [(30, 40, 90, True), (60, 40, 90, False), (30, 40, 31, False)],
    ids=["fits", "others may come to take it", "others have taken it"],
)
def test_a_problem_does_not_open_beside_others_where_both_do_not_fit(takes, reserved, found, fits):
    """And it is as large as it would be alone: sizes are chosen by what is free without the others."""
    if fits:
        oracle.require_room(takes, (100, reserved), found, MIXER)
    else:
        with pytest.raises(NoRoomError, match="beside other sessions"):
            oracle.require_room(takes, (100, reserved), found, MIXER)


def test_a_session_keeps_fewer_inputs_beside_others():
    assert oracle.budget(100, None, 0) == 25
    assert oracle.budget(100, 80, 0) == pytest.approx(10)
    assert oracle.budget(100, 20, 40) == pytest.approx(15)
    assert oracle.budget(100, 40, 40) == pytest.approx(14)


def test_a_trace_shows_inputs_drawn_and_right_answers_computed():
    trial = Trial(WORKLOAD)
    WORKER.drain()
    key = trial.draw("normal", 0, key="normal")
    trial.oracle.inputs.expected(key)
    assert {"draw inputs", "compute the right answer"} <= {span.name for span in WORKER.drain()}
