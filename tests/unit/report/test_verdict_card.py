import math

import pytest
import sample_verdicts as sample
from rich.console import Console

from kernel_lsp.judge.timing import Trace, TracedGroup
from kernel_lsp.judge.verdict import Check, CheckStatus, ErrorFigures, Outcome, Stage
from kernel_lsp.report.terminal import LOG_LINES, VerdictCard, verdict_style
from kernel_lsp.report.view import words
from kernel_lsp.report.view.parts import Tone
from kernel_lsp.report.view.words import tone_of


def shown(verdict, width=80) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(VerdictCard(verdict, "3f9a2c1e"), crop=False)
    return capture.get()


def test_the_answer_comes_first():
    lines = shown(sample.faster()).splitlines()
    assert lines[0] == "kernels/rmsnorm.cu"
    assert lines[1].strip() == "FASTER  1.25x (95 % CI 1.23-1.26)"
    assert lines[2] == "Faster in both cases and every check passed."
    assert lines[3] == "BLOCK 128 -> 256 · tuner · NVIDIA H200 · 3f9a2c1e"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verdict", [sample.faster(), sample.wrong(), sample.build_failed()])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(verdict, width):
    text = shown(verdict, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_each_case_with_its_ratio_interval_and_roofline():
    row = next(line for line in shown(sample.faster()).splitlines() if line.strip().startswith("rows=128"))
    assert " ".join(row.split()) == "rows=128 cols=8191 3.31 µs 3.02 µs 1.10x 1.08-1.11 61 % → 88 %"


def test_a_wide_terminal_also_says_how_it_was_timed():
    wide, narrow = (shown(sample.faster(), width) for width in (120, 80))
    assert "4,622 GB/s" in wide
    assert "12+10" in wide
    assert "GB/s   " not in narrow


def test_the_worst_input_family_stands_for_its_case():
    row = next(line for line in shown(sample.faster()).splitlines() if "outliers" in line)
    assert "2 → 2.5" in row
    assert "normal" not in row


def test_resources_before_and_after():
    lines = iter(shown(sample.faster()).splitlines())
    next(line for line in lines if line.startswith("rmsnorm_kernel<float, 256>"))
    row = next(lines)
    assert "40 → 32" in row
    assert "75 % → 100 %" in row
    assert "0 B → " not in row


def test_a_kernel_that_is_new_has_no_before():
    both = (sample.resources(), sample.resources(name="finish", registers=16))
    text = shown(sample.faster(evidence=sample.evidence(candidate_resources=both)))
    lines = iter(text.splitlines())
    next(line for line in lines if line.strip() == "finish")
    row = next(lines)
    assert "16" in row
    assert "→" not in row


def test_checks_done_and_skipped_with_the_reason():
    text = shown(sample.faster())
    assert "4 passed" in text
    assert "skipped   sanitizer  compute-sanitizer is not installed" in text


def test_checks_that_ended_alike_are_told_together():
    why = "the baseline itself fails on case n=1"
    checks = [Check(name=f"inputs: {family}", status=CheckStatus.PASSED) for family in ("normal", "large", "normal")]
    checks += [Check(name=name, status=CheckStatus.PASSED) for name in ("determinism", "new contents")]
    checks += [
        Check(name=f"inputs: {family}", status=CheckStatus.SKIPPED, detail=why, case="n=1")
        for family in ("tiny", "ties")
    ]
    text = shown(sample.faster(evidence=sample.evidence(checks=checks)))
    assert "5 passed  inputs: normal, large; determinism, new contents" in text
    assert f"skipped   inputs: tiny, ties  {why}" in text


def test_stages_that_took_no_time_are_left_out():
    assert "seconds   0.50 s · build 0.49 s\n" in "\n".join(
        line.rstrip()
        for line in shown(sample.faster(seconds={"parse": 4e-4, "build": 0.49, "total": 0.5})).splitlines()
    )


def test_a_wrong_candidate_shows_the_first_wrong_element():
    text = shown(sample.wrong())
    assert "output 0 at [3, 8190]" in text
    assert "128 of 1,048,448 elements" in text
    assert "Baseline" not in text


def test_errors_that_are_no_numbers_are_shown_without_a_plot():
    verdict = sample.wrong()
    figures = ErrorFigures(
        case="rows=4",
        family="large",
        baseline_max=1.5,
        baseline_rms=0.2,
        candidate_max=math.nan,
        candidate_rms=math.nan,
    )
    text = shown(verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update={"errors": (figures,)})}))
    assert "nan" in text


