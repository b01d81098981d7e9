"""Judges files of candidates and shows the verdicts, for `kernel-lsp judge`, which has read its arguments."""

import asyncio
from math import isfinite
from pathlib import Path

import typer
from rich.text import Text

from kernel_lsp.cli.console import err, opened_store, out, say_note, say_notices
from kernel_lsp.cli.main import CANNOT_JUDGE, FINDINGS, UNUSABLE
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import CannotJudgeError, RunnerError
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.several import CandidateFile, Judged, judge_each, read_entry
from kernel_lsp.judge.target import Target, make_targets
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.report.machine import verdict_json
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.units import interval_text
from kernel_lsp.report.verdicts import judged_view, verdicts_json, verdicts_table
from kernel_lsp.store.store import Store


def judge_files(
    baseline: Path, candidates: list[Path], workload: Path | None, settings: Settings, *, json: bool
) -> None:
    """Judge candidates in order, with each workload of the baseline or the named one, and show what was found.

    Raises:
        KernelLspError: the baseline or its workload cannot be used, or a lone candidate cannot be judged.
        typer.Exit: a candidate is not right, cannot be used or cannot be timed here.
    """
    targets = make_targets(baseline, workload=workload, problems=settings.kernelbench.root, folders=settings.workloads)
    several = len(targets) > 1
    entries = [
        [
            read_entry(target, path, own_launch=workload is None and (target.has_own_workload or not several))
            for path in candidates
        ]
        for target in targets
    ]
    alone = len(candidates) == 1 and not several
    if len(candidates) == 1 and entries[0][0].problem is not None:
        raise entries[0][0].problem
    with opened_store(settings) as store:
        judged = [
            one
            for target, versions in zip(targets, entries, strict=True)
            for one in asyncio.run(_judge(target, versions, settings, store, quiet=json or alone, name=several))
        ]
        if alone and judged[0].verdict is not None:
            verdict = judged[0].verdict
            if json:
                typer.echo(verdict_json(verdict))
            else:
                out.print(VerdictCard(verdict, store.short_id(verdict.id)), crop=False)
        elif json:
            typer.echo(verdicts_json(judged))
        elif not alone:
            names = {one.verdict.id: store.short_id(one.verdict.id) for one in judged if one.verdict}
            out.print(verdicts_table(judged, names))
        say_notices(store)
    if alone and judged[0].problem is not None:
        raise judged[0].problem
    if code := max(map(_exit_code, judged), key=(0, CANNOT_JUDGE, FINDINGS, UNUSABLE).index):
        raise typer.Exit(code)


async def _judge(
    target: Target, entries: list[CandidateFile], settings: Settings, store: Store, *, quiet: bool, name: bool
) -> list[Judged]:
    """Return the result of each candidate, in the given order; verdicts are stored, and shown unless `quiet`.

    With `name` the workload's path is printed first.
    """
    if name and not quiet:
        out.print(Text(f"with {target.workload.source.path}", "bold"))
    judged: dict[Path, Judged] = {}
    with err.status("building and measuring the baseline") as status:

        def begin(path: Path) -> None:
            which = "the candidate" if len(entries) == 1 else f"{path} ({len(judged) + 1} of {len(entries)})"
            status.update(f"building, running and checking {which}")

        def show(decision: Decision) -> None:
            speedup = decision.interval.speedup
            found = f": {interval_text((speedup.lower, speedup.upper))}x" if isfinite(speedup.upper) else ""
            status.update(f"timing, block {decision.blocks}{found}")

        def keep(one: Judged) -> None:
            judged[one.path] = one
            if one.verdict is not None:
                store.save_verdict(one.verdict.model_dump(mode="json"))
            if not quiet:
                out.print(judged_view(one, store.short_id(one.verdict.id) if one.verdict else ""))

        await judge_each(target, entries, settings, begin, keep, show, say=say_note)
    return [judged[entry.path] for entry in entries]


def _exit_code(judged: Judged) -> int:
    """Return the exit code for one candidate."""
    if judged.verdict is None:
        return CANNOT_JUDGE if isinstance(judged.problem, CannotJudgeError | RunnerError) else UNUSABLE
    if judged.verdict.verdict.is_failure:
        return FINDINGS
    return CANNOT_JUDGE if judged.verdict.verdict is Outcome.UNTIMED else 0
