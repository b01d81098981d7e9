"""Other values of arguments: never out of range, with what makes them valid kept."""

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.workload.other_values import other_values  # noqa: E402
from kernel_lsp.workload.structure import NONE, observe  # noqa: E402


def others(value, fresh=None, seed: int = 1, structure=NONE, extents=()) -> list:
    fresh = value if fresh is None else fresh
    return list(other_values(value, fresh, structure, torch.Generator().manual_seed(seed), extents))


def test_numbers():
    assert others(True) == [False]
    assert others(7) == [6, 8, 14, 3]
    assert others(0) == [1]
    assert others(-1) == [0]
    assert others(0.5) == [0.875]
    assert others(0.5, 0.25) == [0.25]


def test_an_integer_that_is_no_size_goes_beyond_the_ends_of_all_rows():
    assert others(3, extents=(6, 101)) == [2, 4, 206, 6, 1]
    assert others(6, extents=(6, 101)) == [5, 7]
    assert others(3, extents=(1 << 31,)) == [2, 4, 6, 1], "more is no `int`"


def test_a_fresh_draw_is_taken_where_it_differs():
    for value, fresh in (
        (torch.zeros(9), torch.ones(9)),
        (torch.zeros(9, dtype=torch.int32), torch.ones(9, dtype=torch.int32)),
        (torch.zeros(9, dtype=torch.bool), torch.ones(9, dtype=torch.bool)),
    ):
        found, *further = others(value, fresh)
        assert torch.equal(found, fresh)
        assert bool(further) is (value.dtype is torch.bool), "what is drawn anew may still never end early"


def test_bools_flip_at_random():
    all_true = torch.ones(1000, dtype=torch.bool)
    half, *_, whole = others(all_true)
    assert 400 < int(half.sum()) < 600
    assert not whole.any()
    assert others(torch.tensor(True))[0].item() is False


@pytest.mark.parametrize("value", [torch.ones(64, 50, dtype=torch.bool), torch.rand(64, 50) < 0.5], ids=["all", "some"])
def test_bools_are_runs_as_masks_of_padding_are_or_differ_in_single_places(value):
    _, single, beginnings, ends, _ = others(value)
    for runs in (beginnings, ends.flip(-1)):
        assert bool((runs[:, 1:] <= runs[:, :-1]).all()), "nothing comes after an end"
        lengths = set(runs.sum(-1).tolist())
        assert len(lengths) > 10
        assert lengths <= set(range(1, 51))
    assert (single ^ value).sum(-1).tolist() == [1] * 64


CASES = {
    "labels": torch.tensor([3, -100, 4, 4, 0, 2]),
    "indices": torch.tensor([[5, 1, 5], [2, 9, 1]], dtype=torch.int32),
    "permutation": torch.tensor([4, 2, 0, 1, 3, 5, 7, 6]),
    "places": torch.tensor([40, 2, 17, 30, 11]),
    "positions": torch.arange(12),
    "offsets": torch.tensor([0, 3, 3, 10, 14, 20], dtype=torch.int32),
    "equal steps": torch.arange(0, 65, 8),
    "segments": torch.tensor([0, 0, 1, 1, 1, 4, 5, 5]),
    "lengths": torch.full((9,), 128),
    "one length": torch.tensor(7),
    "bytes": torch.tensor([[7, 9], [200, 7]], dtype=torch.uint8),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_integers_stay_what_they_can_be(name, seed):
    value = CASES[name]
    found = others(value, seed=seed)
    assert found
    for other in found:
        assert (other.shape, other.dtype, other.stride()) == (value.shape, value.dtype, value.stride())
        assert not torch.equal(other, value)
        assert int(other.max()) <= int(value.max())
        assert int(other.min()) >= (int(value.min()) if name not in ("lengths", "one length") else 0)
        if name in ("labels", "indices", "permutation", "places", "positions", "bytes"):
            assert set(other.flatten().tolist()) <= set(value.flatten().tolist())
        if name in ("offsets", "equal steps", "segments"):
            assert bool((other.diff() >= 0).all())
            assert (other[0], other[-1]) == (value[0], value[-1])
    if name in ("permutation", "places", "positions"):
        *moved, drawn = found
        assert all(sorted(other.tolist()) == sorted(value.tolist()) for other in moved), "none twice"
        assert len(set(drawn.tolist())) < drawn.numel()
    if name == "lengths":
        assert [int(other.min()) for other in found] == [64, 64, 1]
        assert int((found[1] != value).sum()) <= 2, "the second in a few places"
    if name in ("offsets", "segments"):
        assert sorted(found[0].diff().tolist()) == sorted(value.diff().tolist())
    if name == "labels":
        assert sorted(found[0].tolist()) == sorted(value.tolist())


def test_zeros_and_types_that_torch_cannot_calculate_in_have_no_other_values():
    assert others(torch.zeros(4, dtype=torch.int64)) == []
    assert others(torch.ones(4, dtype=torch.uint16)) == []
    assert others(torch.ones(4).to(torch.float8_e4m3fn)) == []
    assert others(torch.empty(0)) == []


@pytest.mark.parametrize("made", [torch.ones(16, 16).tril(), torch.eye(16), torch.ones(16), torch.tensor(2.5)], ids=str)
def test_floats_that_are_the_same_in_each_draw_move_and_keep_their_structure(made):
    (structure,) = observe((made,))
    found = others(made, structure=structure)
    assert found
    for other in found:
        assert not torch.equal(other, made)
        if structure.one_hot:
            assert bool(((other == 1).sum(-1) == 1).all())
        elif structure.zeros:
            assert bool((other[made == 0] == 0).all())


def test_other_values_lie_in_memory_as_before():
    for value in (torch.zeros(6).expand(4, 6), torch.zeros(6, 4).t(), torch.ones(8, 8, dtype=torch.int64)[:, ::2]):
        assert all((other.shape, other.stride()) == (value.shape, value.stride()) for other in others(value))
        assert others(value)
