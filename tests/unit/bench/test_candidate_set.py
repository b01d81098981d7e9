"""The set of candidates for KernelBench's problems, and what is judged of it without a GPU and without KernelBench."""

import json
import re
from pathlib import Path

import pytest

from kernel_lsp.bench.records import CandidateResult
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.source.modules import inline_sources, is_answer
from kernel_lsp.source.triton import find_triton_kernels
from kernel_lsp.workload.suite import find_problems, find_samples, sample_name
from tests.unit.bench.kernelbench_command import Bench

TESTS = Path(__file__).parents[2]
FOLDER = TESTS / "kernelbench/candidates"
MANIFEST = json.loads((TESTS / "kernelbench/candidates.json").read_text())
JUDGED = (
    *("1.1.0", "1.1.1", "1.1.2", "1.1.5", "1.19.0", "1.19.1", "1.19.2", "1.19.3", "1.19.4", "1.19.6", "1.19.7"),
    *("1.23.0", "1.23.1", "1.23.2", "1.23.5", "1.36.0", "1.36.1", "1.36.2", "1.36.4", "1.40.0", "1.40.1", "1.49.1"),
    *("1.35.0", "1.35.1", "1.37.0", "1.53.0", "1.53.1", "1.90.0", "1.90.1"),
    *("1.93.0", "1.94.0", "1.94.1", "2.9.0", "2.9.1", "2.68.0", "2.68.1", "2.76.0", "2.80.0"),
)
"""What is judged on the emulator, by level, problem and sample: some of each kind and way of writing."""
RIGHT = {"FASTER", "SLOWER", "SAME", "NOT_WORTH_IT", "AMBIGUOUS"}


def test_every_candidate_is_listed_under_its_own_name():
    assert sorted(entry["file"] for entry in MANIFEST) == sorted(path.name for path in FOLDER.glob("*.py"))
    for entry in MANIFEST:
        assert re.fullmatch(sample_name(entry["level"], entry["problem"], 7).replace("_7_", r"_\d+_"), entry["file"])
    assert len(find_samples(FOLDER)) == len(MANIFEST)


def test_there_are_enough_of_each_kind():
    def count(language: str, *kinds: str) -> int:
        return sum(entry["language"] == language and entry["kind"] in kinds for entry in MANIFEST)

    assert count("inline", "right", "wrong", "cheat") >= 40
    assert count("triton", "right", "wrong", "cheat") >= 20
    for language in ("inline", "triton"):
        assert min(count(language, kind) for kind in ("right", "wrong", "cheat")) >= 5
    assert {entry["level"] for entry in MANIFEST} == {1, 2}
    assert len({(entry["level"], entry["problem"]) for entry in MANIFEST}) >= 50


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_a_candidate_is_what_the_manifest_says(entry):
    text = (FOLDER / entry["file"]).read_text()
    assert is_answer(text)
    assert bool(inline_sources(text)) == (entry["language"] == "inline")
    assert bool(find_triton_kernels(text, FOLDER / entry["file"])) == (entry["language"] == "triton")
    assert "class Model(" not in text, "a candidate holds no problem"
    assert set(entry["expect"]) <= {outcome.value for outcome in Outcome}
    assert (set(entry["expect"]) <= RIGHT) == (entry["kind"] == "right")
    assert entry["what"]


def test_problems_of_our_own_have_the_same_numbers():
    ours = {(problem.level, problem.number) for problem in find_problems(TESTS / "fixtures/kernelbench")}
    theirs = {(entry["level"], entry["problem"]) for entry in MANIFEST}
    assert ours <= theirs
    assert len(ours) >= 40


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("set"))
    bench.take(*JUDGED)
    return bench.run()


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_emulator_tells_right_from_wrong_and_cheats(judged):
    _, said, results = judged
    kinds = {tuple(map(str, re.findall(r"\d+", entry["file"]))): entry for entry in MANIFEST}
    found, told = {}, {}
    for name in JUDGED:
        entry, result = kinds[tuple(name.split("."))], CandidateResult.model_validate(results[name])
        verdict, right = result.eager.verdict.value, entry["kind"] == "right"
        found[name] = result.eager.right and verdict == "UNTIMED" if right else verdict in entry["expect"]
        told[name] = result.eager.right == right
    assert [name for name, ok in found.items() if not ok] == [], said
    assert [name for name, ok in told.items() if not ok] == [], said


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_usual_wrappers_are_built_the_fast_way(judged):
    inline = [r for r in judged[2].values() if r["language"] == "torch" and r["eager"]["verdict"] != "ILLEGITIMATE"]
    assert len(inline) >= 20
    assert {r["build_way"] for r in inline} == {"fast"}
