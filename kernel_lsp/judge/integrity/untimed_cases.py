"""Check that a candidate is not slow on cases that are too short to be timed."""

from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure.cases import TimedCase, prepare, run_segment, segment_us
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage


async def slow_where_untimed(
    harness: Harness, baseline: Subject, candidate: Subject, cases: Sequence[TimedCase]
) -> Ruling | None:
    """Return the ruling on a candidate that takes much longer than the baseline on a case that is not timed."""
    for case in cases:
        once = replace(case, launches=policy.UNTIMED_CASE_LAUNCHES, buffers=1, mode="cold")
        least: list[float] = []
        for subject in (baseline, candidate):
            await prepare(harness, subject, [once])
            least.append(min([segment_us(await run_segment(subject, once)) for _ in range(3)]))
            await harness.unbind(subject, once.names[0])
        if least[1] > policy.UNTIMED_CASE_FACTOR * least[0] + policy.UNTIMED_CASE_SLACK_US:
            return Ruling(
                Outcome.NOT_WORTH_IT,
                Stage.TIMED,
                f"faster on the cases that are timed, but on case {harness.cases[case.draw.case]} a launch takes "
                f"{least[1]:,.1f} us where the baseline's takes {least[0]:,.1f} us",
            )
    return None
