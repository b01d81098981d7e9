"""The measure of an output's error: units of rounding, exactness of integers, and the special values."""

import math
from unittest.mock import MagicMock, Mock

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.device.tensors import TensorSpec  # noqa: E402
from kernel_lsp.runner.workers import comparison  # noqa: E402
from kernel_lsp.runner.workers.comparison import (  # noqa: E402
    Distance,
    distance,
    fingerprint,
    same_bits,
    scale,
    unravel,
)
from kernel_lsp.runner.workers.error_bounds import (  # noqa: E402
    EXACT,
    Bounds,
    relative_bounds,
    table_bounds,
)
from kernel_lsp.runner.workers.input_sets import Expected, InputSets  # noqa: E402
from kernel_lsp.runner.workers.output_errors import OutputErrors  # noqa: E402
from kernel_lsp.workload import families  # noqa: E402

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TIGHT = Bounds(4.0, 1.0)


def exact(*shape: int):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def compare(actual, expected, bounds: Bounds = TIGHT) -> Distance:
    return distance(actual, expected, scale(expected, actual.dtype), bounds)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("kernel_lsp.policy.COMPARED_ELEMENTS", 8)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_once_costs_at_most_half_a_unit(dtype):
    truth = exact(4096)
    found = compare(truth.to(dtype), truth)
    assert found.max <= 0.5
    assert found.first_wrong is None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_unit_is_one_unit_at_every_magnitude(dtype):
    eps = torch.finfo(dtype).eps
    truth = torch.tensor([2.0**-8, 1.0, 2.0**8], dtype=torch.float64)
    for place in range(3):
        alone = truth[place : place + 1]
        found = compare(alone.to(dtype) * (1 + 8 * eps), alone)
        assert found.max == pytest.approx(4, rel=1e-3)  # half of the unit is the tensor's own RMS


def test_an_element_that_cancels_is_measured_at_the_scale_of_the_tensor():
    truth = exact(1000)
    truth[10] = 0.0
    actual = truth.float()
    actual[10] = torch.finfo(torch.float32).eps * scale(truth, torch.float32)
    assert compare(actual, truth).max == pytest.approx(1.0, rel=0.01)


def test_the_first_wrong_element_is_named_with_what_it_is_and_should_be():
    truth = exact(3, 5)
    actual = truth.float()
    actual[1, 3] += 1
    actual[2, 0] += 1
    found = compare(actual, truth)
    assert (found.first_wrong, found.wrong) == (8, 2)
    assert unravel(8, (3, 5)) == (1, 3)
    assert float(found.expected) == pytest.approx(float(truth[1, 3]), rel=1e-8)
    assert float(found.actual) == pytest.approx(float(truth[1, 3]) + 1, rel=1e-6)


@pytest.mark.parametrize("place", [0, 7, 8, 15, 16, 19])
def test_chunk_borders_hide_nothing(small_chunks, place):
    truth = exact(4, 5)
    actual = truth.float()
    assert compare(actual, truth).first_wrong is None
    actual.view(-1)[place] += 1
    found = compare(actual, truth)
    assert (found.first_wrong, found.wrong) == (place, 1)


def test_chunks_change_neither_error_nor_scale_nor_the_first_wrong_element(monkeypatch):
    truth = exact(1003)
    actual = truth.half()
    actual[[400, 77, 900]] += 1
    whole = compare(actual, truth)
    monkeypatch.setattr("kernel_lsp.policy.COMPARED_ELEMENTS", 8)
    parts = compare(actual, truth)
    assert (parts.first_wrong, parts.wrong) == (77, 3)
    assert (parts.max, parts.rms) == (pytest.approx(whole.max), pytest.approx(whole.rms))


