"""A KernelBench problem as a workload: arguments, weights by state, sizes, and what has no right answer."""

import weakref
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.workload.answer import Answer
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.problem import Problem, choose_for_emulator, choose_for_gpu, needed
from kernel_lsp.workload.workload import make_inputs

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
WEIGHTS = ("mix.weight", "mix.bias", "norm.weight", "norm.bias")
HEAD = "import torch\nimport torch.nn as nn\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.rand(batch, size)]\n\n\ndef get_init_inputs():\n    return []\n"


def problem(forward: str, init: str = "pass", sizes: str = "batch, size = 512, 256") -> Problem:
    """A problem of one input `x`."""
    model = (
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n\n    def forward(self, x):\n        {forward}\n\n\n"
    )
    made = load_workload(f"{HEAD}{model}{sizes}\n{TAIL}", Path("a_problem.py")).problem
    assert made is not None
    return made


@pytest.fixture
def mixer():
    with Instead("cpu"):
        yield load_workload(MIXER.read_text(), MIXER, seed=7)


def test_arguments_are_inputs_then_weights(mixer):
    assert mixer.argument_names == ("x", "pair[0]", "pair[1]", *WEIGHTS)
    assert mixer.weights == WEIGHTS
    assert mixer.cases == ({"batch": 64, "features": 32, "hidden": 48, "scales[1]": 3, "get_inputs[0]": 3},)


def test_inputs_keep_their_types_and_come_from_the_seed(mixer):
    torch.manual_seed(1)
    x, y, shift, *weights = make_inputs(mixer, mixer.cases[0])
    torch.manual_seed(1)
    again = make_inputs(mixer, mixer.cases[0])
    assert (x.dtype, y.dtype, shift) == (torch.float32, torch.int64, 0.5)
    assert torch.equal(x, again[0])
    assert [tuple(w.shape) for w in weights] == [(48, 32), (48,), (48,), (48,)]


def test_weights_follow_from_their_own_seed_and_leave_that_of_others_alone(mixer):
    torch.manual_seed(1)
    first = make_inputs(mixer, mixer.cases[0])
    torch.manual_seed(2)
    second = make_inputs(mixer, mixer.cases[0])
    other = make_inputs(load_workload(MIXER.read_text(), MIXER, seed=8), mixer.cases[0])
    assert torch.equal(first[3], second[3])
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[3], other[3])


def test_the_right_answer_is_the_models_on_the_weights_given(mixer):
    leaves = list(make_inputs(mixer, mixer.cases[0]))
    leaves[5] = leaves[5] * 2  # norm.weight
    x, y, shift, weight, bias, gamma, beta = leaves
    mixed = torch.nn.functional.layer_norm((x + y) @ weight.T + bias, (48,), gamma, beta) * 3 + shift
    outputs = mixer.reference_on(mixer.cases[0])(*leaves)
    assert [tuple(o.shape) for o in outputs] == [(64, 48), (64,), ()]
    torch.testing.assert_close(outputs[0], mixed)
    assert int(outputs[2]) == 64


def test_the_right_answer_is_in_float64_where_the_leaves_are(mixer):
    leaves = [t.double() if isinstance(t, torch.Tensor) else t for t in make_inputs(mixer, mixer.cases[0])]
    assert mixer.reference_on(mixer.cases[0])(*leaves)[0].dtype == torch.float64


def test_running_statistics_are_no_arguments_and_stay_as_they_are():
    with Instead("cpu"):
        made = problem("return self.norm(x)", "self.norm = nn.BatchNorm1d(size)")
        assert made.weight_names == ("norm.weight", "norm.bias")
        leaves = made.inputs(**made.constants)
        first = made.reference(made.constants, *leaves)
        assert torch.equal(first[0], made.reference(made.constants, *leaves)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN], ids=lambda kind: kind.__name__)
def test_shapes_of_a_recurrent_layer_are_found_without_a_step_for_each_element(kind, bidirectional, batch_first):
    layer = kind(5, 7, 2, batch_first=batch_first, bidirectional=bidirectional)

    def shapes(made: torch.nn.Module, x: torch.Tensor) -> list[torch.Size]:
        return [leaf.shape for leaf in pytree.tree_leaves(made(x))]

    sequence = torch.zeros(4, 9, 5)
    expected = [shapes(layer, x) for x in (sequence, sequence[0])]
    layer = layer.to("meta")
    with Instead("meta"):
        assert [shapes(layer, x) for x in (sequence.to("meta"), sequence[0].to("meta"))] == expected
        states, *_ = layer(torch.empty(1 << 20, 1 << 20, 5, device="meta"))  # step by step that takes hours
    assert states.shape == (1 << 20, 1 << 20, 14 if bidirectional else 7)


