"""`kernel-lsp judge`: judges whether candidates are right, and faster than the baseline."""

from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.cli.console import settings_for
from kernel_lsp.cli.options import Gpu, Json, Workload
from kernel_lsp.runner.ahead import begin_imports

app = typer.Typer(add_completion=False)


@app.command()
def judge(
    baseline: Annotated[Path, typer.Argument(help="The kernel file as it stands.")],
    candidates: Annotated[list[Path], typer.Argument(metavar="CANDIDATE...", help="Other versions of that file.")],
    workload: Workload = None,
    gpu: Gpu = None,
    json: Json = False,
) -> None:
    """Compile, verify and time each CANDIDATE against BASELINE, and say how it was found.

    The workload of BASELINE says which answers are right. CANDIDATE is called by the `launch` of its own
    CANDIDATE_workload.py beside it, which needs nothing else, or by that of the baseline's workload where it has none
    or --workload names one for all. The baseline is measured once; a candidate that breaks does not stop the others.
    Where BASELINE has several workloads, each candidate is judged with each of them; its own `launch` stands for that
    of BASELINE_workload.py.

    Ends with 0 when every candidate is right, faster or not; 1 when one is not; 2 when one cannot be used; 3 when this
    machine cannot time one.
    """
    settings = settings_for(baseline, gpu=gpu)
    begin_imports(settings)
    from kernel_lsp.cli.judging import judge_files  # takes as long as all before: workers import meanwhile

    judge_files(baseline, candidates, workload, settings, json=json)