def test_a_bias_too_small_for_any_one_element_shows_in_the_rms():
    truth = exact(4096)
    eps = torch.finfo(torch.float32).eps
    actual = (truth + 3 * eps * (truth.abs() + scale(truth, torch.float32))).float()
    found = compare(actual, truth)
    assert found.max < TIGHT.max
    assert found.rms > TIGHT.rms
    assert found.first_wrong is not None
    assert (found.wrong, found.diffuse, found.allowed) == (1, True, TIGHT.rms)
    actual[3] += 1
    found = compare(actual, truth)
    assert (found.first_wrong, found.diffuse, found.allowed) == (3, False, TIGHT.max)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_the_same_special_value_is_right(special):
    truth = exact(16)
    truth[5] = special
    found = compare(truth.float(), truth)
    assert (found.first_wrong, found.max) == (None, pytest.approx(0, abs=0.5))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (math.nan, 0.0),
        (math.nan, math.inf),
        (math.inf, math.nan),
        (math.inf, -math.inf),
        (math.inf, 3e38),
        (0.0, math.nan),
        (1.0, math.inf),
        (1.0, -math.inf),
    ],
)
@pytest.mark.parametrize("bounds", [TIGHT, relative_bounds(Bounds(math.inf, math.inf), 2.0, torch.float32)])
def test_another_special_value_is_wrong_however_wide_the_bounds(expected, actual, bounds):
    truth = exact(16)
    truth[5] = expected
    wrong = truth.float()
    wrong[5] = actual
    assert compare(wrong, truth, bounds).first_wrong == 5


def test_special_values_do_not_hide_what_is_wrong_elsewhere():
    truth = exact(16)
    truth[2], truth[3] = math.nan, math.inf
    actual = truth.float()
    actual[9] += 1
    assert compare(actual, truth).first_wrong == 9


def test_beyond_the_range_of_the_type_infinity_is_right_and_nothing_else():
    truth = torch.tensor([1.0, 70_000.0, -70_000.0], dtype=torch.float64)
    assert compare(torch.tensor([1.0, math.inf, -math.inf]).half(), truth).first_wrong is None
    assert compare(torch.tensor([1.0, 65504.0, -math.inf]).half(), truth).first_wrong == 1
    assert compare(torch.tensor([1.0, math.inf, math.inf]).half(), truth).first_wrong == 2
    wide = torch.tensor([1.0, 70_000.0, -70_000.0])
    assert compare(wide, truth).first_wrong is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_are_equal_or_wrong(dtype):
    truth = torch.arange(20)
    actual = truth.to(dtype, copy=True)
    assert compare(actual, truth, EXACT) == Distance(0.0, 0.0, None, 0)
    actual[12] += 1
    found = compare(actual, truth, EXACT)
    assert (found.first_wrong, found.wrong, found.expected, found.actual) == (12, 1, "12", "13")


def test_integers_too_large_for_a_float_are_told_apart():
    truth = torch.tensor([2**60, 2**60 + 1])
    assert compare(truth.clone(), truth, EXACT).first_wrong is None
    assert compare(torch.tensor([2**60, 2**60]), truth, EXACT).first_wrong == 1


def test_counts_that_the_reference_gives_as_floats_compare_with_integers():
    assert compare(torch.tensor([3, 4]), torch.tensor([3.0, 4.0], dtype=torch.float64), EXACT).first_wrong is None
    assert compare(torch.tensor([3, 4]), torch.tensor([3.0, 5.0], dtype=torch.float64), EXACT).first_wrong == 1


def test_bools_are_equal_or_wrong():
    truth = torch.tensor([True, False, True])
    assert compare(truth.clone(), truth, EXACT).first_wrong is None
    found = compare(torch.tensor([True, True, True]), truth, EXACT)
    assert (found.first_wrong, found.expected, found.actual) == (1, "False", "True")


def test_views_of_any_strides_and_single_values_and_nothing_at_all_compare():
    truth = exact(6, 4)
    assert compare(truth.t().float(), truth.t()).first_wrong is None
    assert compare(torch.tensor(1.0), torch.tensor(1.0, dtype=torch.float64)).first_wrong is None
    assert compare(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64)).first_wrong == 0
    assert unravel(0, ()) == ()
    assert compare(torch.empty(0, 4), torch.empty(0, 4, dtype=torch.float64)) == Distance(0.0, 0.0, None, 0)


def test_zeros_are_not_right_where_everything_ought_to_be_something():
    assert compare(torch.zeros(100), exact(100)).wrong == 100


def test_scale_is_the_rms_of_what_is_finite(small_chunks):
    assert scale(torch.tensor([3.0, -4.0, math.nan, math.inf] * 5), torch.float32) == pytest.approx(math.sqrt(12.5))
    assert scale(torch.tensor([math.nan]), torch.float32) == 0.0
    assert scale(torch.empty(0), torch.float32) == 0.0


