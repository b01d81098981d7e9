"""Errors that are allowed: an honest sum's always, less precision never."""

import math

import pytest

torch = pytest.importorskip("torch")

from oracle_support import Trial, Version, kernel, right  # noqa: E402

from kernel_lsp import policy  # noqa: E402
from kernel_lsp.runner.workers.comparison import Distance, distance, scale  # noqa: E402
from kernel_lsp.runner.workers.dependence import terms_by_output  # noqa: E402
from kernel_lsp.runner.workers.error_bounds import (  # noqa: E402
    EXACT,
    SUMMED_IN,
    Bounds,
    Sums,
    relative_bounds,
    rms_spread,
    table_bounds,
)
from tests.bench.summation_errors import WAYS  # noqa: E402

HONEST = ("serial", "pairwise", "kahan", "threads", "blocks")
ZERO = Bounds(0.0, 0.0)


def floor(terms: float, elements: int, dtype: torch.dtype = torch.float32, **more: bool) -> Bounds:
    return relative_bounds(ZERO, 2.0, dtype, sums=Sums(terms, elements), **more)


def test_bounds():
    assert table_bounds(torch.int32) == EXACT
    assert table_bounds(torch.bool) == EXACT
    assert table_bounds(torch.float32).max == pytest.approx(1e-4 / torch.finfo(torch.float32).eps)
    assert table_bounds(torch.bfloat16).max == policy.FLOOR_MAX_UNITS
    baseline = Bounds(10.0, 0.25)
    assert relative_bounds(baseline, 2.0, torch.float32).max == 20.0
    assert relative_bounds(baseline, 2.0, torch.float32).rms == pytest.approx(policy.FLOOR_RMS_UNITS, rel=1e-6)
    assert relative_bounds(Bounds(1.0, 3.0), 2.0, torch.float32) == Bounds(policy.FLOOR_MAX_UNITS, 6.0)
    assert relative_bounds(baseline, 2.0, torch.int64) == EXACT
    assert relative_bounds(baseline, 2.0, torch.float32, 4.0) == Bounds(80.0, 4 * policy.FLOOR_RMS_UNITS)
    assert relative_bounds(Bounds(1.0, 3.0), 2.0, torch.float32, 4.0) == Bounds(4 * policy.FLOOR_MAX_UNITS, 24.0)


def test_beside_library_code_an_honest_loop_may_be_off_by_what_a_loop_is_off_by():
    library = Bounds(3.0, 1.0)
    beside = relative_bounds(library, 2.0, torch.float32, plain=True)
    assert (beside.max, beside.rms) == (128.0, pytest.approx(32.0, rel=1e-6))
    assert relative_bounds(library, 2.0, torch.float16, plain=True) == Bounds(6.0, 2.0)
    assert relative_bounds(Bounds(90.0, 20.0), 2.0, torch.float32, plain=True) == Bounds(180.0, 40.0)


@pytest.mark.parametrize("name", policy.WIDE_FLOORS_UNITS)
def test_floors_grow_with_the_root_of_the_terms_in_types_that_sums_are_made_in(name):
    dtype, most = getattr(torch, name), math.sqrt(policy.FLOOR_MOST_TERMS)
    found = [floor(terms, 1 << 30, dtype) for terms in (1, 1 << 10, policy.FLOOR_MOST_TERMS, 1 << 30)]
    if dtype not in SUMMED_IN:
        assert found == [found[0]] * 4
        return
    assert [bounds.max for bounds in found] == [
        policy.FLOOR_MAX_UNITS,
        32 * policy.FLOOR_MAX_BY_ROOT,
        *[most * policy.FLOOR_MAX_BY_ROOT] * 2,
    ]
    assert [bounds.rms for bounds in found] == pytest.approx(
        [policy.FLOOR_RMS_UNITS, 32 * policy.FLOOR_RMS_BY_ROOT, *[most * policy.FLOOR_RMS_BY_ROOT] * 2], 1e-3
    )
    assert floor(4, 9, dtype, coarse=True).max == policy.WIDE_FLOORS_UNITS[name][0]


