"""What the oracle makes of a workload: its inputs of any kind and layout, its reference, its tolerance, its errors."""

from pathlib import Path

import pytest
import torch
from oracle_support import WORKLOAD_PATH, Trial, Version, kernel, right

from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages import oracle as messages
from kernel_lsp.runner.messages.oracle_answers import CallerContract, Compared, LoadedWorkload, Made

WORKLOAD = """import torch
CASES = [dict(n=12), dict(n=20)]
def inputs(n):
    return torch.randn(n, 4, device="cuda")
def reference(x):
    return x * 2
"""


def workload(inputs: str, reference: str, parameters: str = "x", extra: str = "") -> str:
    return (
        f"import torch\nCASES = [dict(n=12), dict(n=20)]\ndef inputs(n):\n    return {inputs}\n"
        f"def reference({parameters}):\n    return {reference}\n{extra}"
    )


def judge(trial: Trial, baseline: str, candidate: str | None = None, family: str = "normal") -> Compared:
    """The oracle's answer on the baseline, or on the candidate after it."""
    key = trial.draw(family)
    (found,) = trial.baseline(baseline, key)
    return found if candidate is None else Version(trial, candidate).judge(key)


def test_a_workload_is_described():
    trial = Trial(WORKLOAD + "CONTRACT = dict(aligned=16, mutates=['x'])\nNONDETERMINISTIC = True\n")
    assert trial.workload == LoadedWorkload(
        cases=("n=12", "n=20"),
        arguments=("x",),
        decisive=(0, 1),
        nondeterministic=True,
        contract=CallerContract(contiguous=False, aligned=16, mutates=("x",), finite=False),
    )
    assert trial.oracle.sizes() == (12 * 16, 20 * 16)


def test_sizes_are_found_also_when_inputs_look_at_values():
    text = workload("torch.ones(int(torch.full((1,), n, device='cuda').item()), device='cuda')", "x")
    assert Trial(text).oracle.sizes() == (48, 80)


def test_huge_inputs_are_sized_without_being_made():
    text = workload("torch.empty(1 << 46, device='cuda')", "x")
    assert Trial(text).oracle.sizes() == (1 << 48, 1 << 48)


def test_inputs_of_every_kind_arrive_as_they_were_made():
    inputs = (
        "torch.randn(n, device='cuda').half(), torch.arange(n, device='cuda'), torch.arange(n, device='cuda') > 5, "
        "torch.tensor(2.5, device='cuda'), torch.empty(0, 4, device='cuda'), 3, 0.5, True"
    )
    names = "a, b, c, d, e, f, g, h"
    text = workload(inputs, "torch.where(c, a * d + b, f * g) + e.numel() + h", names)
    check = (
        "assert (type(f), type(g), type(h), d.shape, e.shape, a.dtype) == (int, float, bool, (), (0, 4), torch.half)"
    )
    launch = (
        f"import torch\ndef launch(module, {names}):\n    {check}\n    return torch.where(c, a * d + b, f * g) + h\n"
    )
    assert right(judge(Trial(text), launch))


@pytest.mark.parametrize(
    ("made", "stride"),
    [
        ("torch.randn(4, n, device='cuda').t()", (1, 12)),
        ("torch.randn(n, 9, device='cuda')[:, 2:6]", (9, 1)),
        ("torch.randn(4, device='cuda').expand(n, 4)", (0, 1)),
        ("torch.randn(n, 1, device='cuda').expand(n, 4)", (1, 0)),
    ],
    ids=["transposed", "a slice", "expanded rows", "expanded columns"],
)
@pytest.mark.parametrize("family", ["normal", "outliers", "nonfinite", "unaligned", "strided"])
def test_inputs_lie_in_the_workers_memory_as_the_family_asks(made, stride, family):
    wanted = tuple(2 * step for step in stride) if family == "strided" else stride
    checks = f"assert x.stride() == {wanted}; assert x.data_ptr() % 512 == {4 if family == 'unaligned' else 0}"
    launch = f"import torch\ndef launch(module, x):\n    {checks}\n    return x * 2\n"
    assert right(judge(Trial(workload(made, "x * 2")), launch, family=family))


def test_a_seed_repeats_its_inputs_and_another_does_not():
    trial = Trial(WORKLOAD)
    first, again, other = (trial.draw(number=seed, key=key) for seed, key in ((5, "a"), (5, "b"), (6, "c")))
    prints = [found.fingerprints for found in trial.baseline(kernel("x * 2"), first, again, other)]
    assert prints[0] == prints[1] != prints[2]


def test_the_reference_is_computed_in_double_precision():
    text = workload("torch.rand(n, 1000, device='cuda').half()", "x.sum(-1)")
    (found,) = judge(Trial(text), kernel("x.double().sum(-1).half()")).distances
    assert found.max <= 0.5


