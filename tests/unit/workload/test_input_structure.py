"""What inputs always look like they keep looking like, and what they look like by chance they do not."""

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.workload import families  # noqa: E402
from kernel_lsp.workload.structure import NONE, Structure, common, observe, preserve  # noqa: E402

CHANGING = [family.name for family in families.FAMILIES.values() if family.change is not None]


def random(seed: int, *shape: int):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def one_hot(x):
    return torch.nn.functional.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


MAKERS = {
    "lower triangle": (lambda x: x.tril(), Structure(zeros=True)),
    "upper triangle": (lambda x: x.triu(), Structure(zeros=True)),
    "sparse": (lambda x: x.where(x > 0.5, 0), Structure(zeros=True)),
    "block diagonal": (lambda x: x * torch.block_diag(*[torch.ones(4, 4)] * 4), Structure(zeros=True)),
    "symmetric": (lambda x: x + x.mT, Structure(symmetric=True)),
    "adjacency": (
        lambda x: (x.triu(1) > 0).float() + (x.triu(1) > 0).float().mT,
        Structure(zeros=True, symmetric=True),
    ),
    "one-hot": (one_hot, Structure(zeros=True, one_hot=True)),
    "ascending": (lambda x: x.sort(-1).values, Structure(ascending=True)),
    "descending": (lambda x: x.sort(-1, descending=True).values, Structure(descending=True)),
    "normal": (lambda x: x, NONE),
    "uniform": (lambda x: x.sigmoid(), NONE),
    "ones": (torch.ones_like, NONE),
    "zeros": (torch.zeros_like, NONE),
    "dropped out": (lambda x: x.where(x < 1, 0), NONE),
}


def holds(structure: Structure, original, x) -> bool:
    """Whether a tensor has the structure, element by element."""
    return (
        (not structure.zeros or structure.one_hot or bool((x[original == 0] == 0).all()))
        and (not structure.symmetric or torch.equal(x.nan_to_num(7), x.nan_to_num(7).mT))
        and (not structure.one_hot or bool(((x == 1).sum(-1) == 1).all() and (x == 0).sum() == x.numel() - x.shape[0]))
        and (not structure.ascending or bool((x.diff(dim=-1).nan_to_num(0) >= 0).all()))
        and (not structure.descending or bool((x.diff(dim=-1).nan_to_num(0) <= 0).all()))
    )


@pytest.mark.parametrize("name", MAKERS)
def test_structure_of_two_draws_is_found(name):
    make, structure = MAKERS[name]
    assert common(observe((make(random(1, 16, 16)), 3)), observe((make(random(2, 16, 16)), 3))) == (structure, NONE)


@pytest.mark.parametrize("family", CHANGING)
@pytest.mark.parametrize("name", [name for name, (_, structure) in MAKERS.items() if structure != NONE])
def test_a_family_keeps_the_structure(name, family):
    make, structure = MAKERS[name]
    x = make(random(3, 16, 16))
    (changed,) = families.apply(families.FAMILIES[family], (x,), torch.Generator().manual_seed(1), (structure,))
    assert (changed.shape, changed.dtype, changed.stride()) == (x.shape, x.dtype, x.stride())
    assert holds(structure, x, changed)


@pytest.mark.parametrize("name", ["lower triangle", "sparse", "symmetric", "ascending"])
@pytest.mark.parametrize(
    "family", ["shifted", "large", "tiny", "vast", "minute", "spiked", "outliers", "above", "signed"]
)
def test_a_family_still_changes_what_has_structure(name, family):
    make, structure = MAKERS[name]
    x = make(random(3, 16, 16))
    (changed,) = families.apply(families.FAMILIES[family], (x,), torch.Generator().manual_seed(1), (structure,))
    assert not torch.equal(changed, x)


@pytest.mark.parametrize("name", [name for name, (_, structure) in MAKERS.items() if structure != NONE])
def test_touched_tensors_keep_their_structure(name):
    make, structure = MAKERS[name]
    x, fresh = make(random(3, 16, 16)), make(random(4, 16, 16))
    (changed,) = families.touched((x,), (fresh,), torch.Generator().manual_seed(1), (structure,))
    assert holds(structure, x, changed)


def test_what_one_draw_has_by_chance_is_no_structure():
    tidy, wild = random(1, 16, 16).tril(), random(2, 16, 16)
    assert common(observe((tidy,)), observe((wild,))) == (NONE,)
    assert common(observe((tidy, wild)), observe((tidy,))) == (NONE, NONE)


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 3.0]])
def test_few_values_are_sorted_by_chance(values):
    assert not observe((torch.tensor(values),))[0].ascending
    assert observe((torch.tensor([values] * 64).cumsum(-1),))[0].ascending


def test_few_pairs_are_alike_by_chance():
    assert not observe((torch.tensor([[1.0, 2.0], [2.0, 5.0]]),))[0].symmetric
    assert observe((torch.eye(16),)) == (Structure(zeros=True, one_hot=True),)


def test_numbers_integers_and_narrow_types_have_no_structure():
    leaves = (3, True, 0.5, torch.arange(9), torch.zeros(4, 4, dtype=torch.bool), torch.zeros(8).to(torch.float8_e5m2))
    assert observe((*leaves, torch.empty(0, 3), torch.tensor(1.0))) == (NONE,) * 8


def test_expanded_tensors_are_seen_by_their_own_elements():
    x = random(1, 1, 16).sort(-1).values.expand(4, 16)
    assert observe((x,)) == (Structure(ascending=True),)
    (changed,) = families.apply(families.FAMILIES["shifted"], (x,), torch.Generator(), observe((x,)))
    assert changed.stride() == (0, 1)


def test_a_batch_of_matrices_has_the_structure_of_each():
    x = random(1, 3, 8, 8)
    x = x + x.mT
    structure = observe((x,))[0]
    assert structure == Structure(symmetric=True)
    kept = preserve(structure, x, x * 1.5 + random(2, 3, 8, 8))
    assert torch.equal(kept, kept.mT)
