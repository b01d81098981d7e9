"""`kernel-lsp bench kernelbench --propose` without a GPU, with a model that answers as it is told."""

import asyncio
import json
import os
import signal
from dataclasses import replace

import pytest

from kernel_lsp.bench.proposing import best_right
from kernel_lsp.bench.records import Search
from kernel_lsp.bench.totals import add_up
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine.outcome import Refinement, Tried
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.report.bench import bench_json, search_words, totals_view
from kernel_lsp.report.page.bench import bench_page
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from tests.host_header import with_host_header
from tests.served_model.talking import answered, fake_server
from tests.unit.bench.bench_results import result, wrong
from tests.unit.bench.kernelbench_command import CANDIDATES, Bench
from tests.unit.bench.test_bench_report import printed, stand

RECTIFIER = (CANDIDATES / "level_1_problem_19_sample_4_kernel.py").read_text()
ANSWER = f"```python\n{RECTIFIER}```\n\nOne program for each block of elements."
ASKED = ("--level", "1", "--problems", "19,25", "--write", "triton")
HERE = "candidates/level_1_problem_19_sample_0_kernel.py"


def bench_of(folder, socket, **settings) -> Bench:
    given = {
        "MODEL_ENDPOINT": f"unix:{socket}",
        "MODEL_NAME": "tiny",
        "MODEL_PROFILE": "general",
        "JUDGE_FAMILIES": "normal",
        "REFINE_UNTIMED": "true",
        "REFINE_TRAJECTORIES": "1",
        "REFINE_TURNS": "1",
    }
    given |= settings
    variables = {f"KERNEL_LSP_{name}": value for name, value in given.items()}
    return Bench(folder, "--propose", **variables)


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_what_is_right_is_a_candidate_and_a_search_that_is_killed_goes_on(tmp_path):
    async with fake_server() as server:
        bench = bench_of(tmp_path, server.socket)
        with_host_header(tmp_path / "cache/builds")

        def reply(body):
            return ["hang"] if "silu" in str(body["messages"]) else answered(ANSWER)

        server.reply = reply
        first = bench.start(*ASKED)
        await asyncio.wait_for(_asked(server, 2), 200)
        os.killpg(first.pid, signal.SIGKILL)
        await asyncio.to_thread(first.communicate)
        assert len(bench.lines()) == 1, "the first problem was searched, the second one was under way"
        assert (tmp_path / HERE).read_text() == RECTIFIER

        server.bodies.clear()
        server.reply = lambda _: answered(ANSWER)
        (tmp_path / HERE).unlink()
        code, said, results = await asyncio.to_thread(bench.run, *ASKED, "--html", "page.html")
        assert code == 0, said
        assert ["silu" in str(body["messages"]) for body in server.bodies] == [True]
        assert (tmp_path / HERE).read_text() == RECTIFIER
        assert [path.name for path in (tmp_path / "candidates").iterdir()] == [HERE.rpartition("/")[2]]
        assert {name: r["eager"]["verdict"] for name, r in results.items()} == {"1.19.0": "UNTIMED"}
        assert "correct 1 (50 %)" in said
        assert "fast_p, eager 0: 50 %" in said, "and no other p, for nothing was timed"
        assert (
            "no answer level 1 problem 25: nothing can be timed here, as this machine has no GPU: of 1 candidates"
            in said
        )
        assert "1 WRONG" in said
        out = json.loads((tmp_path / "out.json").read_text())
        assert [(s["number"], s["answer"] is None, s["outcomes"]) for s in out["searches"]] == [
            (19, False, {"UNTIMED": 1}),
            (25, True, {"WRONG": 1}),
        ]
        assert "Without an answer" in (tmp_path / "page.html").read_text()

        server.bodies.clear()
        lines = bench.lines()
        await asyncio.to_thread(bench.run, *ASKED)
        assert (server.bodies, bench.lines()) == ([], lines)


async def _asked(server, times: int) -> None:
    while len(server.bodies) < times:
        await asyncio.sleep(0.05)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "settings", "code", "words"),
    [
        ((), {"MODEL_ENDPOINT": "unix:/nowhere"}, 2, "/nowhere"),
        (("--strategy", "tuner-only"), {}, 2, "Only a model can write a kernel for a module"),
        (("--write", "triton"), {"MODEL_PROFILE": "kevin-32b"}, 2, "write CUDA, and Triton is asked for"),
        ((), {"REFINE_UNTIMED": "false"}, 3, "Nothing can be timed here, as this machine has no GPU."),
        (("--candidates", "candidates"), {}, 2, "Candidates are either there or searched for."),
    ],
)
def test_what_stands_in_the_way_is_said_before_anything_starts(tmp_path, arguments, settings, code, words):
    bench = bench_of(tmp_path, "/nowhere/else", **settings)
    process = bench.start(*arguments, real=False)
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == code, complaints
    assert words in " ".join(complaints.split())
    assert (said, bench.lines()) == ("", [])


