"""`kernel-lsp judge`: is the candidate right, and is it faster than the baseline?"""

import asyncio
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.cli.console import Json, Workload, err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE, FINDINGS
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.report.machine import verdict_json
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.units import interval_text
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.spec import find_workload

app = typer.Typer(add_completion=False)

_FAILED = {Outcome.WRONG, Outcome.ILLEGITIMATE, Outcome.BUILD_FAILED, Outcome.RUN_FAILED, Outcome.TIMED_OUT}


@app.command()
def judge(
    baseline: Annotated[Path, typer.Argument(help="The kernel file as it stands.")],
    candidate: Annotated[Path, typer.Argument(help="Another version of that file.")],
    workload: Workload = None,
    json: Json = False,
) -> None:
    """Compile, verify and time CANDIDATE against BASELINE, and say how it was found.

    Ends with 0 when the candidate is right, faster or not; 1 when it is not; 3 when this machine cannot time it.
    """
    settings = settings_for(baseline)
    target = make_target(baseline, workload=workload, problems=settings.kernelbench.root)
    verdict = asyncio.run(_judge(target, _version(target, candidate, workload), settings))
    with opened_store(settings) as store:
        store.save_verdict(verdict.model_dump(mode="json"))
        if json:
            typer.echo(verdict_json(verdict))
        else:
            out.print(VerdictCard(verdict, store.short_id(verdict.id)), crop=False)
        say_notices(store)
    if verdict.verdict in _FAILED:
        raise typer.Exit(FINDINGS)
    if verdict.verdict is Outcome.UNTIMED:
        raise typer.Exit(CANNOT_JUDGE)


def _version(target: Target, path: Path, workload: Path | None) -> Candidate:
    """The candidate's text, with the launch of its own workload file if it has one and none was named for both."""
    source = read_source(path)
    if target.workload.problem:
        return target.answer(source, path.name, "user")
    own = find_workload(source) if workload is None else None
    if own is None or not own.has_launch or own.in_kernel_file:
        return target.version(source.text, path.name, "user")
    # Beside the workload its imports mean the same; from another folder it takes the workload's place.
    beside = own.source.path if own.source.path.parent.samefile(target.workload.source.path.parent) else None
    return target.version(source.text, path.name, "user", own.source.text, beside)


async def _judge(target: Target, candidate: Candidate, settings: Settings) -> Verdict:
    with err.status("building and measuring the baseline") as status:

        def show(decision: Decision) -> None:
            speedup = decision.interval.speedup
            found = f": {interval_text((speedup.lower, speedup.upper))}x" if isfinite(speedup.upper) else ""
            status.update(f"timing, block {decision.blocks}{found}")

        async with open_session(target, settings) as session:
            status.update("building, running and checking the candidate")
            return await session.judge(candidate, show)
