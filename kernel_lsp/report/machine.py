"""Results for machines: JSON on standard output, in the shape of the records themselves."""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from pydantic_core import to_json

from kernel_lsp.check import FileReport
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.mutation_testing import Fate, FileStrength

if TYPE_CHECKING:
    from kernel_lsp.refine.outcome import Refinement


def records_json(records: object) -> str:
    """Records, lists and mappings of them; figures that are not finite are texts, as JSON has none."""
    return to_json(records, indent=2, inf_nan_mode="strings").decode()


def verdict_json(verdict: Verdict) -> str:
    """One object with all fields of the verdict."""
    return verdict.model_dump_json(indent=2)


def check_json(reports: Sequence[FileReport]) -> str:
    """One object: `ok`, and in `files` each report with its own `ok`."""
    return records_json(checked_files(reports))


def checked_files(reports: Sequence[FileReport]) -> dict[str, object]:
    """Return what `check_json` prints."""
    files = [
        {"ok": report.ok} | {each.name: getattr(report, each.name) for each in fields(report)} for report in reports
    ]
    return {"ok": all(report.ok for report in reports), "files": files}


def strength_json(reports: Sequence[FileStrength]) -> str:
    """One object: in `files` each report with its `score`, and `caught` and `counted` over all of them."""
    files = [{"score": one.score} | {each.name: getattr(one, each.name) for each in fields(one)} for one in reports]
    caught = sum(len(report.of(Fate.CAUGHT)) for report in reports)
    counted = caught + sum(len(report.of(Fate.SURVIVED)) for report in reports)
    return records_json({"caught": caught, "counted": counted, "files": files})


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
