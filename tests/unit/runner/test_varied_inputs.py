"""Inputs that the oracle varies: one argument, a few places, weights, within the structure that inputs always have."""

import pytest
import torch
from oracle_support import MIXER, Trial, Version, kernel, right

from kernel_lsp.runner.messages import oracle as messages
from kernel_lsp.runner.workers.input_sets import InputSets
from kernel_lsp.runner.workers.variation import (
    NOT_FINITE,
    OTHER_SHAPE,
    SAME,
    UNKNOWN,
    UNTRIED,
    Variation,
)
from kernel_lsp.workload.families import FAMILIES, RANGE_FAMILIES, VALUE_FAMILIES

TRIANGLES = """import torch
CASES = [dict(n=16)]
def inputs(n):
    return torch.randn(n, n, device="cuda").tril(), torch.randn(n, n, device="cuda").tril()
def reference(a, b):
    return (a @ b).tril()
"""


def workload(inputs: str, reference: str, parameters: str) -> str:
    return (
        f"import torch\nCASES = [dict(n=12)]\ndef inputs(n):\n    return {inputs}\n"
        f"def reference({parameters}):\n    return {reference}\n"
    )


@pytest.mark.parametrize("family", [family.name for family in (*VALUE_FAMILIES, *RANGE_FAMILIES)])
def test_a_kernel_may_rely_on_zeros_that_are_always_there(family):
    trial = Trial(TRIANGLES)
    keys = [trial.draw(family), trial.touch(trial.draw())]
    triangular = kernel("(a.tril() @ b.tril())", "a, b")
    trial.baseline(kernel("(a @ b).tril()", "a, b"), *keys)
    assert [right(Version(trial, triangular).judge(key)) for key in keys] == [True, True]


def test_what_is_always_the_same_triangle_stays_one_when_it_is_varied():
    trial = Trial(workload("torch.randn(n, n, device='cuda'), torch.ones(n, n, device='cuda').tril()", "x @ m", "x, m"))
    base = trial.draw()
    assert trial.vary(base, 1).matters
    mask = trial.leaves(f"{base}/1")[1]
    assert not mask.triu(1).any()
    assert bool((mask.tril() != torch.ones(12, 12).tril()).any())


@pytest.mark.parametrize(
    ("inputs", "reference", "ignores"),
    [
        ("torch.ones(n, device='cuda', dtype=torch.bool)", "torch.where(y, x, 0)", "x.clone()"),
        ("torch.arange(n, device='cuda')", "x[y]", "x.clone()"),
        ("torch.zeros(n, device='cuda', dtype=torch.int64) + 5", "x[y]", "x[5].expand(12).clone()"),
        ("n // 4", "x * y", "x * 3"),
        ("False", "x * (2 if y else 1)", "x.clone()"),
        (
            "torch.tensor([0, 2, 5, 12], device='cuda')",
            "x * torch.bucketize(torch.arange(12), y[1:], right=True)",
            None,
        ),
    ],
    ids=["mask", "index", "one index", "integer", "bool", "offsets"],
)
def test_who_ignores_an_integer_or_a_bool_is_wrong_on_another_value_of_it(inputs, reference, ignores):
    trial = Trial(workload(f"torch.randn(n, device='cuda'), {inputs}", reference, "x, y"))
    base = trial.draw()
    found = trial.vary(base, 1)
    assert found.matters, found.why
    keys = (base, f"{base}/1")
    honest = kernel(reference, "x, y")
    assert [right(compared) for compared in trial.baseline(honest, *keys)] == [True, True]
    if ignores is not None:
        assert [right(Version(trial, kernel(ignores, "x, y")).judge(key)) for key in keys] == [True, False]


@pytest.mark.parametrize(
    ("inputs", "reference", "why"),
    [
        ("n", "x[:y]", OTHER_SHAPE),
        ("torch.zeros(n, device='cuda', dtype=torch.int64)", "x[y]", UNKNOWN),
        ("torch.randn(n, device='cuda')", "x * 2", SAME),
        ("1", "x / (1 - (y != 1))", NOT_FINITE),
        ("12", "x.view(y) * 1", "with another value `reference` raised for case n=12: RuntimeError: "),
    ],
)
def test_what_could_not_be_varied_says_why(inputs, reference, why):
    trial = Trial(workload(f"torch.randn(n, device='cuda'), {inputs}", reference, "x, y"))
    found = trial.vary(trial.draw(), 1)
    assert (found.made, found.matters) == (None, False)
    assert found.why.startswith(why)
    assert trial.oracle.inputs.kept == ("0/normal/0",)