def test_of_a_whole_model_a_few_elements_that_cancel_may_be_off_and_not_all_of_them():
    bounds, truth = table_bounds(torch.float32, whole_model=True), exact(4096)
    few, all_of_them, one = truth.float(), 1.5 * truth.float(), truth.float()
    few[:8] *= 1.5
    one[7] += 3 * scale(truth, torch.float32) + 3 * truth[7].abs()
    assert compare(few, truth, bounds).first_wrong is None
    assert compare(few, truth, table_bounds(torch.float32)).wrong == 8
    assert compare(all_of_them, truth, bounds).diffuse
    assert compare(one, truth, bounds).first_wrong == 7
    assert compare(torch.zeros(4096), truth, bounds).diffuse


def of_family(name: str, *shape: int):
    return families.apply(families.FAMILIES[name], (exact(*shape),), torch.Generator().manual_seed(1))[0]


@pytest.mark.parametrize("family", ["ties", "alternating"])
def test_equal_values_summed_in_another_order_are_right(family):
    """Every rounding of a sum of equal values goes the same way: 32 threads a row are further off than 256."""
    powers = of_family(family, 64, 16384).float().exp()
    by_thread = powers.view(64, -1, 32)
    sums = by_thread[:, 0].clone()
    for later in by_thread.unbind(1)[1:]:
        sums += later
    expected = of_family(family, 64, 16384).exp().sum(-1)
    exact_baseline = Bounds(0.5, 0.3)
    usual, coarse = (relative_bounds(exact_baseline, 2.0, torch.float32, coarse=coarse) for coarse in (False, True))
    found = compare(sums.sum(-1), expected, coarse)
    assert found.first_wrong is None
    assert usual.rms < found.rms < coarse.rms


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_gross_mistake_is_wrong_for_every_coarse_family(dtype):
    coarse = relative_bounds(Bounds(0.0, 0.0), 2.0, dtype, coarse=True)
    above, below = of_family("above", 64, 512), of_family("below", 64, 512)
    products = of_family("alternating", 64, 2048).cumprod(-1)
    stopped = torch.where(torch.arange(2048) < 256, products, 0.0)
    for wrong, right in (
        (above.amin(-1).clamp(max=1), above.amin(-1)),
        (below.amax().clamp(min=-1), below.amax()),
        (below.amax(0).clamp(min=0), below.amax(0)),
        (stopped, products),
    ):
        assert compare(wrong.to(dtype), right, coarse).first_wrong is not None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_the_type_cannot_hold_does_not_hide_the_others(dtype):
    truth = torch.tensor([1.0, 2.0, 3.0, 1e300 if dtype is not torch.float64 else math.inf], dtype=torch.float64)
    assert scale(truth, dtype) == pytest.approx(math.sqrt(14 / 3))
    assert compare(truth.to(dtype), truth).first_wrong is None
    wrong = truth.to(dtype, copy=True)
    wrong[1] *= 1.5
    assert compare(wrong, truth).first_wrong == 1


def test_the_largest_numbers_are_measured_like_others():
    truth = torch.tensor([1e307, -1.5e308, 1.7e308], dtype=torch.float64)
    assert scale(truth, torch.float64) == pytest.approx(1.31e308, rel=1e-2)
    assert compare(truth.clone(), truth).first_wrong is None
    for place in range(3):
        wrong = truth.clone()
        wrong[place] *= -1
        assert compare(wrong, truth).first_wrong == place
    assert compare(truth * (1 + 1e-13), truth).first_wrong == 0


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2)], ids=str)
def test_unravel_is_the_inverse_of_row_major_order(shape):
    indices = torch.arange(max(1, math.prod(shape))).reshape(shape)
    for flat in range(indices.numel()):
        assert int(indices[unravel(flat, shape)]) == flat


def test_fingerprints_of_equal_content_are_equal_wherever_it_lies():
    data = torch.randint(0, 256, (4096,), dtype=torch.uint8)
    elsewhere = torch.cat([torch.zeros(8, dtype=torch.uint8), data])[8:]
    assert fingerprint(data) == fingerprint(data.clone()) == fingerprint(elsewhere)


