"""Trivial answers that would pass: by chance in one draw is not enough."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from judge_support import fake_harness

from kernel_lsp import policy
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.plan import SIGNED
from kernel_lsp.judge.inputs.strength import measure_strength
from kernel_lsp.runner.messages import OTHER_ANSWER as OTHER
from kernel_lsp.runner.messages.oracle import Discriminate, Prepare
from kernel_lsp.runner.messages.oracle_answers import Made

ZEROS = "all zeros"


@pytest.mark.parametrize(
    ("answers", "weak", "asked"),
    [
        ([[]], [], 1),
        ([[OTHER], []], [], 2),
        ([[OTHER]], [OTHER], 1 + policy.STRENGTH_FURTHER_DRAWS),
        ([[OTHER, ZEROS], [ZEROS]], [ZEROS], 2),
        ([[ZEROS]], [ZEROS], 1),
    ],
)
def test_an_answer_to_other_inputs_has_to_pass_for_several(
    answers: Sequence[Sequence[str]], weak: Sequence[str], asked: int
) -> None:
    requests: list[Discriminate] = []

    async def oracle(request: Any) -> Any:
        if isinstance(request, Prepare):
            return Made((), 4, 4)
        requests.append(request)
        return tuple(answers[min(len(requests), len(answers)) - 1])

    first, other = (Draw(f"0/{PLAIN}/{number}", 0, PLAIN, (), 4, 4) for number in range(2))
    target = SimpleNamespace(workload=SimpleNamespace(problem=None))
    harness = fake_harness(oracle=oracle, draws={}, seed_of=hash, target=target)
    outputs = {first.key: [("float32", (1,), (1,))]}
    found = asyncio.run(measure_strength(harness, [first], {0: other}, outputs))
    assert found == [f"{answer} would pass on case n=1" for answer in weak]
    assert len(requests) == len({request.other for request in requests}) == asked


def test_of_a_problem_the_inputs_are_asked_first_that_few_answers_pass_on_and_only_for_these_answers() -> None:
    """As for ReLU, where each of 41 questions looked at all answers, which took most of the opening."""
    asked: list[tuple[str, tuple[str, ...] | None]] = []
    passing = {PLAIN: ("a copy of `x`", OTHER), SIGNED: (OTHER,)}

    async def oracle(request: Any) -> Any:
        if isinstance(request, Prepare):
            return Made((), 4, 4)
        asked.append((request.key, request.among))
        return tuple(one for one in passing[request.key] if one in (request.among or passing[request.key]))

    draws = [Draw(family, 0, family, (), 4, 4) for family in ("shifted", PLAIN, "large", SIGNED)]
    passing |= {"shifted": (), "large": ()}
    target = SimpleNamespace(workload=SimpleNamespace(problem=object()))
    workload = SimpleNamespace(advisory=(), weights=(), renews_weights=False)
    harness = fake_harness(oracle=oracle, draws={}, seed_of=hash, target=target, workload=workload)
    outputs = {draw.key: [("float32", (1,), (1,))] for draw in draws}
    other = Draw("other", 0, PLAIN, (), 4, 4)
    assert asyncio.run(measure_strength(harness, draws, {0: other}, outputs)) == []
    both, times = passing[PLAIN], 1 + policy.STRENGTH_FURTHER_DRAWS
    assert asked == [
        (PLAIN, None),
        *[(PLAIN, both)] * (times - 1),
        (SIGNED, both),
        *[(SIGNED, (OTHER,))] * (times - 1),
        ("shifted", (OTHER,)),
    ]
