"""How the model of an answer is given weights: under their names, or where it holds their values."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree  # noqa: E402

from kernel_lsp.errors import WorkloadError  # noqa: E402
from kernel_lsp.workload.answer import Answer  # noqa: E402
from kernel_lsp.workload.call import Call  # noqa: E402
from kernel_lsp.workload.placement import Instead  # noqa: E402

FILE = Path("answer.py")
X = torch.ones(2)
SCALE = torch.tensor([2.0, 3.0])
SHIFT = torch.tensor([5.0, 7.0])


def launched(constructor: str, forward: str, **weights: torch.Tensor):
    """The model of an answer, ready to be launched, and a list of what it lacks now and after its first launch."""
    lines = ["import torch", "from torch import nn", "", "class ModelNew(nn.Module):", "    def __init__(self):"]
    lines += ["        super().__init__()", *(f"        {line}" for line in constructor.splitlines())]
    lines += ["    def forward(self, x):", f"        return {forward}", ""]
    forms = tuple(f"{weight.dtype}{list(weight.shape)}".removeprefix("torch.") for weight in weights.values())
    tree = pytree.treespec_dumps(pytree.tree_structure((0,)))
    call = Call("()", tree, (), 1, tuple(weights), forms, 0, {}, {})
    answer = Answer("\n".join(lines), FILE, [call], "cpu")
    with Instead():
        lacking = [answer.build(0)]
        launch = answer.launch(0)
        (first,) = launch(X, *weights.values())
    lacking.append(answer.lacking(0))
    return launch, first.tolist(), lacking


def named(name: str, value: str = "[2.0, 3.0]") -> str:
    return f"self.{name} = nn.Parameter(torch.tensor({value}))"


def test_a_weight_under_its_name_is_given() -> None:
    launch, first, lacking = launched(named("scale"), "x * self.scale", scale=SCALE)
    assert lacking == [(), ()]
    assert first == [2.0, 3.0]
    assert launch(X, 10 * SCALE)[0].tolist() == [20.0, 30.0]


@pytest.mark.parametrize(
    "constructor",
    [
        named("factor"),
        named("factor", "[[2.0], [3.0]]"),
        'self.register_buffer("factor", torch.tensor([2.0, 3.0]))',
        named("scale", "[[2.0, 3.0]]") + "\nself.factor = self.scale",  # its name, and another shape
    ],
)
def test_a_weight_under_another_name_is_found_by_its_values_at_the_first_launch(constructor: str) -> None:
    launch, first, lacking = launched(constructor, "x * self.factor.view(2)", scale=SCALE)
    assert lacking == [("scale",), ()]
    assert first == [2.0, 3.0]
    assert launch(X, 10 * SCALE)[0].tolist() == [20.0, 30.0], "others are given to it from then on"


@pytest.mark.parametrize(
    ("constructor", "forward"),
    [
        (named("factor", "[4.0, 6.0]"), "x * self.factor / 2"),
        (named("factor", "[2.0, 3.0]").replace("3.0]", "3.0], dtype=torch.float64"), "x * self.factor.float()"),
        ("self.factor = torch.tensor([2.0, 3.0])", "x * self.factor"),  # no part of its state
        ("pass", "x * torch.tensor([2.0, 3.0])"),
    ],
)
def test_what_is_made_of_a_weight_is_not_it(constructor: str, forward: str) -> None:
    launch, first, lacking = launched(constructor, forward, scale=SCALE)
    assert lacking == [("scale",), ("scale",)]
    assert first == [2.0, 3.0]
    assert launch(X, 10 * SCALE)[0].tolist() == [2.0, 3.0]


def test_each_weight_has_a_tensor_of_its_own() -> None:
    one = launched(named("a"), "x * self.a * self.a", scale=SCALE, other=SCALE.clone())
    assert one[2] == [("scale", "other"), ("other",)]
    launch, _, lacking = launched(
        named("a") + "\n" + named("b"), "x * self.a - self.b", scale=SCALE, other=SCALE.clone()
    )
    assert lacking[1] == ()
    assert launch(X, 10 * SCALE, SCALE)[0].tolist() == [18.0, 27.0], "in the order of both"


def test_a_tensor_with_a_weights_name_is_no_other_weights() -> None:
    launch, _, lacking = launched(
        named("scale") + "\n" + named("moved"), "x * self.scale + self.moved", scale=SCALE, shift=SCALE.clone()
    )
    assert lacking == [("shift",), ()]
    assert launch(X, SCALE, SHIFT)[0].tolist() == [7.0, 10.0]


def test_values_are_looked_for_once_only() -> None:
    """Later weights are such as nobody constructed: what happens to hold them is no weight."""
    constructor = named("first", "[9.0, 9.0]") + "\n" + named("second", "[20.0, 30.0]")
    launch, _, lacking = launched(constructor, "x * self.second", scale=SCALE)
    launch(X, 10 * SCALE)
    assert launch(X, SHIFT)[0].tolist() == [20.0, 30.0]
    assert lacking[1] == ("scale",)


def test_a_file_without_a_model_says_so() -> None:
    call = Call("()", pytree.treespec_dumps(pytree.tree_structure((0,))), (), 1, (), (), 0, {}, {})
    with pytest.raises(WorkloadError, match="defines no `ModelNew`"):
        Answer("x = 1\n", FILE, [call], "cpu").build(0)