def test_a_reference_that_knows_no_double_precision_gets_the_types_as_they_are():
    double = "(_ for _ in ()).throw(RuntimeError('not implemented for Double'))"
    text = workload("torch.randn(n, device='cuda')", f"{double} if x.dtype == torch.float64 else x * 2")
    assert right(judge(Trial(text), kernel("x * 2")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_reference_in_place_does_not_change_the_inputs_that_are_drawn(dtype):
    made = f"torch.randn(n, device='cuda', dtype=torch.{dtype})"
    trial = Trial(workload(made, "x.mul_(2)"))

    key = trial.draw()
    assert [right(found) for found in trial.baseline(kernel("x * 2"), key, key)] == [True, True]


def test_several_outputs_are_all_compared():
    trial = Trial(workload("torch.randn(n, 4, device='cuda')", "x * 2, x.sum(-1), x.argmax(-1)"))
    baseline = kernel("x * 2, x.sum(-1), x.argmax(-1)")
    found = judge(trial, baseline, kernel("x * 2, x.sum(-1), x.argmin(-1)"))
    assert [d.index is None for d in found.distances] == [True, True, False]


def test_an_input_that_the_contract_lets_change_may_change():
    text = workload("torch.randn(n, device='cuda')", "x * 2", extra="CONTRACT = dict(mutates=['x'])\n")
    assert right(judge(Trial(text), kernel("x.mul_(2)")))


def test_a_candidate_is_measured_by_the_baselines_own_error():
    rough, rougher = kernel("(x * 2).half().float()"), kernel("(x * 2).bfloat16().float()")
    trial = Trial(workload("torch.rand(n, 4, device='cuda')", "x * 2", extra="TOLERANCE = dict(rtol=1e-2)\n"))
    assert right(judge(trial, rough, rough))
    assert not right(judge(trial, rough, rougher))
    assert not right(judge(trial, kernel("x * 2"), rough))


def test_a_baseline_beyond_the_table_is_wrong_unless_the_workload_tolerates_it():
    rough = kernel("(x * 2).half().float()")
    made = "torch.rand(n, 4, device='cuda')"
    assert not right(judge(Trial(workload(made, "x * 2")), rough))
    assert right(judge(Trial(workload(made, "x * 2", extra="TOLERANCE = dict(rtol=1e-2)\n")), rough))
    assert not right(judge(Trial(workload(made, "x * 2", extra="TOLERANCE = dict(rtol=1e-6)\n")), rough))


def test_the_factor_is_how_much_more_a_candidate_may_be_off():
    text = workload("torch.rand(n, 400, device='cuda')", "x.sum(-1)")
    baseline = kernel("x.sum(-1) * (1 + 1e-6)")
    worse = kernel("x.sum(-1) * (1 + 4e-6)")
    assert not right(judge(Trial(text, factor=2.0), baseline, worse))
    assert right(judge(Trial(text, factor=8.0), baseline, worse))


def refusal(trial: Trial, family: str = "normal") -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        judge(trial, kernel("x"), family=family)
    assert caught.value.path == Path(WORKLOAD_PATH)
    return caught.value


@pytest.mark.parametrize(
    ("reference", "says", "line"),
    [
        ("x @ torch.zeros(7)", "`reference` raised for case n=12: RuntimeError: ", 6),
        ("x.no_such_method()", "`reference` raised for case n=12: AttributeError: ", 6),
        ("[1, 2]", "`reference` returned a int at position 0, not a tensor", None),
        ("None", "`reference` returned a NoneType at position 0, not a tensor", None),
    ],
)
def test_a_reference_that_fails_is_reported_at_its_line(reference, says, line):
    error = refusal(Trial(workload("torch.randn(n, 4, device='cuda')", reference)))
    assert error.message.startswith(says)
    assert error.line == line


def test_inputs_that_fail_are_reported_at_their_line():
    error = refusal(Trial(workload("torch.randn(n, -4, device='cuda')", "x")))
    assert error.message.startswith("`inputs` raised for case n=12: RuntimeError")
    assert error.line == 4


def test_inputs_on_another_device_are_refused_with_a_fix():
    error = refusal(Trial(workload("torch.randn(n, 4, device='meta')", "x")))
    assert error.message == "`inputs` made a tensor on meta for case n=12"
    assert error.fix == 'Make inputs with device="cuda".'


def test_a_broken_workload_is_refused_when_it_is_loaded(pool, run):
    with pytest.raises(WorkloadError) as caught:
        Trial("CASES = [{}]\n\ndef inputs(:\n")
    assert (caught.value.path, caught.value.line) == (Path(WORKLOAD_PATH), 3)


@pytest.mark.parametrize(
    "made",
    [
        "torch.randn(n, 4).cuda()",
        "torch.randn(n, 4).to('cuda')",
        "torch.randn(n, 4).to(torch.device('cuda'))",
        "torch.randn(n, 4).to(device='cuda:0')",
        "torch.randn(n, 4).to('cuda', torch.float16)",
        "torch.nn.functional.pad(torch.ones(n, 3, device=torch.device('cuda', 0)), (0, 1))",
    ],
)
def test_without_a_gpu_every_way_to_ask_for_one_gives_the_cpu(made):
    assert right(judge(Trial(workload(made, "x * 2")), kernel("(x * 2).to('cuda')")))


def test_inputs_vary_in_one_argument_at_a_time():
    text = workload(
        "torch.randn(n, device='cuda'), torch.ones(n, device='cuda'), "
        "torch.randint(9, (n,), device='cuda'), 0.5, True, n",
        "x * w + i * scale if flag else x[:n]",
        "x, w, i, scale, flag, n",
    )
    trial = Trial(text)

    base = trial.draw()
    x, weight, index, scale, flag, count = (trial.vary(base, number) for number in range(6))
    for found in (x, weight, index, scale, flag):
        assert found.matters
        assert found.made is not None
        assert found.made.input_bytes == 12 * (4 + 4 + 8)
    assert scale.made.arguments[3] == 0.875
    assert flag.made.arguments[4] is False
    assert weight.made.arguments == x.made.arguments, "they lie in memory as before"
    assert count.made is None
    assert count.why


def test_an_argument_that_the_reference_ignores_does_not_matter():
    trial = Trial(workload("torch.randn(n, device='cuda'), torch.randn(n, device='cuda')", "x * 2", "x, unused"))

    base = trial.draw()
    assert [trial.vary(base, number).matters for number in range(2)] == [True, False]


def test_a_candidate_that_ignores_an_argument_is_wrong_on_another_value_of_it():
    """Where `inputs` makes it the same each time, nothing else tells."""
    trial = Trial(workload("torch.randn(n, device='cuda'), torch.zeros(n, device='cuda'), 1e-6", "x + b", "x, b, eps"))
    honest, ignores = kernel("x + b", "x, b, eps"), kernel("x.clone()", "x, b, eps")

    base = trial.draw()
    assert trial.vary(base, 1).matters
    keys = (base, f"{base}/1")
    trial.baseline(honest, *keys)
    assert [right(Version(trial, honest).judge(key)) for key in keys] == [True, True]
    assert [right(Version(trial, ignores).judge(key)) for key in keys] == [True, False]


@pytest.mark.parametrize("family", ["normal", "outliers", "strided"])
def test_renewed_inputs_are_those_of_the_seed_in_every_place(family):
    trial = Trial(workload("torch.randn(n, 4, device='cuda').t(), torch.arange(n, device='cuda'), 3", "x", "x, i, k"))
    made = trial.made[trial.draw(family)]
    versions = [Version(trial, kernel("x")) for _ in range(2)]
    buffers = ("first", "second", "third")
    for version in versions:
        for buffer in buffers:
            version.bind(buffer, made)
    trial.oracle.fill(messages.Fill(subject=versions[0].name, buffers=buffers, key=f"0/{family}/0"))
    known = trial.oracle.inputs.kept
    places = tuple(messages.BufferPlace(version.name, buffers) for version in versions)
    trial.oracle.renew(messages.Renew(case=0, family=family, seeds=(4, 5, 6), places=places))
    assert trial.oracle.inputs.kept == known
    for buffer, seed in zip(buffers, (4, 5, 6), strict=True):
        wanted = trial.leaves(trial.draw(family, seed))
        for version in versions:
            found = version.values(buffer, made)
            pairs = zip(found, wanted, strict=True)
            assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)
            assert not trial.oracle.memory.trampled(version.name, buffer, specs_of(made), ("x", "i"))


def test_several_buffers_are_filled_and_let_go_of():
    trial = Trial(WORKLOAD)
    key, version = trial.draw(), Version(trial, kernel("x"))
    for buffer in ("a", "b", "c"):
        version.bind(buffer, trial.made[key])
    trial.oracle.fill(messages.Fill(subject=version.name, buffers=("a", "b"), key=key))
    for buffer, filled in (("a", True), ("b", True), ("c", False)):
        (found,) = version.values(buffer, trial.made[key])
        assert torch.equal(found, trial.leaves(key)[0]) is filled
    trial.oracle.detach(messages.Detach(subject=version.name, buffers=("a", "b")))
    trial.oracle.fill(messages.Fill(subject=version.name, buffers=("c",), key=key))
    for buffer in ("a", "b"):
        with pytest.raises(KeyError):
            trial.oracle.fill(messages.Fill(subject=version.name, buffers=(buffer,), key=key))


def specs_of(made: Made) -> tuple[TensorSpec, ...]:
    return tuple(leaf for leaf in made.arguments if isinstance(leaf, TensorSpec))
