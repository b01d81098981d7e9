"""The gain of a program stands in terminal, page, JSON and the view that editors show."""

import json

import sample_verdicts as sample
from rich.console import Console

from kernel_lsp.judge.program_gain import ProgramGain
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.machine import verdict_json
from kernel_lsp.report.page import verdict_page
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.view.verdict import verdict_view

GAIN = ProgramGain(
    program="train.py",
    function="rms_norm",
    weights=(0.75, 0.25),
    speedup=1.31,
    interval=(1.29, 1.33),
    share=0.11,
    whole=1.07,
    whole_interval=(1.06, 1.08),
)


def captured(gain: ProgramGain | None = GAIN) -> Verdict:
    return sample.faster(evidence=sample.evidence(program=gain))


def shown(verdict: Verdict) -> str:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(VerdictCard(verdict, "3f9a2c1e"), crop=False)
    return capture.get()


def test_a_gain_of_gpu_time_says_so():
    text = " ".join(shown(captured(GAIN.model_copy(update={"on_gpu": True}))).split())
    assert "In train.py: 1.07x (1.06-1.08), of its GPU time; the timed cases of `rms_norm` take 11.0 % of that." in text


def test_a_terminal_says_what_the_program_gains_and_of_which_time_that_is():
    text = " ".join(shown(captured()).split())
    assert "In train.py: 1.07x (1.06-1.08), of the host time in functions that launch kernels" in text
    assert "take 11.0 % of that, which is not GPU time" in text
    assert "`rms_norm` is 1.31x as fast (95 % CI 1.29-1.33)" in text
    assert "rows=4096 cols=4096 75.0 % 1.42x" in text


def test_page_and_editors_show_the_same_section():
    (section,) = [one for one in verdict_view(captured(), "3f9a2c1e").sections if one.name == "program"]
    assert section.title == "In train.py"
    assert section.brief
    assert "In train.py: 1.07x" in verdict_page(captured(), "3f9a2c1e")


def test_json_has_the_figures():
    said = json.loads(verdict_json(captured()))["evidence"]["program"]
    assert (said["share"], said["whole"], said["weights"]) == (0.11, 1.07, [0.75, 0.25])


def test_without_a_share_no_figure_of_the_program_is_shown():
    text = " ".join(shown(captured(GAIN.model_copy(update={"share": None, "whole": None}))).split())
    assert "1.31x as fast" in text
    assert "The capture does not say what share of train.py that is." in text
    assert "1.07x" not in text


def test_other_verdicts_have_no_such_section():
    names = [one.name for one in verdict_view(captured(None), "3f9a2c1e").sections]
    assert "program" not in names
