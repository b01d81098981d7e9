"""A bench as a table, as JSON and as a page."""

import json
import shutil
import subprocess

import pytest
from rich.console import Console

from kernel_lsp.bench.plan import BenchJob, BenchPlan
from kernel_lsp.bench.run import BenchProgress
from kernel_lsp.bench.totals import add_up
from kernel_lsp.judge.verdict import Outcome, Stage, Where
from kernel_lsp.report.bench import bench_json, bench_view, totals_view
from kernel_lsp.report.bench_events import BenchEvents
from kernel_lsp.report.page.bench import bench_page
from kernel_lsp.workload.suite import ProblemFile, Sample
from tests.unit.bench.bench_results import comparison, published, result, wrong

EVIL = "</script><script>alert('x')</script>"


def stand(tmp_path, *results, troubles=None) -> BenchProgress:
    problem = ProblemFile(1, 19, tmp_path / "19_ReLU.py")
    jobs = tuple(BenchJob(problem, Sample(1, 19, "", n, tmp_path / "a.py"), "", r.key) for n, r in enumerate(results))
    progress = BenchProgress(BenchPlan(jobs, ()), {r.key: r for r in results}, troubles or {})
    progress.judged = len(results)
    return progress


def printed(what, width=150) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def several(tmp_path) -> BenchProgress:
    illegal = comparison(Outcome.ILLEGITIMATE, None, Stage.LEGITIMATE)
    return stand(
        tmp_path,
        result("a", compiled=comparison(Outcome.SLOWER, 0.9), published=published()),
        wrong("b", index=1, published=published(correct=False)),
        result("c", index=2, eager=illegal, cheat="host code", published=published()),
        troubles={"level 1 problem 19 sample 3": "the GPU is gone"},
    )


def test_the_table_has_a_line_for_each_candidate_and_the_sums(tmp_path):
    progress = several(tmp_path)
    text = printed(totals_view(progress, add_up(progress.in_order, 3, 60.0)))
    assert "1.50x 1.47-1.53" in text
    assert "0.90x 0.88-0.92" in text
    assert "right 2.00x" in text
    for line in (
        "3: 1 FASTER, 1 WRONG, 1 ILLEGITIMATE",
        "1 (33 %)",
        "0: 33 %, 0.5: 33 %, 0.8: 33 %, 1: 33 %, 1.5: 0 %, 2: 0 %",
        "1 host code",
        "2 agree; 1 right only by KernelBench, 0 only here",
        "verdicts a minute      3.0",
        "not judged level 1 problem 19 sample 3: the GPU is gone",
    ):
        assert line in text, line


def test_the_live_view_says_what_each_lane_does(tmp_path):
    progress = several(tmp_path)
    progress.doing = {"GPU 0": "level 1 19_ReLU: judging sample 4", "GPU 1": "done"}
    text = printed(bench_view(progress), 100)
    assert "3 of 3" in text
    assert "GPU 0  level 1 19_ReLU: judging sample 4" in text
    assert "1 WRONG, 1 ILLEGITIMATE, 1 could not be judged" in text
    assert max(map(len, text.splitlines())) <= 100


def test_of_very_many_lanes_those_in_trouble_are_shown(tmp_path):
    progress = several(tmp_path)
    progress.doing = {f"GPU {n}": "judging" for n in range(40)} | {"GPU 33": "left alone for 30 s: it is slowed down"}
    text = printed(bench_view(progress), 100)
    assert "GPU 33  left alone for 30 s" in text
    assert "and 24 more lanes" in text
    assert text.count("GPU ") == 16


def test_events_say_what_is_new_and_nothing_twice(tmp_path):
    written: list[str] = []
    tell = BenchEvents(written.append)
    progress = stand(tmp_path, result("a"))
    tell(progress)
    assert written == [], "it was in the ledger"
    progress.doing["GPU 0"] = "judging sample 1"
    tell(progress)
    where = Where(host="h", lane="GPU 0", gpu="GPU-1", pid=1)
    progress.results["b"] = wrong("b", index=1, where=where)
    progress.troubles["level 1 problem 19 sample 3"] = "the GPU is gone"
    tell(progress)
    tell(progress)
    lane, verdict, trouble = map(json.loads, written)
    assert (lane["event"], lane["lane"], lane["doing"]) == ("lane", "GPU 0", "judging sample 1")
    assert (verdict["event"], verdict["sample"], verdict["verdict"], verdict["lane"]) == (
        "verdict",
        1,
        "WRONG",
        "GPU 0",
    )
    assert (verdict["done"], verdict["of"]) == (2, 1)
    assert (trouble["event"], trouble["reason"]) == ("trouble", "the GPU is gone")


def test_a_narrow_terminal_gets_one_line_for_each(tmp_path):
    progress = several(tmp_path)
    lines = printed(bench_view(progress), 80).splitlines()
    assert sum("19_ReLU" in line for line in lines) == 3


def test_json_has_totals_results_and_troubles(tmp_path):
    progress = several(tmp_path)
    said = json.loads(bench_json(progress, add_up(progress.in_order)))
    assert said["totals"]["correct"] == 1
    assert [r["eager"]["verdict"] for r in said["results"]] == ["FASTER", "WRONG", "ILLEGITIMATE"]
    assert said["troubles"] == {"level 1 problem 19 sample 3": "the GPU is gone"}


def test_a_page_shows_a_strangers_text_as_text(tmp_path):
    reason = comparison().model_copy(update={"reason": EVIL})
    progress = stand(tmp_path, result("a", eager=reason))
    page = bench_page(progress, add_up(progress.in_order), "KernelBench: runs/first")
    assert EVIL not in page
    assert "&lt;/script&gt;" in page
    assert "src=" not in page.split("<main>")[1].split("</main>")[0]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_draws_the_plots_and_needs_nothing_else(tmp_path):
    progress = several(tmp_path)
    file = tmp_path / "bench.html"
    file.write_text(bench_page(progress, add_up(progress.in_order, 3, 60.0), "KernelBench: runs/first"))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    command += ["--enable-logging=stderr", "--v=0"]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    for plot in ("speedups", "fast"):
        drawn = done.stdout.split(f'id="plot-{plot}"')[1].split("</figure>")[0]
        assert "<svg" in drawn, plot
    assert "1 19_ReLU" in done.stdout
    assert "CONSOLE" not in done.stderr, "the page's policy refuses nothing of its own, and its script ends"


def test_a_page_without_times_has_no_plots(tmp_path):
    untimed = comparison(Outcome.UNTIMED, None, Stage.CORRECT)
    progress = stand(tmp_path, result("a", eager=untimed, gpu=None))
    page = bench_page(progress, add_up(progress.in_order), "KernelBench")
    assert 'id="plot-' not in page
    assert "on the emulator, untimed" in page
