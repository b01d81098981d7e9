"""The kernels of a step follow from what earlier steps learned of each, and none is forgotten."""

from collections import Counter

import pytest

from kernel_lsp.learn.curriculum import FLOOR, by_kernel, chosen, solved, spread
from kernel_lsp.learn.training import TrainingBatch, TrainingSample


def sample(kernel: str, score: float, advantage: float) -> TrainingSample:
    said = {"answer": "", "result": "", "reason": "", "evidence": None, "prompt": (), "tokens": (), "logprobs": ()}
    place = {"kernel": kernel, "trajectory": 0, "turn": 0}
    return TrainingSample(**place, **said, score=score, reward=score, advantage=advantage)


def batch(step: int, **advantages: float) -> TrainingBatch:
    """A step in which each kernel had a paid answer and one that was not, with this advantage and its negative."""
    pairs = [sample(name, 0.3 * sign, sign * size) for name, size in advantages.items() for sign in (1, -1)]
    return TrainingBatch(step=step, model="m", samples=tuple(pairs), unjudged=0, seconds=1.0)


def run(kernels: str, steps: int, teaches, at_once: int = 1) -> list[list[str]]:
    """The kernels of each step, where `teaches` says the spread of a kernel."""
    batches, drawn = [], []
    for step in range(1, steps + 1):
        names = [kernels[number] for number in chosen(kernels, at_once, step, batches)]
        batches.append(batch(step, **{name: teaches(name) for name in names}))
        drawn.append(names)
    return drawn


def test_while_all_teach_alike_they_are_drawn_in_turn():
    assert [sorted(chosen("abcde", 2, step, ())) for step in (1, 2, 3)] == [[0, 1], [2, 3], [0, 4]]
    assert sorted(chosen("abc", 8, 4, ())) == [0, 1, 2]


def test_what_teaches_nothing_is_drawn_less_often_and_not_forgotten():
    drawn = Counter(name for step in run("abcd", 100, lambda name: float(name == "c")) for name in step)
    assert drawn["c"] > 3 * max(drawn[name] for name in "abd")
    assert min(drawn.values()) >= 100 * FLOOR / 4


def test_a_kernel_that_begins_to_teach_is_drawn_more_often_again():
    wakes = {"a": 0.0, "b": 1.0}
    first = run("ab", 40, wakes.__getitem__)
    assert first.count(["b"]) > 30
    batches = [batch(step, **dict.fromkeys(names, wakes[names[0]])) for step, names in enumerate(first, 1)]
    for step in range(41, 81):
        names = ["ab"[number] for number in chosen("ab", 1, step, batches)]
        batches.append(batch(step, **dict.fromkeys(names, 1.0)))
    later = Counter(one.samples[0].kernel for one in batches[40:])
    assert later["a"] > 12


def test_a_step_depends_on_the_batches_before_it_alone():
    batches = [batch(1, a=1.0), batch(2, b=0.0), batch(3, c=0.5)]
    assert chosen("abc", 1, 3, batches) == chosen("abc", 1, 3, batches[:2])
    assert chosen("abc", 1, 3, [*batches, batch(4, canary=1.0)]) == [2]


def test_the_figures_of_a_group():
    [group] = by_kernel(batch(1, a=0.6)).values()
    assert (solved(group), spread(group)) == (0.5, pytest.approx(0.6))
