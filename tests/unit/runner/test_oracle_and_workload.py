"""What the oracle makes of a workload: its inputs of any kind and layout, its reference, its tolerance, its errors."""

import contextlib
from pathlib import Path

import pytest
from runner_support import Trial

from kernel_lsp.errors import WorkloadError

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


def kernel(body: str, parameters: str = "x") -> str:
    return f"import torch\ndef launch(module, {parameters}):\n    return {body}\n"


@pytest.fixture
def start(pool, run):
    """Starts an oracle with a workload."""
    with contextlib.ExitStack() as stack:

        def begin(text: str, factor: float = 2.0) -> Trial:
            trial = run(Trial.start(pool, text, factor))
            stack.callback(trial.kill)
            return trial

        yield begin


def judge(run, trial: Trial, baseline: str, candidate: str | None = None, family: str = "normal"):
    """The oracle's answer on the baseline, or on the candidate after it."""

    async def main():
        key = await trial.draw(family)
        (found,) = await trial.baseline(baseline, key)
        if candidate is None:
            return found
        version = await trial.enter(candidate)
        try:
            return (await version.judge(key))[1]
        finally:
            await version.leave()

    return run(main())


def right(compared) -> bool:
    wrong = [d["first_wrong"] for d in compared["distances"] if d["first_wrong"] is not None]
    return not (wrong or compared["shape_error"] or compared["changed_inputs"] or compared["trampled"])


def test_a_workload_is_described(run, pool):
    text = WORKLOAD + "CONTRACT = dict(aligned=16, mutates=['x'])\nNONDETERMINISTIC = True\n"

    async def main():
        trial = await Trial.start(pool, text)
        try:
            return await trial.oracle("load", text=text, path="/home/me/w.py"), await trial.oracle("sizes")
        finally:
            trial.kill()

    said, sizes = run(main())
    assert said["cases"] == ["n=12", "n=20"]
    assert said["arguments"] == ["x"]
    assert said["nondeterministic"] is True
    assert said["contract"] == {"contiguous": False, "aligned": 16, "mutates": ["x"], "finite": False}
    assert sizes == [12 * 16, 20 * 16]


def test_sizes_are_found_also_when_inputs_look_at_values(run, start):
    text = workload("torch.ones(int(torch.full((1,), n, device='cuda').item()), device='cuda')", "x")
    assert run(start(text).oracle("sizes")) == [48, 80]


def test_huge_inputs_are_sized_without_being_made(run, start):
    text = workload("torch.empty(1 << 46, device='cuda')", "x")
    assert run(start(text).oracle("sizes")) == [1 << 48, 1 << 48]


def test_inputs_of_every_kind_arrive_as_they_were_made(run, start):
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
    assert right(judge(run, start(text), launch))


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
def test_inputs_lie_in_the_workers_memory_as_the_family_asks(run, start, made, stride, family):
    wanted = tuple(2 * step for step in stride) if family == "strided" else stride
    checks = f"assert x.stride() == {wanted}; assert x.data_ptr() % 512 == {4 if family == 'unaligned' else 0}"
    launch = f"import torch\ndef launch(module, x):\n    {checks}\n    return x * 2\n"
    assert right(judge(run, start(workload(made, "x * 2")), launch, family=family))


def test_a_seed_repeats_its_inputs_and_another_does_not(run, start):
    trial = start(WORKLOAD)

    async def prints(*seeds: int) -> list:
        version = await trial.enter(kernel("x * 2"))
        found = []
        for number, seed in enumerate(seeds):
            key = await trial.draw(number=number, seed=seed)
            found.append((await version.judge(key, baseline=True))[1]["fingerprints"])
        await version.leave()
        return found

    first, again, other = run(prints(5, 5, 6))
    assert first == again != other


def test_the_reference_is_computed_in_double_precision(run, start):
    text = workload("torch.rand(n, 1000, device='cuda').half()", "x.sum(-1)")
    (found,) = judge(run, start(text), kernel("x.double().sum(-1).half()"))["distances"]
    assert found["max"] <= 0.5


