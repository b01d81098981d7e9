"""Results for machines: JSON on standard output, in the shape of the records themselves."""

from typing import TYPE_CHECKING

from pydantic_core import to_json

from kernel_lsp.judge.verdict import Verdict

if TYPE_CHECKING:
    from kernel_lsp.refine.outcome import Refinement


def records_json(records: object) -> str:
    """Records, lists and mappings of them; figures that are not finite are texts, as JSON has none."""
    return to_json(records, indent=2, inf_nan_mode="strings").decode()


def verdict_json(verdict: Verdict) -> str:
    """One object with all fields of the verdict."""
    return verdict.model_dump_json(indent=2)


def refinement_json(found: "Refinement", diff: str) -> str:
    """One object: whether there is a variant and why, its verdict and diff, and what became of every candidate."""
    tried = [
        {
            "label": one.candidate.label,
            "origin": one.candidate.origin,
            "digest": one.candidate.digest,
            "verdict": one.feedback.verdict,
            "stage": one.feedback.stage,
            "ratio": one.feedback.ratio,
            "predicted_ratio": one.feedback.predicted,
            "interval": one.feedback.interval,
            "message": one.feedback.message,
            "facts": one.feedback.facts,
            "id": one.verdict.id if one.verdict else None,
        }
        for one in found.tried
    ]
    return records_json(
        {
            "found": found.best is not None,
            "reason": found.reason,
            "cancelled": found.cancelled,
            "seconds": found.seconds,
            "seconds_to_first": found.seconds_to_first,
            "verdict": found.best,
            "notes": found.notes,
            "diff": diff,
            "tried": tried,
        }
    )