def in_tf32(values: torch.Tensor) -> torch.Tensor:
    """The values rounded to the ten bits after the point that tensor cores take (cvt.rna.tf32.f32)."""
    return ((values.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_a_product_in_three_parts_of_tf32_is_honest_and_one_in_two_is_not():
    torch.manual_seed(1)
    a, b = (1 + torch.rand(1 << 20) for _ in range(2))
    high_a, high_b = in_tf32(a), in_tf32(b)
    low_a, low_b = in_tf32(a - high_a), in_tf32(b - high_b)
    right, parts = a.double() * b, high_a.double() * high_b + high_a.double() * low_b
    eps, bounds = torch.finfo(torch.float32).eps, floor(2, 1 << 20)
    assert bounds.max == policy.FLOOR_PARTS_UNITS
    for found, honest in ((parts + low_a.double() * high_b, True), (parts, False)):
        assert (float(((found - right) / right).abs().max()) / eps <= bounds.max) is honest


def test_of_few_elements_the_rms_is_a_matter_of_chance_and_no_stricter_than_the_largest():
    assert floor(1, 1) == Bounds(policy.FLOOR_MAX_UNITS, policy.FLOOR_MAX_UNITS)
    spreads = [rms_spread(count) for count in (0, 1, 10, 100, 1000, 10**6)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] == pytest.approx(1, abs=0.01)
    torch.manual_seed(1)
    for count in (3, 10, 100):
        roots = torch.randn(100_000, count).square().mean(1).sqrt()
        assert float((roots > rms_spread(count)).double().mean()) < 1e-4
        assert float(roots.max()) > 0.8 * rms_spread(count)


def found(way: str, terms: int, sums: int, *, positive: bool) -> Distance:
    torch.manual_seed(terms)
    parts = torch.randn(terms, sums)
    parts = parts.square() if positive else parts
    exact = parts.double().sum(0)
    return distance(WAYS[way](parts), exact, scale(exact, torch.float32), floor(terms, sums))


@pytest.mark.parametrize(("terms", "sums"), [(10, 1), (10, 512), (1000, 37), (20_000, 4)])
@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize("way", HONEST)
def test_an_honest_sum_is_right_however_it_is_summed_beside_an_exact_baseline(way, terms, sums, positive):
    assert found(way, terms, sums, positive=positive).first_wrong is None


@pytest.mark.parametrize("terms", [64, 1024, 4096])
@pytest.mark.parametrize("way", ["tf32", "half"])
def test_less_precision_is_wrong(way, terms):
    assert found(way, terms, 256, positive=False).first_wrong is not None


def test_a_sum_in_half_precision_is_wrong_for_terms_of_one_sign_too():
    assert found("half", 1024, 512, positive=True).first_wrong is not None


def test_a_million_terms_allow_less_than_tf32_is_off_by():
    assert floor(1 << 30, 1 << 20).rms < 1148 / 5  # measured by `summation_errors`


@pytest.mark.parametrize(
    ("reference", "shapes", "terms"),
    [
        (lambda x, y: x * y + 1, [(40, 30), (40, 30)], 1),
        (lambda a, b: a @ b, [(16, 24), (24, 8)], 24),
        (lambda a, b: a @ b, [(24, 24), (24, 24)], 24),
        (lambda x: x.softmax(-1), [(12, 50)], 50),
        (lambda x: x.cumsum(-1), [(13, 50)], 25),
        (lambda x: (x * x).sum(), [(333,)], 333),
        (lambda x: x.relu().sum(), [(333,)], 333),
        (lambda x: x[:, :1], [(5, 7)], 1),
    ],
)
def test_terms_are_counted_by_what_an_element_changes(reference, shapes, terms):
    torch.manual_seed(2)
    leaves = tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    (counted,) = terms_by_output(lambda given: (reference(*given),), leaves, (reference(*leaves),), None)
    assert terms / 2.2 <= counted <= 2.2 * terms


def test_terms_are_no_more_than_elements_where_the_reference_runs_but_once():
    x = torch.randn(12, 10)
    answers = iter([(x.sum(1),)])

    def reference(_: object) -> tuple[torch.Tensor, ...]:
        raise torch.OutOfMemoryError

    assert terms_by_output(reference, (x, 3), next(answers), None) == (10.0,)
    assert terms_by_output(reference, (3, True), (torch.ones(4),), None) == (1.0,)


WORKLOAD = """import torch
CASES = [dict(rows=3, n=50257)]
def inputs(rows, n):
    return torch.randn(rows, n, device="cuda")
def reference(x):
    return {reference}
"""
SOFTMAX = """import torch
def launch(module, x):
    total = torch.zeros(x.shape[0])
    most = torch.full((x.shape[0],), -float("inf"))
    for column in x.unbind(1):
        new = torch.maximum(most, column)
        total = total * (most - new).exp() + (column - new).exp()
        most = new
    return (x - most[:, None]).exp() / total[:, None]
"""


def test_an_online_softmax_over_a_vocabulary_is_right_and_one_in_half_precision_wrong():
    trial = Trial(WORKLOAD.format(reference="x.softmax(-1)"))
    key = trial.draw()
    trial.baseline(kernel("x.double().softmax(-1).float()"), key)
    assert right(Version(trial, SOFTMAX).judge(key))
    half = kernel("(x - x.amax(-1, True)).exp() / (x - x.amax(-1, True)).exp().half().cumsum(-1)[:, -1:].float()")
    assert not right(Version(trial, half).judge(key))


def test_one_sum_of_very_many_squares_is_right():
    trial = Trial(WORKLOAD.format(reference="(x * x).sum()").replace("rows=3, n=50257", "rows=1, n=100003"))
    key = trial.draw()
    trial.baseline(kernel("(x.double() * x).sum().float()"), key)
    assert right(Version(trial, kernel("(x * x).sum() * (1 + 4.7e-7)")).judge(key))
    assert not right(Version(trial, kernel("(x * x).sum() * (1 + 1e-3)")).judge(key))


def test_a_textbook_layer_norm_is_right_beside_a_better_summed_one():
    norm = "(x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()"
    trial = Trial(WORKLOAD.format(reference=norm).replace("rows=3, n=50257", "rows=16, n=4096"))
    key = trial.draw("shifted")
    trial.baseline(kernel(f"(lambda x: {norm})(x.double()).float()"), key)
    loop = "torch.stack([c for c in x.unbind(1)]).numpy()"
    textbook = (
        "import torch\nfrom numpy import add\n"
        f"def sums(x):\n    return torch.from_numpy(add.accumulate({loop}, axis=0)[-1]).clone()[:, None]\n"
        "def launch(module, x):\n    n = x.shape[1]\n    mean = sums(x) / n\n"
        "    return (x - mean) / (sums(x * x) / n - mean * mean + 1e-5).sqrt()\n"
    )
    assert right(Version(trial, textbook).judge(key))
    assert not right(Version(trial, kernel(f"(lambda x: {norm})(x.bfloat16()).float()")).judge(key))
    assert not math.isnan(scale(trial.oracle.inputs.expected(key).outputs[0], torch.float32))