def test_no_model_is_one_error(tmp_path):
    bench = bench_of(tmp_path, "")
    del bench.settings["KERNEL_LSP_MODEL_ENDPOINT"]
    process = bench.start(real=False)
    _, complaints = process.communicate(timeout=120)
    assert process.returncode == 2
    assert complaints.count("No model server") == 1


@pytest.mark.thorough
@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_a_search_whose_server_fails_is_repeated_by_the_next_call(tmp_path):
    async with fake_server() as server:
        server.reply = lambda _: ["die"]
        bench = bench_of(tmp_path, server.socket)
        code, said, results = await asyncio.to_thread(bench.run, "--level", "1", "--problems", "19")
    assert (code, results, bench.lines()) == (3, {}, [])
    assert "not judged level 1 problem 19: " in said
    assert "without a candidate 1 of 1 problems" in said
    assert "correct 0 (0 %)" in said


@pytest.mark.asyncio
async def test_a_file_from_elsewhere_is_left_alone(tmp_path):
    async with fake_server() as server:
        bench = bench_of(tmp_path, server.socket)
        (tmp_path / HERE).write_text("mine")
        process = bench.start(*ASKED)
        _, complaints = await asyncio.to_thread(process.communicate, timeout=120)
    assert process.returncode == 2
    assert "This file already exists" in complaints
    assert (tmp_path / HERE).read_text() == "mine"
    assert server.bodies == []


def tried(name: str, stage: Stage, outcome: Outcome, ratio: float | None) -> Tried:
    candidate = Candidate(Language.TORCH, SourceFile(CANDIDATES / "a.py", name), None, name, "model:tiny")
    return Tried(candidate, Feedback(stage, outcome, ratio))


def test_the_best_is_the_fastest_of_what_is_right():
    slow = tried("slow", Stage.TIMED, Outcome.SLOWER, 1.4)
    slower = tried("slower", Stage.TIMED, Outcome.SLOWER, 1.6)
    caught = [tried("caught", Stage.TIMED, Outcome.AMBIGUOUS, 0.2), tried("caught", Stage.CORRECT, Outcome.WRONG, None)]
    broken = tried("broken", Stage.BUILD, Outcome.BUILD_FAILED, None)
    assert best_right(Refinement(tried=[broken, slower, *caught, slow])) is slow
    assert best_right(Refinement(tried=[broken, *caught])) is None


def searched(number: int, answer: str | None, reason: str = "no variant is faster beyond doubt") -> Search:
    return Search(
        key=f"s{number}",
        level=1,
        number=number,
        problem=f"{number}_problem",
        model="tiny",
        answer=answer,
        origin="model:tiny" if answer else "",
        reason=reason,
        notes=("The server was gone.",),
        outcomes={"WRONG": 3},
        seconds=9.0,
        gpu="NVIDIA H200",
    )


def test_problems_without_an_answer_are_not_correct_in_any_share():
    totals = add_up([result("a"), wrong("b")], unanswered=2)
    assert (totals.candidates, totals.asked, totals.correct) == (2, 4, 1)
    assert totals.fast == {"0": 0.25, "0.5": 0.25, "0.8": 0.25, "1": 0.25, "1.5": 0.0, "2": 0.0}
    assert add_up([], unanswered=3).fast["1"] == 0.0
    assert add_up([result("a")], unanswered=1).fast_published["0"] is None


def test_reports_list_what_nothing_came_of(tmp_path):
    progress = stand(tmp_path, result("a"))
    progress.plan = replace(progress.plan, searches=(searched(19, "text"), searched(25, None)))
    totals = add_up(progress.in_order, unanswered=1)
    text = printed(totals_view(progress, totals))
    assert "no answer level 1 problem 25: no variant is faster beyond doubt; 3 WRONG; The server was gone." in text
    assert "no answer level 1 problem 19" not in text
    assert "1 (50 %)" in text
    assert "level 1 problem 25" in bench_page(progress, totals, "KernelBench: runs/new")
    assert [s["number"] for s in json.loads(bench_json(progress, totals))["searches"]] == [19, 25]
    assert search_words(searched(19, "text")).startswith("answered, no variant")