def on_gpu(trial: Trial) -> Variation:
    """Variation as on a GPU, where other integers are tried on the CPU first."""
    return Variation(trial.oracle.inputs, "cuda")


def test_integers_that_would_reach_out_of_bounds_are_not_tried_on_a_gpu():
    counts = "torch.zeros(y, device=x.device, dtype=x.dtype).index_add_(0, torch.arange(12, device=x.device), x)"
    trial = Trial(workload("torch.randn(n, device='cuda'), n", counts, "x, y"))
    variation = on_gpu(trial)
    assert variation._harmful(12, 1, 0) == "with another value the reference raised IndexError on the CPU"
    assert variation._harmful(12, 1, 1) == OTHER_SHAPE
    assert variation._harmful(True, 1, 0) == variation._harmful(0.5, 1, 0) == ""
    assert variation._harmful(torch.ones(3), 1, 0) == ""


def test_integers_within_bounds_are_tried_on_a_gpu(monkeypatch):
    trial = Trial(workload("torch.randn(n, device='cuda'), torch.arange(n, device='cuda')", "x[y]", "x, y"))
    assert on_gpu(trial)._harmful(torch.arange(12), 1, 0) == "", "they only change order"
    trial = Trial(workload("torch.randn(n, device='cuda'), 3", "x * y", "x, y"))
    assert on_gpu(trial)._harmful(3, 1, 0) == ""
    monkeypatch.setattr("kernel_lsp.policy.OTHER_VALUES_CPU_BYTES", 8)
    assert on_gpu(trial)._harmful(3, 1, 0) == UNTRIED


def further(trial: Trial, argument: int = 1) -> list[str]:
    """Keys of the inputs with every other value of an argument that matters."""
    base, found, first = trial.draw(), list[str](), 0
    while True:
        key = f"{base}/{argument}/{first}"
        varied = trial.oracle.vary(messages.Vary(key=key, base=base, argument=argument, seed=7, first=first))
        if varied.made is None:
            return found
        trial.made[key] = varied.made
        found.append(key)
        if not (first := varied.next):
            return found


PADDED = workload(
    "torch.randn(n, n, device='cuda'), torch.ones(n, n, dtype=torch.bool, device='cuda')", "x * y", "x, y"
)
TURNED = workload("torch.randn(n, n, device='cuda'), 3", "torch.roll(x, -y, 1)", "x, y")
PICKED = workload("torch.randn(n, device='cuda'), torch.arange(n, device='cuda')", "x[y]", "x, y")
LENGTHS = workload(
    "torch.randn(n, n, device='cuda'), torch.full((n,), n, device='cuda')",
    "x * (torch.arange(12) < y[:, None])",
    "x, y",
)


@pytest.mark.parametrize(
    ("text", "honest", "takes_it_for_the_usual"),
    [
        (PADDED, "x * y", "torch.where(y[:, :2].all(1, keepdim=True), x, x * y)"),
        (TURNED, "x[:, (torch.arange(12) + y) % 12]", "torch.cat([x, x, x * 0], 1)[:, min(y, 24) : min(y, 24) + 12]"),
        (PICKED, "x[y]", "torch.zeros_like(x).index_put_((y.argsort(),), x)"),
        (LENGTHS, "x * (torch.arange(12) < y[:, None])", "x * (torch.arange(12) < y[:, None].clamp(min=6))"),
    ],
    ids=["mask by its beginning", "turned once", "each row once", "half of a length"],
)
def test_who_takes_integers_or_bools_for_the_usual_ones_is_wrong_on_further_values(
    text, honest, takes_it_for_the_usual
):
    trial = Trial(text)
    keys = further(trial)
    assert all(map(right, trial.baseline(kernel(honest, "x, y"), *keys)))
    sloppy = Version(trial, kernel(takes_it_for_the_usual, "x, y"))
    assert not all(right(sloppy.judge(key)) for key in keys)


@pytest.mark.parametrize(("reference", "twice"), [("x[y]", True), ("torch.zeros(12).index_copy(0, y, x)", False)])
def test_only_integers_that_are_read_by_are_the_same_twice(reference, twice):
    trial = Trial(workload("torch.randn(n, device='cuda'), torch.randperm(n, device='cuda')", reference, "x, y"))
    repeated = [key for key in further(trial) if len(set(trial.leaves(key)[1].tolist())) < 12]
    assert bool(repeated) is twice


