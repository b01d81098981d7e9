"""A verdict in one line, for menus. It imports next to nothing, for an editor waits for it."""

from typing import TYPE_CHECKING

from kernel_lsp.report.units import count_text, interval_text, speedup_text

if TYPE_CHECKING:
    from kernel_lsp.judge.verdict import Verdict


def speedup_title(verdict: "Verdict") -> str:
    """`1.42x faster (95 % CI 1.40-1.44), 4 cases, verified on NVIDIA H200`; what was not timed says its outcome.

    Before its final checks a gain is said to be measured, not verified.
    """
    if verdict.speedup is None:
        return verdict.verdict
    cases = count_text(len(verdict.cases), "case")
    device = verdict.evidence.device
    where = f", {'measured' if _is_pending(verdict) else 'verified'} on {device.name}" if device else ""
    return f"{short_title(verdict)}, {cases}{where}"


def short_title(verdict: "Verdict") -> str:
    """`1.42x faster (95 % CI 1.40-1.44)`, for where there is less room."""
    if verdict.speedup is None or verdict.interval is None:
        return verdict.verdict
    return f"{brief_title(verdict)} (95 % CI {interval_text(verdict.interval)})"


def brief_title(verdict: "Verdict") -> str:
    """`1.42x faster`, where a click shows how sure that is; with `, confirmed, final checks under way` until then."""
    if verdict.speedup is None:
        return verdict.verdict
    pending = ", confirmed, final checks under way" if _is_pending(verdict) else ""
    return f"{speedup_text(verdict.speedup)} {'faster' if verdict.speedup >= 1 else 'as fast'}{pending}"


def _is_pending(verdict: "Verdict") -> bool:
    from kernel_lsp.judge.final import FinalChecks

    return verdict.evidence.final_checks is FinalChecks.UNDER_WAY
