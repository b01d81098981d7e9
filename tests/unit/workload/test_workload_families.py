"""Input families change values as they say, and nothing else about what `inputs` made."""

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp import policy  # noqa: E402
from kernel_lsp.config.settings import INPUT_FAMILIES  # noqa: E402
from kernel_lsp.workload import families  # noqa: E402
from kernel_lsp.workload.leaves import own_elements  # noqa: E402

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def draw(name: str, *leaves: object, seed: int = 7) -> tuple:
    return families.apply(families.FAMILIES[name], leaves, torch.Generator().manual_seed(seed))


def normal(*shape: int, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("name", families.FAMILIES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(33, 65), (3, 4, 5), (1,), ()], ids=str)
def test_a_family_keeps_type_shape_and_device(name, dtype, shape):
    x = normal(*shape, dtype=dtype)
    before = x.clone()
    (changed,) = draw(name, x)
    assert (changed.dtype, changed.shape, changed.device) == (x.dtype, x.shape, x.device)
    assert torch.equal(x, before), "the tensor that was given must stay as it was"


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_leaves_integers_numbers_and_empty_tensors_alone(name):
    leaves = (
        torch.arange(5),
        torch.tensor([True, False]),
        torch.empty(0, 4),
        normal(8).to(torch.float8_e4m3fn),
        3,
        2.5,
    )
    assert all(after is before for after, before in zip(draw(name, *leaves), leaves, strict=True))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: normal(8, 6).t(), id="transposed"),
        pytest.param(lambda: normal(8, 64)[:, 3:40], id="a slice of rows"),
        pytest.param(lambda: normal(6).expand(8, 6), id="expanded"),
        pytest.param(lambda: normal(8, 1, 6).expand(8, 5, 6), id="expanded within"),
    ],
)
@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_keeps_how_a_tensor_lies_in_memory(name, made):
    x = made()
    (changed,) = draw(name, x)
    assert (changed.shape, changed.stride()) == (x.shape, x.stride())
    contiguous = draw(name, own_elements(x).contiguous())[0].expand(x.shape)
    assert torch.equal(changed.contiguous().view(torch.int32), contiguous.contiguous().view(torch.int32))


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_seed_repeats_a_family(name):
    x = normal(64, 64)
    first, second = draw(name, x)[0], draw(name, x)[0]
    assert torch.equal(first.view(torch.int32), second.view(torch.int32))


@pytest.mark.parametrize("name", ["outliers", "nonfinite"])
def test_another_seed_plants_elsewhere(name):
    x = normal(64, 64)
    assert not torch.equal(draw(name, x, seed=1)[0] != x, draw(name, x, seed=2)[0] != x)


def test_each_family_changes_values_as_it_says():
    x = normal(64, 256)
    assert draw("normal", x)[0] is x
    assert torch.equal(draw("shifted", x)[0], x * 1.5 + 0.75)
    assert torch.equal(draw("large", x)[0], x * 256)
    assert torch.equal(draw("tiny", x)[0], x / 256)
    ties = draw("ties", x)[0]
    assert ties.unique().numel() < 32
    assert float((ties - x).abs().max()) <= 0.25
    rows = draw("sorted", x)[0]
    assert bool((rows.diff(dim=-1) >= 0).all())
    assert torch.equal(rows, x.sort(dim=-1).values)
    outliers = draw("outliers", x)[0]
    assert set(outliers[outliers != x].abs().tolist()) == {24.0}
    changed = outliers != x
    assert 1 <= int(changed[:-1, :-1].sum()) <= x.numel() // 1024
    assert changed[-1].any()
    assert changed[:, -1].any()
    assert int(changed.sum()) < x.numel() // 64


def test_the_last_of_very_many_terms_is_missed():
    x = draw("outliers", torch.rand(8, 1 << 18))[0].double()
    whole, cut = x.sum(-1), x[:, :-1].sum(-1)
    units = (whole - cut).abs() / (torch.finfo(torch.float32).eps * 2 * whole.abs())
    assert float(units.max()) > 100


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_that_alternate_keep_their_signs(dtype):
    x = normal(5, 6, 7, dtype=dtype)
    made = draw("alternating", x)[0]
    assert torch.equal(made < 0, x < 0)
    assert made.abs()[:2, :2, :3].tolist() == [[[2, 0.5, 2], [0.5, 2, 0.5]], [[0.5, 2, 0.5], [2, 0.5, 2]]]
    for dimension in range(3):
        assert set(made.cumprod(dimension).abs().flatten().tolist()) == {0.5, 1, 2}


