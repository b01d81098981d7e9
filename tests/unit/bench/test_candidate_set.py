"""The set of candidates for KernelBench's problems, and what is judged of it without a GPU and without KernelBench."""

import json
import re
from pathlib import Path

import pytest

from kernel_lsp.bench.suite import find_problems, find_samples, sample_name
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.source.modules import inline_sources, is_answer
from kernel_lsp.source.triton import find_triton_kernels

TESTS = Path(__file__).parents[2]
FOLDER = TESTS / "kernelbench/candidates"
MANIFEST = json.loads((TESTS / "kernelbench/candidates.json").read_text())
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