@pytest.mark.parametrize("size", [4096, 4095, 3])
def test_fingerprints_tell_one_bit_and_the_order(small_chunks, size):
    data = torch.randint(1, 200, (size,), dtype=torch.uint8)
    data[0] = 0
    flipped = data.clone()
    flipped[-1] ^= 1
    swapped = data.clone()
    swapped[[0, 1]] = data[[1, 0]]
    assert len({fingerprint(data), fingerprint(flipped), fingerprint(swapped)}) == 3


def test_fingerprints_tell_rows_apart(monkeypatch):
    monkeypatch.setattr(comparison, "_ROW", 4)
    data = torch.arange(8, dtype=torch.uint8).repeat_interleave(4)
    assert fingerprint(data) != fingerprint(torch.cat([data[16:], data[:16]]))


def test_same_bits_looks_at_bits():
    nan = torch.tensor([math.nan, 1.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert same_bits(torch.tensor(2.0), torch.tensor(2.0))
    assert not same_bits(torch.tensor(2.0), torch.tensor(3.0))
    assert same_bits(exact(4, 6).t(), exact(4, 6).t().contiguous())
    assert same_bits(torch.empty(0, 3), torch.empty(0, 3))
    column = torch.empty_strided((5, 1), (1, 7)).fill_(1.0)
    assert same_bits(column, torch.ones(5, 1))
    assert same_bits(torch.tensor([True]), torch.tensor([True]))


def masked(value: float):
    scores = exact(64, 64)
    return scores.masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.float32, -1e9), (torch.float32, torch.finfo(torch.float32).min), (torch.float16, -1e4)],
)
def test_values_that_stand_far_apart_hide_no_error_of_the_rest(dtype, value):
    truth = masked(value)
    most = comparison.brink(truth, dtype)
    assert exact(64, 64).abs().max() < most < abs(value)
    assert scale(truth, dtype, most) == pytest.approx(1, rel=0.1)
    bounds, size = Bounds(4.0, 1.0), scale(truth, dtype, most)
    assert distance(truth.to(dtype), truth, size, bounds).first_wrong is None
    assert distance(truth.where(truth < -100, 0).to(dtype), truth, size, bounds).first_wrong == 0


def test_the_tail_of_a_softmax_is_measured_by_the_whole():
    tail = 1e-4 * exact(64, 64).softmax(1)
    truth = torch.where(torch.eye(64, dtype=torch.bool), 1.0, tail)
    assert comparison.brink(truth, torch.float32) == math.inf


@pytest.mark.parametrize(
    "truth",
    [
        exact(4096),
        exact(4096).exp(),
        exact(64, 64).softmax(1),
        torch.ones(99),
        torch.zeros(99),
        torch.empty(0),
        masked(0),
    ],
    ids=["normal", "lognormal", "softmax", "ones", "zeros", "empty", "zeros among others"],
)
def test_nothing_stands_apart_where_values_are_of_many_sizes(truth):
    assert comparison.brink(truth, torch.float32) == math.inf


def test_what_rounding_leaves_beside_larger_values_is_measured_by_these():
    truth = torch.eye(64, dtype=torch.float64) + 1e-17 * exact(64, 64)
    actual = (truth + 1e-8 * exact(64, 64)).float()
    assert comparison.brink(truth, torch.float32) < 1e-10
    whole = scale(truth, torch.float32)
    errors = OutputErrors(Mock(spec=InputSets), 2.0, 1.0, plain=False)
    size, found = errors.by_scale(actual, truth, table_bounds(torch.float32))
    assert (size, found.first_wrong) == (whole, None)


def test_after_a_rehearsal_the_first_outputs_wait_for_no_reference():
    truth, inputs = exact(8, 8), MagicMock()
    inputs.expected.return_value = Expected((truth,), finite=True)
    inputs.leaves.return_value = (truth.float(),)
    inputs.reference.return_value = (truth,)
    errors = OutputErrors(inputs, 2.0, 1.0, plain=False)
    errors.rehearse("0/normal/0")
    assert inputs.reference.called  # on inputs with one value changed
    inputs.reference.reset_mock()
    errors.of_baseline("0/normal/0", [TensorSpec("float32", (8, 8), (8, 1), 0, 256)], [truth.float()])
    assert errors.allowance("0/normal/0").distances[0].first_wrong is None
    assert not inputs.reference.called
