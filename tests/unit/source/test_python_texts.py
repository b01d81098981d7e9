"""Python texts that nothing can read end with one error, whatever reads them."""

import ast
from pathlib import Path

import pytest

from kernel_lsp.judge.program_equality import same_model, same_python
from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.refine.dialogue.kernelbench import Style, check_model_new
from kernel_lsp.source.findings import find_findings
from kernel_lsp.source.python import NestedTooDeepError, expression_ast, python_ast
from kernel_lsp.source.static_check.python import python_findings

SUM = "+".join(["1"] * 20_000)
SIGNS = "-" * 100_000 + "1"
TOO_DEEP = [f"a = 0\nb = {SUM}\n", f"a = {SIGNS}\n", f"a = {'+'.join(['1'] * 600)}\n", "a = b" + "[0]" * 600]


@pytest.mark.parametrize("text", TOO_DEEP)
def test_what_is_nested_too_deep_is_no_crash(text: str) -> None:
    with pytest.raises(NestedTooDeepError):
        python_ast(text)
    with pytest.raises(NestedTooDeepError):
        expression_ast(text.rpartition("= ")[2].strip())


def test_the_line_of_what_is_nested_too_deep_is_known_where_it_could_be_parsed() -> None:
    with pytest.raises(NestedTooDeepError) as found:
        python_ast(f"a = 0\nb = {'+'.join(['1'] * 600)}\n")
    assert found.value.lineno == 2


@pytest.mark.parametrize("text", ["a = 1\0", "a = '\ud800'", "a = (", f"a = {'(' * 300}1{')' * 300}"])
def test_what_is_no_python_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SyntaxError):
        python_ast(text)


def test_what_is_parsed_can_be_walked() -> None:
    text = f"a = {'+'.join(['1'] * 490)}\n"
    assert ast.dump(python_ast(text))


@pytest.mark.parametrize("text", TOO_DEEP)
def test_texts_that_are_nested_too_deep_are_alike_only_if_they_are_the_same(text: str) -> None:
    for same in (same_python, same_model):
        assert same(text, text)
        assert not same(text, text.replace("a", "c"))


def test_a_model_that_can_be_parsed_but_not_written_out_is_compared_as_text() -> None:
    text = f"class Model:\n    a = {'+'.join(['1'] * 400)}\n"
    assert same_model(text, text)
    assert not same_model(text, text.replace("a =", "b ="))


@pytest.mark.parametrize("text", TOO_DEEP)
def test_a_candidate_that_cannot_be_read_is_not_run(text: str) -> None:
    (violation,) = python_findings(text, builds=False, beside_device_code=False)
    assert violation.what == "it is nested too deep to be read"


@pytest.mark.parametrize("text", TOO_DEEP)
def test_an_answer_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(RejectedAnswer, match="nested too deep"):
        check_model_new(text, next(iter(Style)))


def test_a_workload_that_python_cannot_parse_is_told_in_pythons_words() -> None:
    path = Path("scale_workload.py")
    [unclosed] = find_findings("import torch\nCASES = [dict(n=100)\n", path)
    assert unclosed.message == "Python cannot parse this: '[' was never closed."
    first, second = find_findings("CASES = 1\nx = = 2\nif:\n  pass\n", path)
    assert first.message == "Python cannot parse this: invalid syntax."
    assert second.message == "`identifier` is missing here."
    assert find_findings("CASES = [dict(n=100)]\n", path) == ()
