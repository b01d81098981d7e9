"""What the emulator is given first where its time is short: every case once, then families for each kernel."""

import random
from types import SimpleNamespace

import pytest

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.inputs import plan
from kernel_lsp.judge.inputs.findings import Findings


def harness(seconds: float = 1.5, gpu: object = None):
    """As much of a harness as planning asks for: three cases, of which none is advisory."""
    settings, _ = load_settings(overrides={"judge.emulator_seconds": seconds, "judge.families": ["large", "tiny"]})
    return SimpleNamespace(
        settings=settings,
        gpu=gpu,
        large=False,
        cases=["n=1", "n=2", "n=3"],
        workload=SimpleNamespace(advisory=(), weights=()),
        contract=SimpleNamespace(finite=True, aligned=16, contiguous=True),
        target=SimpleNamespace(workload=SimpleNamespace(problem=False)),
    )


def launched(block: int) -> Launch:
    return Launch("k", (1, 1, 1), (128, 1, 1), constexprs={"BLOCK": block}, num_warps=4)


BUILT = Built(
    Build(None, (), "triton", 0.0),
    (LaunchTrace(0, (launched(32),)), LaunchTrace(1, (launched(32),)), LaunchTrace(2, (launched(64),))),
)


def test_every_case_runs_once_before_families_of_each_kernel() -> None:
    here = harness()
    leaders = plan.leaders_of(here, [0, 1, 2], BUILT)
    assert leaders == [0, 2], "the second case launches the kernel of the first"
    order = list(plan.first_inputs(here, [0, 1, 2], leaders, random.Random(0)))
    assert order[:3] == [(0, "normal"), (1, "normal"), (2, "normal")]
    assert order[3:7] == [(0, "large"), (2, "large"), (0, "tiny"), (2, "tiny")]
    assert {case for case, _ in order[7:]} == {1}


def test_a_gpu_tries_layouts_and_all_families_on_larger_cases_too() -> None:
    here, managed = harness(gpu=object()), {"normal", "large", "tiny", "nonfinite", "nan-in-data", "below", "strided"}
    assert plan.layouts_elsewhere(here, [2, 0, 1], managed, random.Random(0)) == [(0, "strided"), (1, "strided")]
    here.workload.arguments = ("x", "n")
    orders = [
        plan.further_inputs(here, [2, 0, 1], managed, [(0, "large"), (0, "tiny")], random.Random(n)) for n in (0, 1)
    ]
    wanted = {(case, family) for case in (0, 1) for family in ("large", "tiny", "below", "nonfinite", "nan-in-data")}
    wanted -= {(0, "large"), (0, "tiny")}
    wanted |= {(case, number) for case in range(3) for number in (0, 1)}
    for order in orders:
        assert len(order) == len(wanted)
        assert set(order) == wanted
        assert {family for _, family in order[:4]} == {"nonfinite", "nan-in-data"}
    assert orders[0] != orders[1]


def test_the_emulator_has_time_for_further_values_on_the_first_case_alone() -> None:
    here = harness()
    here.workload.arguments = ("x", "n")
    assert plan.layouts_elsewhere(here, [0, 1], {"strided"}, random.Random(0)) == []
    assert plan.further_inputs(here, [0, 1], {"large"}, (), random.Random(0)) == [(0, 0), (0, 1)]


def test_a_gpu_has_all_families_on_the_first_case_alone() -> None:
    assert plan.leaders_of(harness(gpu=object()), [0, 1, 2], BUILT) == [0]


@pytest.mark.parametrize(("seconds", "case", "fits"), [(1.5, 0, True), (1.5, 2, False), (9.0, 2, True)])
def test_time_left_goes_by_runs_of_the_same_case(seconds: float, case: int, fits: bool) -> None:
    runs = [
        SimpleNamespace(case="n=1", seconds=0.1, input_bytes=10),
        SimpleNamespace(case="n=2", seconds=1.0, input_bytes=90),
    ]
    draw = SimpleNamespace(case=case, input_bytes=100)
    assert plan.affordable(harness(seconds), draw, Findings(runs=runs)) is fits


def test_each_larger_case_has_two_tensors_misaligned_one_at_a_time_by_chance() -> None:
    here, managed = harness(gpu=object()), {"padded", "misaligned-1", "misaligned-2", "misaligned-3"}
    seen: set[str] = set()
    for seed in range(20):
        chosen = plan.layouts_elsewhere(here, [0, 1], managed, random.Random(seed))
        assert chosen[0] == (1, "padded")
        assert len({family for _, family in chosen[1:]}) == 2
        seen |= {family for _, family in chosen[1:]}
    assert seen == managed - {"padded"}


@pytest.mark.parametrize(
    ("contiguous", "managed", "families"),
    [
        (True, [], []),
        (False, [], ["padded"]),
        (True, ["unaligned"], list(plan.MISALIGNED)),
        (False, ["unaligned"], ["padded", *plan.MISALIGNED]),
    ],
)
def test_rows_lie_apart_unless_the_contract_excludes_it_and_one_tensor_misaligned_where_all_may_be(
    contiguous: bool, managed: list[str], families: list[str]
) -> None:
    here = harness()
    here.settings, _ = load_settings()
    here.contract = SimpleNamespace(finite=True, aligned=0, contiguous=contiguous)
    assert plan.later_layouts(here, managed) == families


def test_every_workload_meets_negative_inputs() -> None:
    here = harness()
    here.settings, _ = load_settings()
    assert plan.last_families(here) == ["alternating", "above", "below", "signed"]
    here.target.workload.problem = True  # it meets them before, on the plain case
    assert plan.last_families(here) == ["alternating", "above"]