def test_a_product_of_numbers_below_1_that_stops_early_is_found():
    """Of KernelBench's inputs, between 0 and 1, every product of a hundred or more is 0 in float32 anyway."""
    x = torch.rand(4, 2048, generator=torch.Generator().manual_seed(1))
    assert not x.cumprod(-1)[:, 256:].any()
    assert draw("alternating", x)[0].cumprod(-1)[:, 256:].all()


def test_a_minimum_or_maximum_that_starts_from_a_number_is_found():
    """From 0, 1 or -1 they are right for most other inputs, over rows as over everything."""
    x = normal(64, 256)
    assert bool((draw("above", x)[0] > 1).all())
    assert bool((draw("below", x)[0] < -1).all())


def test_what_has_no_negative_values_gets_none():
    x = torch.rand(16, 64, generator=torch.Generator().manual_seed(1))
    assert bool((draw("alternating", x)[0] > 0).all())
    assert bool((draw("above", x)[0] > 1).all())
    assert torch.equal(draw("below", x)[0], x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("family", [*families.VALUE_FAMILIES, *families.RANGE_FAMILIES], ids=lambda family: family.name)
def test_families_of_finite_values_are_finite(family, dtype):
    assert family.finite
    assert bool(torch.isfinite(draw(family.name, normal(64, 64, dtype=dtype))[0]).all())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_reach_the_ends_of_their_types_range(dtype):
    x, power = normal(64, 64, dtype=dtype), 2.0 ** (12 if dtype is torch.float16 else 40)
    assert torch.equal(draw("vast", x)[0], x * power)
    assert torch.equal(draw("minute", x)[0], x / power)
    small = draw("minute", x)[0].abs()
    assert float((small >= torch.finfo(dtype).smallest_normal).double().mean()) > (
        0.75 if dtype is torch.float16 else 0.99
    )


@pytest.mark.parametrize("name", ["vast", "spiked"])
def test_values_stay_as_large_as_their_type_holds_and_infinities_stay(name):
    x = torch.tensor([[1e38, -1e38, float("inf"), float("-inf")]] * 8)
    found = draw(name, x)[0]
    assert bool(torch.isfinite(found[:, :2]).all())
    assert found[0, 2:].tolist() == [float("inf"), float("-inf")]


@pytest.mark.parametrize("offset", [100.0, 30000.0])
def test_vast_values_far_from_zero_still_differ(offset):
    """Cut off at the largest number they were all one, and a layer norm of them was a matter of rounding."""
    x = normal(3, 2999, dtype=torch.float16) + offset
    found = draw("vast", x)[0]
    factor = float(found[0, 0]) / float(x[0, 0])
    assert factor == 2.0 ** (9 if offset == 100.0 else 1)
    assert torch.equal(found, x * factor)
    assert bool(torch.isfinite(found).all())


def test_one_element_of_each_row_is_huge():
    x = normal(64, 256)
    factors = draw("spiked", x)[0] / x
    assert bool(((factors == 1024).sum(-1) == 1).all())
    assert bool(((factors == 1).sum(-1) == 255).all())
    assert (factors == 1024).nonzero()[:, 1].unique().numel() > 32


def test_half_precision_does_not_hold_what_tf32_does():
    x = draw("vast", normal(16, 64))[0]
    assert bool(torch.isinf(x.half()).any())


@pytest.mark.parametrize("shape", [(128, 128), (5, 300)], ids=str)
def test_nonfinite_plants_nan_and_both_infinities_in_a_few_places(shape):
    x = normal(*shape)
    planted = draw("nonfinite", x)[0]
    assert not families.NONFINITE.finite
    assert bool(torch.isnan(planted).any())
    assert bool((planted == float("inf")).any())
    assert bool((planted == -float("inf")).any())
    assert 3 <= int((~torch.isfinite(planted)).sum()) <= 6
    untouched = torch.isfinite(planted)
    assert torch.equal(planted[untouched], x[untouched])


def test_a_lone_nan_leaves_what_rows_share_alone():
    x, y, bias, table = normal(24, 333), normal(333, 24), normal(333), torch.arange(24 * 400)
    planted = draw("nan-in-data", x, y, bias, table)
    assert [int(torch.isnan(leaf).sum()) for leaf in planted] == [1, 1, 0, 0]
    assert [int(torch.isnan(leaf).sum()) for leaf in draw("nan", x, bias)] == [1, 1]
    assert sorted(leaf.isinf().sum().item() for leaf in draw("infinite-in-data", x, bias)) == [0, 2]


def test_what_one_value_that_is_not_finite_hides_another_shows():
    def right(x, bias):
        return torch.softmax(x + bias, dim=-1)

    def loses_nan(x, bias):
        below = x + bias - (x + bias).nan_to_num(-float("inf"), float("inf")).amax(-1, keepdim=True)
        e = torch.where(below > -104, below.exp(), 0.0)
        return e / e.sum(-1, keepdim=True)

    def shown(family, x, bias):
        leaves = draw(family, x, bias)
        return not torch.allclose(right(*leaves), loses_nan(*leaves), equal_nan=True)

    x, bias = normal(1024, 512), normal(512) + 1
    assert not shown("normal", x, bias)
    assert not shown("nonfinite", x, bias), "an infinity in the bias hides it"
    assert shown("nan", x, bias)
    assert shown("nan-in-data", x, bias)


def test_nonfinite_finds_a_place_in_the_smallest_tensor():
    assert not bool(torch.isfinite(draw("nonfinite", torch.tensor(1.5))[0]))


def test_elements_with_memory_of_their_own():
    assert own_elements(normal(4, 6)).shape == (4, 6)
    assert own_elements(normal(6).expand(4, 6)).shape == (1, 6)
    assert own_elements(normal(1).expand(0)).shape == (0,)
    assert own_elements(torch.tensor(1.0)).shape == ()


def test_the_layouts_change_no_values():
    x = normal(8, 8)
    assert draw("unaligned", x)[0] is x
    assert draw("strided", x)[0] is x
    assert families.UNALIGNED.layout.shifted
    assert families.STRIDED.layout.strided
    assert families.PADDED.layout.padded
    assert [family.layout.misaligned for family in families.MISALIGNED] == [1, 2, 3, 4]
    assert all(draw(family.name, x)[0] is x for family in families.LAYOUTS)


@pytest.mark.parametrize("layout", ["plain", "every second", "transposed", "expanded", "one number"])
def test_touched_tensors_differ_in_a_few_places_and_lie_as_before(layout):
    def made(seed: int) -> torch.Tensor:
        plain = torch.randn(64, 96, generator=torch.Generator().manual_seed(seed))
        return {
            "plain": plain,
            "every second": plain[:, ::2],
            "transposed": plain.t(),
            "expanded": plain[:, :1].expand(64, 96),
            "one number": plain[0, 0],
        }[layout]

    leaf, fresh = made(0), made(1)
    (changed,) = families.touched((leaf,), (fresh,), torch.Generator().manual_seed(2))
    assert (changed.shape, changed.stride()) == (leaf.shape, leaf.stride())
    differs = changed != leaf
    stretch = 64 * 96 // policy.TOUCHED_STRETCH_ONE_IN
    assert differs.sum() > stretch // 2 or layout in ("expanded", "one number")
    assert 0 < differs.sum() < max(2, differs.numel() // 4) or layout in ("expanded", "one number")
    assert torch.equal(changed[differs], fresh[differs])
    assert torch.equal(leaf, made(0)), "the inputs themselves stay as they are"


def test_signs_change_row_by_row_and_always_somewhere():
    x = torch.rand(64, 3, 5) + 1
    signs = (draw("signed", x)[0] / x).unique(dim=0)
    assert sorted(signs.reshape(-1, 15)[:, 0].tolist()) == [-1.0, 1.0]
    assert bool((signs == signs[:, :1, :1]).all())
    assert draw("signed", x[:1])[0].lt(0).all()
    assert draw("signed", torch.tensor(2.0))[0] == -2.0


@pytest.mark.parametrize(
    ("shape", "length"), [((512, 16), 16), ((4, 4096), 64), ((5000,), 19), ((3,), 3), ((), 1)], ids=str
)
def test_touched_tensors_differ_in_one_stretch_of_a_row(shape, length):
    zeros, ones = torch.zeros(shape), torch.ones(shape)
    (changed,) = families.touched((zeros,), (ones,), torch.Generator().manual_seed(4))
    flat, most = changed.flatten().tolist(), 0
    for number, _ in enumerate(flat):
        end = number
        while end < len(flat) and flat[end]:
            end += 1
        most = max(most, end - number)
    assert length <= most <= length + 4
    if len(shape) == 2 and length == shape[1]:
        assert bool((changed.sum(-1) == length).any()), "a whole row"


def test_renewed_weights_that_were_alike_differ_and_others_keep_their_size():
    alike, others = torch.ones(64, 8), 0.1 * normal(64, 8)
    first, second = (families.renewed(x, torch.Generator().manual_seed(1)) for x in (alike, others))
    assert first.unique().numel() > 100
    assert bool(((first >= 1) & (first <= 1.5)).all())
    assert float(second.std()) == pytest.approx(float(others.std()), rel=0.2)
    assert not bool((second == others).any())


def test_the_setting_knows_the_names_of_all_families():
    assert set(INPUT_FAMILIES) == set(families.FAMILIES)