def test_a_failed_build_shows_the_beginning_of_its_log():
    text = shown(sample.build_failed())
    assert "identifier 'x20' is undefined" in text
    assert "identifier 'x21' is undefined" not in text
    assert f"and {40 - LOG_LINES} more lines" in text


def test_brackets_in_names_are_only_characters():
    text = shown(sample.faster(cases=(sample.case("dtype=[bold]"),)))
    assert "dtype=[bold]" in text


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_verdict_has_a_card(outcome):
    assert outcome.value in shown(sample.faster(verdict=outcome, stage=Stage.TIMED))


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_kernel_name_is_whole_and_its_figures_are_in_line(width):
    name = "ops::softmax_online<float, at::BFloat16, 256, ops::Vectorised<4>>"
    text = shown(sample.faster(evidence=sample.evidence(candidate_resources=(sample.resources(name=name),))), width)
    assert name in text


def test_settings_are_written_as_people_say_them():
    settings = {"delta": 0.01, "budget_ms": 300.0, "allow_slower_cases": False}
    evidence = sample.evidence(settings=settings)
    again = type(evidence).model_validate_json(evidence.model_dump_json())
    assert again == evidence
    assert "delta 0.01 · budget_ms 300 · allow_slower_cases no" in shown(sample.faster(evidence=again))


def test_no_fact_is_broken_in_two():
    lines = shown(sample.faster()).splitlines()
    for fact in ("memory copies 4,312 GB/s", "memory reads 4,487 GB/s", "1 block discarded"):
        assert any(fact in line for line in lines), fact


def test_the_commands_to_repeat_it_are_never_broken():
    path = "a/" + "very_" * 10 + "long_name.cu"
    lines = shown(sample.faster(evidence=sample.evidence(kernel_path=path))).splitlines()
    name = path.removeprefix("a/")
    assert "  kernel-lsp report 3f9a2c1e --sources 3f9a2c1e" in lines
    assert f"  kernel-lsp judge 3f9a2c1e/baseline/{name} 3f9a2c1e/candidate/{name}" in lines


def test_what_ran_on_the_gpu_is_shown_with_whose_it_was():
    def trace(*, timed: bool, own_us: float) -> Trace:
        own = TracedGroup(kind="kernel", name="void rms<4>(float*)", own=True, calls=4, us=own_us, streams=(7,))
        fill = TracedGroup(kind="memset", name="Memset (Device)", own=False, calls=4, us=8.0, streams=(7,))
        return Trace(
            case="rows=128 cols=8191",
            timed=timed,
            launches=4,
            span_us=500.0,
            own_share=1.0,
            baseline_own_share=1.0,
            claimed_us=30.0 if timed else None,
            groups=(own, fill),
            never_launched=("decoy",),
        )

    traces = (trace(timed=True, own_us=120.0), trace(timed=False, own_us=400.0))
    evidence = sample.evidence(traces=traces, xids=(31,))
    text = shown(sample.faster().model_copy(update={"evidence": evidence}), 120)
    row = next(line for line in text.splitlines() if "own kernels" in line)
    assert "own kernels 100 %" in row
    assert "rms<4> 30.0 µs" in " ".join(row.split())
    assert "Memset 2.00 µs" in " ".join(row.split())
    assert "never launched: decoy" in row
    assert "Xid 31" in text
    assert "What ran" not in shown(sample.faster())


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_tone_and_a_style(outcome: Outcome) -> None:
    assert outcome.is_failure or outcome in words._TONES, f"{outcome} has no tone in `_TONES` of report/view/words.py"
    assert (tone_of(outcome) is Tone.BAD) is outcome.is_failure
    assert verdict_style(outcome)