def test_a_reference_that_knows_no_double_precision_gets_the_types_as_they_are(run, start):
    double = "(_ for _ in ()).throw(RuntimeError('not implemented for Double'))"
    text = workload("torch.randn(n, device='cuda')", f"{double} if x.dtype == torch.float64 else x * 2")
    assert right(judge(run, start(text), kernel("x * 2")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_reference_in_place_does_not_change_the_inputs_that_are_drawn(run, start, dtype):
    made = f"torch.randn(n, device='cuda', dtype=torch.{dtype})"
    trial = start(workload(made, "x.mul_(2)"))

    async def main() -> list[bool]:
        key = await trial.draw()
        version = await trial.enter(kernel("x * 2"))
        found = [right((await version.judge(key, baseline=True))[1]) for _ in range(2)]
        await version.leave()
        return found

    assert run(main()) == [True, True]


def test_several_outputs_are_all_compared(run, start):
    trial = start(workload("torch.randn(n, 4, device='cuda')", "x * 2, x.sum(-1), x.argmax(-1)"))
    baseline = kernel("x * 2, x.sum(-1), x.argmax(-1)")
    found = judge(run, trial, baseline, kernel("x * 2, x.sum(-1), x.argmin(-1)"))
    assert [d["first_wrong"] is None for d in found["distances"]] == [True, True, False]


def test_an_input_that_the_contract_lets_change_may_change(run, start):
    text = workload("torch.randn(n, device='cuda')", "x * 2", extra="CONTRACT = dict(mutates=['x'])\n")
    assert right(judge(run, start(text), kernel("x.mul_(2)")))


def test_a_candidate_is_measured_by_the_baselines_own_error(run, start):
    rough, rougher = kernel("(x * 2).half().float()"), kernel("(x * 2).bfloat16().float()")
    trial = start(workload("torch.rand(n, 4, device='cuda')", "x * 2", extra="TOLERANCE = dict(rtol=1e-2)\n"))
    assert right(judge(run, trial, rough, rough))
    assert not right(judge(run, trial, rough, rougher))
    assert not right(judge(run, trial, kernel("x * 2"), rough))


def test_a_baseline_beyond_the_table_is_wrong_unless_the_workload_tolerates_it(run, start):
    rough = kernel("(x * 2).half().float()")
    made = "torch.rand(n, 4, device='cuda')"
    assert not right(judge(run, start(workload(made, "x * 2")), rough))
    assert right(judge(run, start(workload(made, "x * 2", extra="TOLERANCE = dict(rtol=1e-2)\n")), rough))
    assert not right(judge(run, start(workload(made, "x * 2", extra="TOLERANCE = dict(rtol=1e-6)\n")), rough))


def test_the_factor_is_how_much_more_a_candidate_may_be_off(run, start):
    text = workload("torch.rand(n, 400, device='cuda')", "x.sum(-1)")
    baseline = kernel("x.sum(-1) * (1 + 1e-6)")
    worse = kernel("x.sum(-1) * (1 + 4e-6)")
    assert not right(judge(run, start(text, factor=2.0), baseline, worse))
    assert right(judge(run, start(text, factor=8.0), baseline, worse))


def refusal(run, trial: Trial, family: str = "normal") -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        judge(run, trial, kernel("x"), family=family)
    assert caught.value.path == Path("/home/me/scale_workload.py")
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
def test_a_reference_that_fails_is_reported_at_its_line(run, start, reference, says, line):
    error = refusal(run, start(workload("torch.randn(n, 4, device='cuda')", reference)))
    assert error.message.startswith(says)
    assert error.line == line


def test_inputs_that_fail_are_reported_at_their_line(run, start):
    error = refusal(run, start(workload("torch.randn(n, -4, device='cuda')", "x")))
    assert error.message.startswith("`inputs` raised for case n=12: RuntimeError")
    assert error.line == 4


def test_inputs_on_another_device_are_refused_with_a_cure(run, start):
    error = refusal(run, start(workload("torch.randn(n, 4, device='meta')", "x")))
    assert error.message == "`inputs` made a tensor on meta for case n=12"
    assert error.cure == 'Make inputs with device="cuda".'


def test_a_broken_workload_is_refused_when_it_is_loaded(pool, run):
    with pytest.raises(WorkloadError) as caught:
        run(Trial.start(pool, "CASES = [{}]\n\ndef inputs(:\n"))
    assert (caught.value.path, caught.value.line) == (Path("/home/me/scale_workload.py"), 3)


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
def test_without_a_gpu_every_way_to_ask_for_one_gives_the_cpu(run, start, made):
    assert right(judge(run, start(workload(made, "x * 2")), kernel("(x * 2).to('cuda')")))


def test_inputs_vary_in_one_argument_at_a_time(start, run):
    text = workload(
        "torch.randn(n, device='cuda'), torch.ones(n, device='cuda'), "
        "torch.randint(9, (n,), device='cuda'), 0.5, True, n",
        "x * w + i * scale if flag else x[:n]",
        "x, w, i, scale, flag, n",
    )
    trial = start(text)

    async def main() -> list:
        base = await trial.draw()
        return [
            await trial.oracle("vary", key=f"{base}/{number}", base=base, argument=number, seed=7 + number)
            for number in range(6)
        ]

    x, weight, index, scale, flag, count = run(main())
    for found in (x, weight, index, scale, flag):
        assert found["matters"]
        assert found["varied"]["input_bytes"] == 12 * (4 + 4 + 8)
    assert scale["varied"]["arguments"][3] == 0.875
    assert flag["varied"]["arguments"][4] is False
    assert weight["varied"]["arguments"] == x["varied"]["arguments"], "they lie in memory as before"
    assert count == {"varied": None, "matters": False}, "a size cannot be another one"


def test_an_argument_that_the_reference_ignores_does_not_matter(start, run):
    trial = start(workload("torch.randn(n, device='cuda'), torch.randn(n, device='cuda')", "x * 2", "x, unused"))

    async def main() -> list[bool]:
        base = await trial.draw()
        found = [await trial.oracle("vary", key=f"v{i}", base=base, argument=i, seed=i) for i in range(2)]
        return [one["matters"] for one in found]

    assert run(main()) == [True, False]


def test_a_candidate_that_ignores_an_argument_is_wrong_on_another_value_of_it(start, run):
    """Where `inputs` makes it the same each time, nothing else tells."""
    trial = start(workload("torch.randn(n, device='cuda'), torch.zeros(n, device='cuda'), 1e-6", "x + b", "x, b, eps"))
    honest, ignores = kernel("x + b", "x, b, eps"), kernel("x.clone()", "x, b, eps")

    async def main(text: str) -> list[bool]:
        base = await trial.draw()
        made = await trial.oracle("vary", key="0/normal/1", base=base, argument=1, seed=3)
        trial.take("0/normal/1", made["varied"])
        await trial.baseline(honest, base, "0/normal/1")
        version = await trial.enter(text)
        try:
            return [right((await version.judge(key))[1]) for key in (base, "0/normal/1")]
        finally:
            await version.leave()

    assert run(main(honest)) == [True, True]
    assert run(main(ignores)) == [True, False]
