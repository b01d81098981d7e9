import json
import math
from pathlib import Path

import pytest

from tests.bench.memory_order import (
    KernelRaces,
    Trial,
    change_of,
    figures_of,
    from_the_file,
    gains,
    kinds_of,
    leave_one_out,
    likeness,
    memory,
    ordered,
    read_races,
    share_left,
)

pytestmark = pytest.mark.programs


def races(kernel: str, *trials: tuple[str, float | None], **facts: float) -> KernelRaces:
    return KernelRaces(kernel, tuple(Trial(label, ratio) for label, ratio in trials), facts)


def test_a_change_is_the_last_one_of_a_label_and_settings_keep_only_their_direction() -> None:
    assert change_of("128-bit loads; block 256 -> 128") == "block down"
    assert change_of("block 256 -> 512, unroll of the loop in line 12 none -> 4") == "block up + unroll set"
    assert change_of("block 256 -> 512; 4 x 4 outputs per thread") == "4 x 4 outputs per thread"
    assert kinds_of("4 x 4 outputs per thread") == ("# x # outputs per thread", "rewrite")
    assert kinds_of("block up") == ("block up", "settings")


def test_the_gain_of_a_change_is_over_what_it_was_made_of_and_of_a_kind_the_mean() -> None:
    found = gains(races("k", ("a 2", 0.5), ("a 4", None), ("a 2; b", 0.25), ("a 2; b; c", 0.5)))
    assert found["a 2"] == pytest.approx(math.log(2))
    assert found["a 4"] == found["c"] == 0.0
    assert found["b"] == pytest.approx(math.log(2))
    assert found["a #"] == pytest.approx(math.log(2) / 2)


def test_memory_prefers_what_gained_on_baselines_that_are_alike() -> None:
    near = races("near", ("a", 0.5), ("b", 1.0), registers=5.0)
    far = races("far", ("a", 1.0), ("b", 0.4), registers=9.0)
    target = races("target", ("b", 0.9), ("a", 0.6), ("never seen", 0.7), registers=5.1)
    expected = memory(target, [near, far])
    assert ordered(target.trials, expected)[0].label == "a"
    assert expected(Trial("never seen", None)) > 0, "any rewrite is expected to gain as rewrites do"
    assert likeness({}, {"registers": 1.0}, {"registers": 1.0}) == 0.5


def test_what_a_candidate_is_made_of_comes_before_it() -> None:
    trials = races("k", ("x 1 -> 2", 0.9), ("y 1 -> 2", 0.9), ("x 1 -> 2, y 1 -> 2", 0.8), ("z", 0.7), ("z; a", 0.6))
    eager = ordered(trials.trials, lambda one: len(one.label))
    assert [one.label for one in eager] == ["x 1 -> 2", "y 1 -> 2", "x 1 -> 2, y 1 -> 2", "z", "z; a"]
    deeper = ordered(trials.trials[3:] + trials.trials[:1], lambda _: 0.0, deeper=True)
    assert [one.label for one in deeper] == ["z", "z; a", "x 1 -> 2"]


def test_candidates_and_races_are_counted_until_a_gain_and_until_nearly_the_best() -> None:
    tried = [*((f"no {n}", 1.0) for n in range(8)), ("some", 0.9), ("most", 0.51), ("best", 0.5)]
    row = figures_of(races("k", *tried), lambda one: one.label == "best")
    assert row is not None
    assert (row["first"]["recorded"], row["first"]["recorded_races"], row["first"]["memory"]) == (9, 2, 1)
    assert (row["near_best"]["recorded"], row["near_best"]["memory_races"]) == (10, 1)
    assert figures_of(races("k", ("nothing", 1.0)), lambda _: 0.0) is None


def test_a_kernel_is_never_ordered_by_its_own_races() -> None:
    one = races("one", ("a", 1.0), ("b", 0.5))
    other = races("other", ("a", 0.5), ("b", 1.0))
    found = leave_one_out([one, other])
    assert [row["first"]["memory"] for row in found["rows"]] == [2, 2], "each is misled by the other"
    assert found["first"]["mean_recorded"] == 1.5
    assert share_left([(1.0, 2.0)] * 5) == (0.5, 0.5, 0.5)


def test_the_longer_of_two_races_of_a_kernel_counts_and_judgements_do_not(tmp_path: Path) -> None:
    def tried(*labels: str) -> list[dict[str, object]]:
        return [{"label": label, "ratio": 0.9, "judged": label == "judged"} for label in labels]

    short, long = ({"example": "k", "tried": tried(*labels)} for labels in ("ab", ("a", "b; c", "judged", "d")))
    for name in ("refine_cuda", "refine_triton"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"figures": {"examples": [short, long]}}))
    for name in ("naive_kernels", "public_kernels", "public_kernels_liger"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"task": f"{name}/k", "number": "itself"}) + "\n")
    found = read_races(tmp_path)
    assert [one.label for one in found[0].trials] == ["a", "b; c", "d"]
    assert [one.label for one in from_the_file(found[0]).trials] == ["a", "d"]
    assert len(read_races()) > 30
