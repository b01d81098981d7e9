from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.dialogue.answer import ModelAnswer, fenced_code
from kernel_lsp.source.kernel import Language
from tests.bench.refine_examples import EXAMPLES
from tests.bench.scripted_proposer import BROKEN_SHARE, ScriptedProposer
from tests.bench.strategies import STRATEGIES, find_problems, summarise, tasks

pytestmark = pytest.mark.programs

FIRST = (EXAMPLES / "kernelbench" / "mean_square_cuda.py").read_text()
RIGHT = {"role": "user", "content": "Your previous answer was correct. It runs."}
WRONG = {"role": "user", "content": "Your previous answer was incorrect."}
PLAN = "{}Answer with at most 3 lines and no code.\n\nCHANCE | ON | STEP | WHY"


def proposer() -> ScriptedProposer:
    return ScriptedProposer(FIRST, EXAMPLES / "kernelbench" / "mean_square.py", Language.TORCH, device_named("H200"))


def text(events: list[dict[str, Any]]) -> str:
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events)


def answers(*messages: dict[str, str], seeds: int = 12) -> list[str]:
    return [text(proposer().reply({"seed": seed, "messages": list(messages)})) for seed in range(seeds)]


def given(code: str) -> dict[str, Any]:
    return {"role": "assistant", "content": f"```python\n{code}\n```"}


def test_the_first_answer_is_the_one_that_it_knows_or_that_in_haste() -> None:
    said = answers({"role": "user", "content": "Write ModelNew."}, seeds=60)
    broken = [one for one in said if "undeclared_name" in one]
    assert all(fenced_code(ModelAnswer(one)).strip() == FIRST.strip() for one in said if one not in broken)
    assert 0 < len(broken) < 2 * 60 * BROKEN_SHARE
    assert answers({"role": "user", "content": "Write ModelNew."}, seeds=60) == said, "equal prompts, equal answers"


def test_a_further_answer_changes_the_last_right_version_by_the_step_that_it_is_told() -> None:
    wish = RIGHT | {"content": f"{RIGHT['content']}\nTake this step in the next version, and no other: warp shuffles"}
    own = RIGHT | {"content": f"{RIGHT['content']}\nMake the last version faster by its own approach."}
    assert set(last_lines(given(FIRST), wish)) == {"warp shuffles."}
    assert all("->" in line for line in last_lines(given(FIRST), own)), "numbers alone"
    after_a_failure = last_lines(given(FIRST), RIGHT, given("broken"), WRONG)
    assert "A first version." not in after_a_failure
    assert set(last_lines(given("broken"), WRONG)) == {"A first version."}


def last_lines(*messages: dict[str, str]) -> list[str]:
    """The summaries of answers that were not given in haste."""
    return [one.splitlines()[-1] for one in answers(*messages) if "haste" not in one]


def test_it_plans_a_first_version_and_then_changes_on_steps_that_were_right() -> None:
    assert answers({"role": "user", "content": PLAN.format("")}, seeds=1) == [
        "0.9 | 0 | A first version | There is none yet"
    ]
    done = "1. on 0: A first version Result: not right\n2. on 0: A first version Result: 1.20x\n"
    [planned] = answers({"role": "user", "content": PLAN.format(done)}, seeds=1)
    assert [line.split(" | ")[1] for line in planned.splitlines()] == ["2", "2", "2"]


def row(problem: str, strategy: str, speedup: float | None) -> dict[str, Any]:
    spent = {"tokens": 100, "candidates": 24, "right": 12, "seconds_to_first": 9.0 if speedup else None}
    return {"task": problem, "number": f"{strategy} 0", "speedup": speedup} | spent


def test_only_problems_that_every_strategy_has_searched_count() -> None:
    rows = [row("a", strategy, speedup) for strategy, speedup in zip(STRATEGIES, (4.0, None, 2.0, 1.5), strict=True)]
    rows += [row("b", "serial", 100.0), {"task": "b", "number": "beam 0", "error": "it broke"}]
    figures = summarise(rows)
    assert figures["problems"] == 1
    assert [figures[name]["geometric_mean_speedup"] for name in STRATEGIES] == pytest.approx([4.0, 1.0, 2.0, 1.5])
    assert (figures["serial"]["searches_with_a_gain"], figures["beam"]["searches_with_a_gain"]) == (1, 0)
    assert summarise(rows[4:]) == {"problems": 0}


def test_problems_are_found_with_an_answer_each(tmp_path: Path) -> None:
    assert [one.name for one in find_problems(None)] == ["bias_gelu", "mean_square"]
    with pytest.raises(FileNotFoundError, match="holds no KernelBench/level1"):
        find_problems(tmp_path)
    (tmp_path / "KernelBench" / "level1").mkdir(parents=True)
    (tmp_path / "KernelBench" / "level1" / "23_Softmax.py").write_text("")
    [found] = find_problems(tmp_path)
    assert found.answer.name == "level_1_problem_23_sample_0_kernel.py"
    [task] = tasks([found], Namespace(seeds=2, only=[]))
    assert len(task["numbers"]) == 8
