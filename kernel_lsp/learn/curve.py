"""The record of a run of reinforcement learning: its batches, a line for each step, and the page of its audit.

`curve.jsonl` and `audit.html` are made anew of the batches after each step, so that a run that was killed and taken up
again has the same ones.
"""

import html
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_lsp.learn.curriculum import by_kernel, solved, spread
from kernel_lsp.learn.training import StepFigures, TrainingBatch, TrainingSample, step_folder
from kernel_lsp.refine.batch_files import write_whole

_SHOWN = 3  # answers of each kind on the page, for each step
_PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}pre{{background:#f4f4f4;padding:1em;
overflow:auto;white-space:pre-wrap}}h3{{font-size:1em}}</style>
<h1>{title}</h1>
<p>Of each step the answers with the highest score, and the strangest: cheats first, then those that the policy itself
thought least likely. Read them: what is paid for is what is learned. <code>kernel-lsp report ID</code> shows what a
verdict rests on.</p>
"""


def read_batches(folder: Path) -> list[TrainingBatch]:
    """Return the batches of a run, by step."""
    return [
        TrainingBatch.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted((folder / "batches").glob("*.json"))
    ]


def has_batch(folder: Path, step: int) -> bool:
    """Return True if the batch of a step was drawn and judged."""
    return _batch_file(folder, step).is_file()


def write_batch(folder: Path, batch: TrainingBatch) -> None:
    """Keep a batch, whole or not at all."""
    _write(_batch_file(folder, batch.step), batch.model_dump_json())


def write_curve(folder: Path, name: str) -> None:
    """Write `curve.jsonl` and `audit.html` of the steps that were learned from."""
    batches = [batch for batch in read_batches(folder) if step_folder(folder, batch.step).is_dir()]
    figures = {batch.step: read_figures(folder, batch.step) for batch in batches}
    lines = [json.dumps(_line(batch, figures[batch.step])) for batch in batches]
    _write(folder / "curve.jsonl", "".join(f"{line}\n" for line in lines))
    _write(folder / "audit.html", audit_page(name, batches))


def read_figures(folder: Path, step: int) -> StepFigures:
    """Return the figures of a step that was learned from."""
    return StepFigures.model_validate_json((step_folder(folder, step) / "figures.json").read_text(encoding="utf-8"))


def audit_page(name: str, batches: Sequence[TrainingBatch]) -> str:
    """Return the page with the best and the strangest answers of each step, the latest first."""
    parts = [_PAGE.format(title=f"Answers that {html.escape(name)} learned from")]
    for batch in reversed(batches):
        parts.append(f"<h2>Step {batch.step}</h2>")
        best = sorted(batch.samples, key=lambda one: -one.score)[:_SHOWN]
        odd = sorted((one for one in batch.samples if one not in best), key=_oddness)[:_SHOWN]
        for kind, some in (("Best", best), ("Strangest", odd)):
            parts += [_shown(kind, one) for one in some]
    return "\n".join(parts) + "\n"


def _batch_file(folder: Path, step: int) -> Path:
    return folder / "batches" / f"{step:05}.json"


def _line(batch: TrainingBatch, figures: StepFigures) -> Mapping[str, object]:
    by_turn: dict[int, list[TrainingSample]] = {}
    for one in batch.samples:
        by_turn.setdefault(one.turn, []).append(one)
    mean = {turn: math.fsum(one.score for one in some) / len(some) for turn, some in sorted(by_turn.items())}
    paid = [one for one in batch.samples if one.score > 0]
    kernels = {
        kernel: {"solved": round(solved(group), 4), "spread": round(spread(group), 4)}
        for kernel, group in by_kernel(batch).items()
    }
    return {
        "step": batch.step,
        "model": batch.model,
        "answers": len(batch.samples),
        "unjudged": batch.unjudged,
        "canaries": batch.canaries,
        "score": [round(value, 6) for value in mean.values()],
        "results": dict(sorted(Counter(one.result for one in batch.samples).items())),
        "kernels": kernels,
        "paid": [{"evidence": one.evidence, "score": one.score} for one in paid],
        "seconds": round(batch.seconds, 2),
        "drawing_seconds": round(batch.drawing_seconds, 2),
        "judging_seconds": round(batch.judging_seconds, 2),
        **figures.model_dump(),
    }


def _oddness(sample: TrainingSample) -> tuple[float, float]:
    """Return a key by which cheats come first, then answers that were unlikely, token by token."""
    return sample.score if sample.score < 0 else 0.0, math.fsum(sample.logprobs) / max(1, len(sample.logprobs))


def _shown(kind: str, one: TrainingSample) -> str:
    head = f"{kind}: {one.result}, score {one.score:.2f}, advantage {one.advantage:+.2f}, turn {one.turn + 1}"
    where = f"kernel {one.kernel[:12]}" + (f", verdict {one.evidence}" if one.evidence else "")
    texts = (head, f"{where}. {one.reason}".strip(), one.answer)
    title, about, answer = (html.escape(text) for text in texts)
    return f"<h3>{title}</h3><p>{about}</p><pre>{answer}</pre>"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
