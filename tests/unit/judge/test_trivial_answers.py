"""Trivial answers that would pass: by chance in one draw is not enough."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from judge_support import fake_harness

from kernel_lsp import policy
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.strength import measure_strength
from kernel_lsp.runner.messages.oracle import Discriminate, Made, Prepare

OTHER, ZEROS = "the answer to other inputs", "all zeros"


@pytest.mark.parametrize(
    ("answers", "weak", "asked"),
    [
        ([[]], [], 1),
        ([[OTHER], []], [], 2),
        ([[OTHER]], [OTHER], 1 + policy.STRENGTH_FURTHER_DRAWS),
        ([[OTHER, ZEROS], [ZEROS]], [ZEROS], 1 + policy.STRENGTH_FURTHER_DRAWS),
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