@pytest.mark.parametrize("pretended", [False, True])
def test_a_constructor_may_look_at_values_where_shapes_alone_are_asked_for(pretended):
    made = problem("return x * self.factor", "self.factor = torch.linspace(0, 1, 5)[2].item()")
    with fake_gpu(device_named("sm_90")) if pretended else Instead("cpu"):
        assert made.call(made.constants).inputs == 1
        assert made.footprint(made.constants) is not None


def test_sizes_are_halved_together_until_they_fit():
    case, found = problem("return x * 2").shrunk(lambda footprint: footprint.total <= 1 << 14)
    assert case == {"batch": 512 // 8, "size": 256 // 8}
    assert found is not None
    assert found.total == 2 * 64 * 32 * 4


def test_a_size_that_the_model_fixes_is_left_alone():
    made = problem("return x + torch.ones(256, device=x.device)")
    assert made.shrunk(lambda footprint: footprint.total <= 1 << 14)[0] == {"batch": 8, "size": 256}


def test_sizes_that_must_be_equal_are_halved_as_a_pair():
    made = problem(
        "return self.mix(x)", "self.mix = nn.Linear(inner, 64)", "batch, size, inner, other = 64, 256, 256, 11"
    )
    case, _ = made.shrunk(lambda footprint: footprint.total <= 1 << 15)
    assert case["size"] == case["inner"] < 256


def test_odd_sizes_follow_where_they_are_valid():
    made = problem("return x.view(x.size(0), -1, 4).sum(-1)")
    case, _ = made.shrunk(lambda footprint: footprint.total <= 1 << 14)
    assert made.odd(case) == case | {"batch": case["batch"] - 1}


@pytest.mark.parametrize(
    ("sizes", "constants"),
    [
        ("batch = size = 64", {"batch": 64}),
        ("batch = 4 * 16\nsize: int = 32", {"batch": 64, "size": 32}),
        ("shape = [8, 16]\nbatch, size = shape", {"shape[0]": 8, "shape[1]": 16}),
        ("batch = 64 // 2\nsize = 1\nflag = True\nname = 'a'", {}),
    ],
)
def test_constants_are_whole_numbers_as_written(sizes, constants):
    assert problem("return x", sizes=sizes).constants == constants


def test_for_a_gpu_the_case_as_written_is_taken_where_it_fits():
    made = problem("return x * 2")
    assert choose_for_gpu(made, 1 << 30).decisive == (0,)
    small = choose_for_gpu(made, 1 << 20)
    assert small.decisive == (1,)
    assert small.cases[1]["batch"] < 512
    assert "as written needs" in small.why
    with pytest.raises(CannotJudgeError, match="no smaller case fits"):
        choose_for_gpu(made, 1 << 6)


def test_problems_with_gigabytes_of_inputs_are_judged_as_written():
    """6 GiB in and out, and 7: an H200 has 139 GiB."""
    for sizes, gibibytes in (("batch, size = 4096, 393216", 96), ("batch, size = 112, 16777216", 112)):
        made = problem("return x * 2", sizes=sizes)
        footprint = made.footprint(made.constants)
        assert footprint is not None
        assert needed(footprint) == gibibytes << 30
        assert choose_for_gpu(made, 120 << 30).decisive == (0,)
        assert choose_for_gpu(made, 90 << 30).decisive == (1,)


def test_for_the_emulator_it_is_scaled_down_and_odd_sizes_only_advise():
    chosen = choose_for_emulator(problem("return x * 2"))
    assert (chosen.decisive, chosen.advisory) == ((1,), (2,))
    assert chosen.cases[2] == {name: value - 1 for name, value in chosen.cases[1].items()}


def test_random_answers_are_refused():
    made = problem("return self.drop(x)", "self.drop = nn.Dropout(0.5)")
    with Instead("cpu"), pytest.raises(WorkloadError, match="draws random numbers"):
        made.check(made.constants)


def test_a_model_runs_once_in_float64_where_it_draws_no_random_numbers(monkeypatch):
    """On a GPU a convolution in float64 takes seconds."""
    made, wide = problem("return x * 2"), []
    reference = made.reference

    def counted(case, *leaves):
        wide.append(leaves[0].dtype is torch.float64)
        return reference(case, *leaves)

    monkeypatch.setattr(made, "reference", counted)
    with Instead("cpu"):
        made.check(made.constants)
    assert wide == [False, True]


def test_an_answer_that_varies_with_its_rounding_is_not_random():
    """As with what a GPU's libraries add up in any order."""
    forward = "self.calls.append(0)\n        return x * (1 + len(self.calls) * 1000 * torch.finfo(x.dtype).eps)"
    made = problem(forward, "self.calls = []")
    with Instead("cpu"):
        leaves = made.inputs(**made.constants)
        first, second = (made.reference(made.constants, *leaves)[0] for _ in range(2))
        assert not torch.allclose(first, second)
        made.check(made.constants)


def test_weights_become_different_where_alike_they_leave_rounding_alone():
    with Instead("cpu"):
        made = problem("return self.norm(x).mean(dim=1)", "self.norm = nn.LayerNorm(size)")
        made.check(made.constants)
        assert made.renews_weights
        weight = made.inputs(**made.constants)[1]
        assert weight.std() > 0.01
        assert made.footprint(made.constants) is not None


def test_an_answer_is_given_weights_by_their_names(mixer):
    answer = answer_of(mixer, MIXER.read_text().replace("Model", "ModelNew"))
    assert answer.build(0) == ()
    for change in (1.0, 2.0):  # fresh values reach it without a new model
        leaves = [
            leaf * change if isinstance(leaf, torch.Tensor) else leaf for leaf in make_inputs(mixer, mixer.cases[0])
        ]
        expected = mixer.reference_on(mixer.cases[0])(*leaves)
        with torch.no_grad():
            torch.testing.assert_close(answer.launch(0)(*leaves)[0], expected[0])


def test_an_answer_with_weights_of_its_own_constructs_the_same(mixer):
    text = MIXER.read_text().replace("Model", "ModelNew").replace("self.mix", "self.packed")
    answer = answer_of(mixer, text)
    assert answer.build(0) == ("mix.weight", "mix.bias")
    leaves = make_inputs(mixer, mixer.cases[0])
    with torch.no_grad():
        torch.testing.assert_close(answer.launch(0)(*leaves)[0], mixer.reference_on(mixer.cases[0])(*leaves)[0])


@pytest.mark.parametrize("other", ["hidden, features + 1", "hidden, features, dtype=torch.float64"])
def test_a_weight_of_another_shape_or_type_is_the_answers_own(mixer, other):
    text = MIXER.read_text().replace("Model", "ModelNew")
    own = text.replace("        self.mix = ", "        self.mix = nn.Linear(1, 1)\n        self.unused = ", 1)
    assert answer_of(mixer, own).build(0) == ("mix.weight", "mix.bias")
    made = f"        self.mix.weight = nn.Parameter(torch.ones({other}))\n        self.norm = "
    assert answer_of(mixer, text.replace("        self.norm = ", made, 1)).build(0) == ("mix.weight",)


def test_an_answer_lets_go_of_the_memory_of_its_weights(mixer):
    answer = answer_of(mixer, MIXER.read_text().replace("Model", "ModelNew"))
    leaves = make_inputs(mixer, mixer.cases[0])
    weight = leaves[3].clone()
    given = weakref.ref(weight.untyped_storage())
    with torch.no_grad():
        first = answer.launch(0)(*leaves[:3], weight, *leaves[4:])[0]
        del weight
        answer.unbind()
        assert given() is None
        torch.testing.assert_close(answer.launch(0)(*leaves)[0], first)


def test_sizes_that_a_model_takes_from_its_file_are_those_of_the_case():
    text = MIXER.read_text().replace("x + y)", "(x + y).view(batch, features))")
    with Instead("cpu"):
        workload = load_workload(text, MIXER)
        made = workload.problem
        smaller = dict(made.constants) | {"batch": 8}
        leaves = made.inputs(**smaller)
        answer = Answer(text.replace("Model", "ModelNew"), Path("an_answer.py"), [made.call(smaller)], "cpu")
        with torch.no_grad():
            torch.testing.assert_close(answer.launch(0)(*leaves)[0], made.reference(smaller, *leaves)[0])


def test_a_model_whose_constructor_looks_at_values_is_known_by_its_shapes():
    made = problem("return self.mix(x)", "self.mix = nn.Linear(size, int(torch.ones(3).sum().item()))")
    found = made.footprint(made.constants)
    assert found is not None
    assert found.outputs == 512 * 3 * 4


def test_a_file_without_a_model_is_no_answer(mixer):
    with pytest.raises(WorkloadError, match="defines no `ModelNew`"):
        answer_of(mixer, "x = 1\n").build(0)


def test_what_is_no_plain_value_is_refused_by_name():
    text = MIXER.read_text().replace('"both"]', "torch.float32]")
    with Instead("cpu"), pytest.raises(WorkloadError, match="not a plain value"):
        _ = load_workload(text, MIXER).calls


def answer_of(workload, text: str) -> Answer:
    return Answer(text, Path("an_answer.py"), workload.calls, "cpu")
