"""What the oracle keeps in memory, and what it makes again."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from kernel_lsp.device.slab import make_slab, row_major
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.comparison import Bounds, Distance
from kernel_lsp.runner.workers.oracle import Oracle, _Baseline
from kernel_lsp.workload.families import FAMILIES

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
WORKLOAD = """import torch
CASES = [dict(n=12)]
def inputs(n):
    return torch.randn(n, 8, device="cuda").t(), torch.randn(1, device="cuda").expand(n), 0.5
def reference(x, bias, scale):
    return (x + bias) * scale
"""


def oracle(text: str, keep: int | None) -> Oracle:
    made = Oracle("cpu", 2.0)
    made.load(text, str(MIXER), seed=3, keep=keep)
    return made


def draw_all(made: Oracle, arguments: int) -> list[str]:
    for number, family in enumerate(FAMILIES):
        made.prepare(family, 0, family, number)
    varied = [f"normal/{argument}" for argument in range(arguments)]
    known = [key for key in varied if made.vary(key, "normal", int(key[-1]), 7)["varied"]]
    made.touch("touched", "normal", 8)
    return [*FAMILIES, *known, "touched"]


def content(made: Oracle, key: str) -> list[object]:
    """Bits, types and strides of inputs, and what is expected."""
    leaves = [
        (leaf.stride(), leaf.dtype, leaf.contiguous().view(-1).view(torch.uint8).tolist())
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in made._leaves(key)
    ]
    return [*leaves, *(output.tolist().__repr__() for output in made._expect(key).outputs)]


@pytest.mark.parametrize("text", [WORKLOAD, MIXER.read_text()], ids=["workload", "problem"])
def test_inputs_that_are_made_again_have_the_same_bits(text):
    lavish, thrifty = oracle(text, None), oracle(text, 0)
    keys = draw_all(lavish, 7 if "Model" in text else 3)
    assert draw_all(thrifty, 7 if "Model" in text else 3) == keys
    assert len(lavish._kept) == len(keys) > len(FAMILIES) + 2
    for key in (*keys, *reversed(keys)):
        assert content(thrifty, key) == content(lavish, key)
        assert list(thrifty._kept) == [key]


def test_nothing_is_made_twice_while_it_fits(monkeypatch):
    made = oracle(WORKLOAD, 15_000)
    keys = draw_all(made, 3)
    monkeypatch.setattr(Oracle, "_made", lambda *_: pytest.fail("made again"))
    monkeypatch.setattr(Oracle, "_reference", lambda *_: [torch.zeros(1)])
    for key in keys:
        made._expect(key)


def test_what_was_used_last_is_kept():
    made = oracle(WORKLOAD, 2 * (12 * 8 + 1) * 4 + 100)
    nbytes = [made.prepare(str(number), 0, "normal", number)["input_bytes"] for number in range(5)]
    assert list(made._kept) == ["2", "3", "4"], nbytes
    made._leaves("2")
    made._leaves("0")
    assert list(made._kept) == ["4", "2", "0"]


def test_an_expanded_input_is_counted_once():
    assert oracle(WORKLOAD, None).prepare("0", 0, "normal", 0)["input_bytes"] == (12 * 8 + 1) * 4


def test_inputs_that_cannot_be_made_again_are_refused():
    text = "import itertools\n" + WORKLOAD.replace("def inputs", "count = itertools.count()\ndef inputs")
    made = oracle(text.replace(", 0.5", " + next(count), 0.5"), 0)
    for number in range(2):
        made.prepare(str(number), 0, "normal", number)
    with pytest.raises(WorkloadError, match="other values under the same seed"):
        made._leaves("0")


def test_inputs_outlive_that_memory_was_short_when_they_were_to_go(monkeypatch):
    made = oracle(WORKLOAD, 0)
    made.prepare("0", 0, "normal", 0)
    usual = content(made, "0")
    with monkeypatch.context() as patch:
        patch.setattr(Oracle, "_prints_of", Mock(side_effect=torch.OutOfMemoryError))
        with pytest.raises(torch.OutOfMemoryError):
            made.prepare("1", 0, "normal", 1)
    made.prepare("1", 0, "normal", 1)
    assert content(made, "0") == usual


def test_a_trivial_answer_passes_whatever_is_kept():
    text = WORKLOAD.replace("(x + bias) * scale", "x.clone()")
    found = []
    for keep in (None, 0):
        made = oracle(text, keep)
        for key, number in (("normal", 1), ("other", 2)):
            made.prepare(key, 0, "normal", number)
        made._baseline["normal"] = _Baseline(
            (torch.float32,), (1.0,), (Distance(0.5, 0.2, None, 0),), (Bounds(4.0, 1.0),)
        )
        found.append(made.discriminate("normal", "other", ["float32"]))
    assert found == [["a copy of `x`"]] * 2


class Version:
    """What the oracle sees of a process under test: memory for inputs and for outputs."""

    def __init__(self, made: Oracle, key: str) -> None:
        self.made, self.key = made, key
        self.inputs = make_slab(made._inputs[key].nbytes, "cpu")
        truth = made._expect(key).outputs[0]
        self.spec = row_major(truth.float(), 0)
        self.outputs = make_slab(self.spec.span, "cpu")
        made.attach("1", "in", self.inputs.handle)
        made.attach("1", "out", self.outputs.handle)

    def compare(self, off: float = 0.0, *, baseline: bool = False) -> dict:
        self.made.fill("1", "in", self.key)
        self.outputs.view(self.spec).copy_(self.made._expect(self.key).outputs[0] + off)
        return self.made.compare("1", "in", self.key, [self.spec.to_json()], baseline=baseline)


@pytest.fixture
def version(monkeypatch):
    made = oracle(WORKLOAD, None)
    made.prepare("normal", 0, "normal", 1)
    made.touch("touched", "normal", 2)
    one = Version(made, "normal")
    one.compare(baseline=True)
    made.touch("touched", "normal", 2)  # it has the errors that are allowed now
    read = comparison.distance
    one.readings = Mock(side_effect=read)
    monkeypatch.setattr(comparison, "distance", one.readings)
    return one


def test_bits_that_were_right_are_read_once(version):
    first, again = version.compare(), version.compare()
    assert first == again
    assert first["distances"][0]["first_wrong"] is None
    assert version.readings.call_count == 1
    nearly = version.compare(off=1e-7)
    assert nearly["fingerprints"] != first["fingerprints"]
    assert version.readings.call_count == 2


def test_what_is_wrong_is_read_each_time(version):
    found = [version.compare(off=1.0) for _ in range(2)]
    assert [one["distances"][0]["first_wrong"] for one in found] == [0, 0]
    assert version.readings.call_count == 2


def test_inputs_that_were_changed_show_where_the_outputs_are_known(version):
    version.compare()
    version.made.fill("1", "in", "normal")
    version.inputs.data[version.made._inputs["normal"].specs[0].offset] ^= 1
    found = version.made.compare("1", "in", "normal", [version.spec.to_json()], baseline=False)
    assert version.readings.call_count == 1
    assert found["changed_inputs"] == ["x"]


def test_an_answer_to_inputs_before_is_not_known_for_new_ones(version):
    version.key = "touched"
    right = version.compare()
    assert right["distances"][0]["first_wrong"] is None
    version.made.touch("touched", "normal", 99)
    stale = version.made.compare("1", "in", "touched", [version.spec.to_json()], baseline=False)
    assert stale["fingerprints"] == right["fingerprints"]
    assert stale["distances"][0]["first_wrong"] is not None


def test_known_bits_are_read_again_beside_a_new_baseline(version):
    version.compare()
    version.compare(baseline=True)
    before = version.readings.call_count
    version.compare()
    assert version.readings.call_count == before + 1


def test_outputs_of_one_checksum_cannot_be_made_by_who_does_not_know_the_oracle():
    output = torch.randn(4096)
    prints = {tuple(oracle(WORKLOAD, None)._prints_of((output,))) for _ in range(3)}
    assert len(prints) == 3