def test_inputs_that_only_lie_otherwise_share_their_right_answer(monkeypatch):
    trial = Trial(TRIANGLES)
    base = trial.draw()
    expected = trial.oracle.inputs.expected(base)
    monkeypatch.setattr(InputSets, "reference", lambda *_: pytest.fail("asked for a right answer that is known"))
    for family in ("unaligned", "strided"):
        made = trial.made[family] = trial.oracle.lay_out(messages.LayOut(key=family, base=base, family=family))
        assert made.arguments != trial.made[base].arguments
        assert trial.oracle.inputs.expected(family) is expected
        assert trial.leaves(family) is trial.leaves(base)


def test_touched_weights_are_of_their_own_size():
    trial = Trial(MIXER.read_text(), path=str(MIXER))
    base = trial.draw()
    before, after = trial.leaves(base), trial.leaves(trial.touch(base))
    given = len(before) - len(trial.workload.weights)
    assert given < len(before)
    for old, new in zip(before, after, strict=True):
        if isinstance(old, torch.Tensor) and old.is_floating_point():
            assert not torch.equal(old, new)
            assert float((new - old).abs().max()) <= 4 * float(old.abs().max()) + 1


def test_fresh_weights_come_beside_plain_inputs():
    trial = Trial(MIXER.read_text(), path=str(MIXER))
    plain, fresh = (trial.leaves(trial.draw(family, 5)) for family in ("normal", "weights"))
    given = len(plain) - len(trial.workload.weights)
    for number, (old, new) in enumerate(zip(plain, fresh, strict=True)):
        if isinstance(old, torch.Tensor):
            assert torch.equal(old, new) is (number < given or not old.is_floating_point())
        else:
            assert old == new


def test_every_family_can_be_asked_for():
    trial = Trial(TRIANGLES)
    assert [trial.draw(family) for family in FAMILIES] == [f"0/{family}/0" for family in FAMILIES]


RAGGED = """
import torch

CASES = [dict(batch=8, longest=100)]


def inputs(batch, longest):
    lengths = longest - torch.randint(longest // 2, (batch,))
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return torch.randn(int(offsets[-1]), device="cuda"), offsets.int().to("cuda")


def reference(x, offsets):
    return torch.nn.functional.pad(x.cumsum(0), (1, 0))[offsets.long()].diff()


def launch(module, x, offsets):
    return x.new_empty(offsets.numel() - 1)
"""


def test_offsets_of_a_longer_draw_do_not_point_past_these_inputs():
    """On a GPU an index out of bounds is the end of the process that has the truth."""
    trial = Trial(RAGGED)
    for number in range(6):
        base = trial.leaves(trial.draw(number=number))
        varied = trial.oracle.draws.vary(0, base, 1, number + 1, 0)
        assert varied is not None
        assert int(varied[1].max()) <= base[0].numel()


PLACED = "torch.arange(4096, device='cuda').flip(0)"
ENDS = "torch.arange(1025, device='cuda') ** 2 // 256"


@pytest.mark.parametrize(
    ("value", "reference", "most"),
    [
        (PLACED, "x[y]", 4),
        ("torch.arange(4096, device='cuda')", "x[y]", 4),
        (ENDS, "torch.nn.functional.pad(x.cumsum(0), (1, 0))[y].diff()", 1),
        ("torch.full((1024,), 4, device='cuda')", "x[:1024] * y", 2),
        ("torch.ones(64, 64, dtype=torch.bool, device='cuda')", "x.view(64, 64) * y", 64),
    ],
    ids=["places", "places in order", "offsets", "lengths", "mask"],
)
def test_the_second_other_value_of_integers_differs_in_a_few_places(value, reference, most):
    """So few that who looks at samples of them, and takes the others for the usual ones, does not see it."""
    trial = Trial(workload(f"torch.randn(4096, device='cuda'), {value}", reference, "x, y"))
    base = trial.draw()
    first, second = (trial.leaves(key)[1] for key in further(trial)[:2])
    usual = trial.leaves(base)[1]
    assert int((first != usual).sum()) > 8 * most
    assert 1 <= int((second != usual).sum()) <= most
    if value == ENDS:
        assert bool((second.diff() >= 0).all())
    if value == PLACED:
        assert torch.equal(second.sort().values, usual.sort().values)
