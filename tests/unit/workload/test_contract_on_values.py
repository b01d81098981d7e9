"""What CONTRACT says of values: whatever inputs are made keeps to it, and inputs that break it are told."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "runner"))

from oracle_support import Trial  # noqa: E402

from kernel_lsp.errors import WorkloadError  # noqa: E402
from kernel_lsp.runner.workers.variation import FIXED  # noqa: E402
from kernel_lsp.workload.families import FAMILIES  # noqa: E402

WORKLOAD = """
import torch

CASES = [dict(n=48)]
CONTRACT = dict({contract})

def inputs(n):
    x = torch.rand(n, n, device="cuda")
    {more}
    return x, 0.5, torch.randint(9, (n,), device="cuda").cumsum(0)

def reference(x, scale, ends):
    return x * scale + ends
"""


def trial(contract: str, more: str = "") -> Trial:
    return Trial(WORKLOAD.format(contract=contract, more=more))


@pytest.mark.parametrize(
    ("contract", "more", "holds"),
    [
        ("range=dict(x=(0, 1))", "", lambda x: bool(((x >= 0) & (x <= 1)).all())),
        ("range=dict(x=(0, None))", "", lambda x: bool((x >= 0).all())),
        ("range=dict(x=(None, 1))", "", lambda x: bool((x <= 1).all())),
        ("lower_triangular=('x',)", "x = x.tril()", lambda x: torch.equal(x, x.tril())),
        ("upper_triangular=('x',)", "x = x.triu()", lambda x: torch.equal(x, x.triu())),
        ("symmetric=('x',)", "x = x + x.mT", lambda x: torch.equal(x, x.mT)),
        ("sorted=('x',)", "x = x.sort(-1).values", lambda x: bool((x.diff(dim=-1) >= 0).all())),
        (
            "sorted=('x',), range=dict(x=(-1, 2))",
            "x = x.sort(-1).values",
            lambda x: bool((x.diff(dim=-1) >= 0).all() & (x >= -1).all() & (x <= 2).all()),
        ),
    ],
)
def test_every_family_keeps_to_what_is_promised_and_still_differs(contract, more, holds):
    made = trial(contract, more)
    base = made.draw()
    plain = made.leaves(base)[0]
    others = {family: made.leaves(made.draw(family))[0] for family in FAMILIES}
    for family, x in others.items():
        x = x.nan_to_num(0.5, 0.5, 0.5) if not FAMILIES[family].finite and "range" not in contract else x
        if FAMILIES[family].finite or "range" in contract:
            assert holds(x), family
    assert holds(made.leaves(made.touch(base))[0])
    assert made.vary(base, 0).matters
    assert holds(made.leaves(f"{base}/0")[0])
    for family in ("shifted", "tiny", "outliers"):
        assert not torch.equal(others[family], plain), family
        assert len(others[family].unique()) > 2, "no value takes the place of all others"


def test_what_is_fixed_is_as_inputs_makes_it():
    made = trial("fixed=('x',)")
    plain = made.leaves(made.draw())[0]
    assert all(torch.equal(made.leaves(made.draw(family))[0], plain) for family in FAMILIES if family != "weights")
    assert made.vary("0/normal/0", 0).why == FIXED
    assert made.workload.contract.promises == {"x": "fixed"}
    fresh = made.leaves(made.draw(number=1))[0]
    assert not torch.equal(fresh, plain), "another draw of `inputs` has other values"


def test_numbers_and_integers_keep_to_it_too():
    made = trial("range=dict(scale=(0.4, 0.6)), sorted=('ends',)")
    base = made.draw()
    assert made.vary(base, 1).made is None, "1.25 * 0.5 + 0.25 is above 0.6"
    assert made.vary(base, 2).matters
    assert bool((made.leaves(f"{base}/2")[2].diff() >= 0).all())


@pytest.mark.parametrize(
    ("contract", "more", "says"),
    [
        ("lower_triangular=('x',)", "", "`x` is lower triangular, but for case n=48 it is not lower triangular"),
        ("sorted=('x',)", "", "it is not sorted along its last dimension"),
        ("symmetric=('x',)", "x = x[:, 1:]", "it is not symmetric"),
        ("range=dict(x=(0, 1))", "x[3, 4] = 1.5", "`x` is within 0 and 1, but for case n=48 it is 1.5 at its most"),
        ("range=dict(scale=(1, None))", "", "`scale` is at least 1, but for case n=48 it is 0.5 at its least"),
    ],
)
def test_inputs_that_break_the_contract_are_told(contract, more, says):
    with pytest.raises(WorkloadError) as caught:
        trial(contract, more).draw()
    assert says in caught.value.message
    assert caught.value.line == 7
    assert caught.value.fix
