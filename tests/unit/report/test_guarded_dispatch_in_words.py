"""The cases of a variant that wins on some of them stand in terminal, page and JSON, with the condition or without."""

import json

import sample_verdicts as sample
from rich.console import Console

from kernel_lsp.judge.split import FreshCase, Split, SplitCase
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.machine import verdict_json
from kernel_lsp.report.page import verdict_page
from kernel_lsp.report.terminal import VerdictCard

CASES = (
    SplitCase(case="rows=16", side="loses", speedup=0.71, interval=(0.7, 0.72), path="old"),
    SplitCase(case="rows=8192", side="wins", speedup=1.42, interval=(1.4, 1.44), path="new"),
)
SPLIT = Split(
    variant="BLOCK 128 -> 256",
    digest="c" * 64,
    predicate="rows >= 4096",
    cases=CASES,
    fresh=(FreshCase(case="rows=4097", path="new", speedup=1.33, interval=(1.3, 1.36)),),
)


def judged(split: Split) -> Verdict:
    return sample.faster(evidence=sample.evidence(split=split))


def shown(split: Split) -> str:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(VerdictCard(judged(split), "3f9a2c1e"), crop=False)
    return " ".join(capture.get().split())


def test_the_condition_stands_above_the_cases() -> None:
    text = shown(SPLIT)
    assert "Where rows >= 4096, the new path is taken, else the old text." in text
    assert "rows=16 0.71x 0.70-0.72 loses old path" in text
    assert "rows=8192 1.42x 1.40-1.44 wins new path" in text
    assert "rows=4097 1.33x 1.30-1.36 new path" in text
    assert "Where rows &gt;= 4096" in verdict_page(judged(SPLIT), "3f9a2c1e")


def test_without_a_condition_the_cases_stand_there_with_the_reason() -> None:
    cases = tuple(case.model_copy(update={"path": ""}) for case in CASES)
    text = shown(Split(variant="x", digest="d", predicate="", cases=cases, note="no condition separates them"))
    assert "is not offered. No condition separates them." in text
    assert "rows=16 0.71x 0.70-0.72 loses" in text


def test_json_has_the_table() -> None:
    said = json.loads(verdict_json(judged(SPLIT)))["evidence"]["split"]
    assert (said["predicate"], [case["side"] for case in said["cases"]]) == ("rows >= 4096", ["loses", "wins"])
