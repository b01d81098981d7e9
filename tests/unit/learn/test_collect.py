"""Datasets of what is in a store: what is kept and why not, the split, the card, and the command."""

import json
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.model import app
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn import dataset
from kernel_lsp.learn.collect import collect
from kernel_lsp.learn.dataset import is_held_out
from kernel_lsp.learn.prune import BestOf, Dropped, Keep, Rules
from kernel_lsp.store.store import open_store
from tests.unit.learn.made_up import answer, told
from tests.unit.store.test_store import verdict

FILES = ("train.jsonl", "held-out.jsonl", "README.md")


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for name in FILES[:2] for line in (folder / name).read_text().splitlines()]


def test_a_line_is_a_conversation_with_what_the_judge_found(store, project, tmp_path):
    told(store, project, "s", 2, before=["first"], answer="```\nx\n```")
    collect(store, tmp_path / "out", Rules(), 0.0)
    [line] = lines(tmp_path / "out")
    asked = ["make k faster", "first", "again"]
    assert [message["content"] for message in line["messages"]] == asked
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "user"]
    assert (line["answer"], line["reasoning"]) == ("```\nx\n```", "hm")
    assert (line["verdict"], line["speedup"], line["interval"]) == ("FASTER", 1.5, [1.4, pytest.approx(1.6)])
    assert line["evidence"] == verdict("s/2")["id"]
    assert (line["trajectory"], line["turn"], line["turns"]) == ("s", 2, 1)
    assert (line["gpu"], line["model"], line["profile"], line["file"]) == ("NVIDIA H200", "tiny", "general", "k.cu")
    assert str(project) not in json.dumps(line), "no path of this machine is in it"


def test_what_is_not_worth_learning_is_left_out_with_its_reason(store, project, tmp_path):
    cheat = answer(77)
    told(store, project, "a", 1, result="NOT_JUDGED")
    told(store, project, "b", 1, complete=False)
    told(store, project, "c", 1, result="ILLEGITIMATE", stage="legitimate", answer=cheat)
    told(store, project, "c", 2, before=[cheat])
    told(store, project, "d", 1, result="REJECTED")
    told(store, project, "e", 1, result="WRONG", stage="correct")
    told(store, project, "f", 1, result="BUILD_FAILED", stage="build", judged=False)
    told(store, project, "g", 1, result="AMBIGUOUS", judged=False, low=1.2)
    told(store, project, "h", 1, result="SLOWER", low=0.5)
    told(store, project, "i", 1, collect=False)
    told(store, project, "j", 1)
    store.append_turn("k", "c", prompt="[]", answer="of an older version")
    store.append_turn("l", "c", outcome={"result": "FASTER"})
    found = collect(store, tmp_path / "out", Rules(), 0.0)
    assert (found.train, found.turns) == (1, 12), "the tuner's own turn is none of a model"
    assert found.dropped == {
        Dropped.UNKNOWN: 1,
        Dropped.PRIVATE: 1,
        Dropped.UNJUDGED: 1,
        Dropped.CUT_OFF: 1,
        Dropped.CHEAT: 2,
        Dropped.FAILED: 3,
        Dropped.RACED: 1,
        Dropped.NOT_FASTER: 1,
    }
    assert collect(store, tmp_path / "out", Rules(Keep.RIGHT), 0.0).train == 2


def test_the_best_turn_of_each_trajectory_or_kernel_is_kept(store, project, tmp_path):
    for session, number, low in (("s", 1, 1.2), ("s", 2, 1.9), ("s", 3, 1.9), ("t", 1, 1.3)):
        told(store, project, session, number, low=low)
    told(store, project, "u", 1, kernel="m", low=1.1)

    def kept(best: BestOf) -> list[tuple[str, int]]:
        collect(store, tmp_path / "out", Rules(best=best), 0.0)
        return [(line["trajectory"], line["turn"]) for line in lines(tmp_path / "out")]

    assert kept(BestOf.TRAJECTORY) == [("s", 2), ("t", 1), ("u", 1)]
    assert kept(BestOf.KERNEL) == [("s", 2), ("u", 1)]
    assert len(kept(BestOf.ALL)) == 5


def test_of_answers_nearly_the_same_the_fastest_is_kept(store, project, tmp_path):
    twin = answer(5).replace("step_5_7();", "other();")
    told(store, project, "s", 1, answer=answer(5), low=1.2)
    told(store, project, "t", 1, answer=twin, low=1.4)
    told(store, project, "u", 1, answer=answer(5), kernel="m", low=1.1)
    found = collect(store, tmp_path / "out", Rules(), 0.0)
    assert found.dropped == {Dropped.NEAR_DUPLICATE: 1}
    assert [line["trajectory"] for line in lines(tmp_path / "out")] == ["t", "u"], "of another kernel it is no repeat"


def test_what_a_later_judge_rejects_counts_no_more(store, project, tmp_path):
    told(store, project, "s", 1)
    told(store, project, "t", 1)
    later = verdict("again", verdict="ILLEGITIMATE")
    later["evidence"] |= {"candidate_digest": "s/1", "baseline_digest": "k"}
    store.save_verdict(later)
    found = collect(store, tmp_path / "out", Rules(), 0.0)
    assert found.dropped == {Dropped.OVERTURNED: 1}
    assert [line["trajectory"] for line in lines(tmp_path / "out")] == ["t"]


def test_only_this_judges_verdicts(store, project, tmp_path):
    told(store, project, "s", 1, judge="old")
    told(store, project, "t", 1)
    assert collect(store, tmp_path / "out", Rules(judge="a" * 16), 0.0).dropped == {Dropped.OTHER_JUDGE: 1}


def test_a_project_can_opt_out_before_and_after(store, project, tmp_path):
    told(store, project, "s", 1)
    told(store, project, "t", 1, path=tmp_path / "private/deep/k.cu")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/pyproject.toml").write_text("[tool.kernel-lsp.learn]\ncollect = false\n")
    found = collect(store, tmp_path / "out", Rules(), 0.0)
    assert (found.train, found.dropped) == (1, {Dropped.PRIVATE: 1})


def test_kernels_are_held_out_whole_and_for_good(store, project, tmp_path):
    kernels = [f"k{n}" for n in range(60)]
    for number, kernel in enumerate(kernels):
        for turn in (1, 2):
            told(store, project, f"s{number}", turn, kernel=kernel)
    found = collect(store, tmp_path / "out", Rules(best=BestOf.ALL), 0.2)
    parts = [{json.loads(one)["kernel"] for one in (tmp_path / "out" / n).read_text().splitlines()} for n in FILES[:2]]
    assert not parts[0] & parts[1]
    assert [len(part) for part in parts] == [60 - found.held_out // 2, found.held_out // 2]
    assert 4 <= len(parts[1]) <= 20
    assert all(is_held_out(kernel, 0.3) for kernel in parts[1]), "a larger share holds out these, and more"
    assert not any(is_held_out(kernel, 0.0) for kernel in parts[1])


def test_the_card_says_what_is_in_it(store, project, tmp_path):
    (project / "LICENSE").write_text(
        "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy"
    )
    (project / "sub").mkdir()
    (project / "sub/own.cu").write_text("// SPDX-License-Identifier: Apache-2.0\n")
    told(store, project, "s", 1)
    told(store, project, "t", 1, path=project / "sub/own.cu", kernel="m")
    told(store, tmp_path, "u", 1, path="/nowhere/at/all.cu", kernel="n")
    told(store, project, "v", 1, result="REJECTED")
    collect(store, tmp_path / "out", Rules(), 0.0)
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("---\nconfigs:\n")
    for row in (
        *("| train.jsonl | 3 turns, 3 kernels |", "| held-out.jsonl | 0 turns, 0 kernels |", "| FASTER | 3 |"),
        *("| MIT | 1 |", "| Apache-2.0 | 1 |", "| unknown | 1 |", "| tiny (general) | 3 |", '| keep | "faster" |'),
        *("| NVIDIA H200 | 3 |", f"| {Dropped.FAILED} | 1 |", "| held_out | 0.0 |"),
    ):
        assert row in card
    assert Counter(line["licence"] for line in lines(tmp_path / "out")) == Counter(["MIT", "Apache-2.0", "unknown"])
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


def _collect_and_die(data: Path, folder: Path, files: int) -> None:
    """Collect, and be killed when so many files are written."""
    write, written = dataset._write, []

    def and_die(path: Path, text: str) -> None:
        if len(written) == files:
            path.with_name(f"{path.name}.draft").write_text(text[:20])
            os.kill(os.getpid(), signal.SIGKILL)
        written.append(path)
        write(path, text)

    dataset._write = and_die
    with open_store(data) as store:
        collect(store, folder, Rules(), 0.3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("files", [0, 1, 2])
@pytest.mark.parametrize("older", [False, True], ids=["anew", "over an older one"])
def test_killed_and_started_again_it_is_the_same(store, project, tmp_path, files, older):
    for number in range(20):
        told(store, project, f"s{number}", 1, kernel=f"k{number}")
    out, calm = tmp_path / "out", tmp_path / "calm"
    if older:
        collect(store, out, Rules(), 0.3)
    told(store, project, "later", 1, kernel="later")
    process = multiprocessing.get_context("spawn").Process(
        target=_collect_and_die, args=(tmp_path / "data", out, files)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (out / "README.md").exists(), "a dataset without a card is not whole"
    collect(store, out, Rules(), 0.3)
    collect(store, calm, Rules(), 0.3)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in calm.iterdir()
    }
    assert {path.name for path in out.iterdir()} == set(FILES)


def test_a_folder_of_something_else_is_left_alone(store, project, tmp_path):
    told(store, project, "s", 1)
    for name in ("notes.txt", "README.md"):
        folder = tmp_path / name[:4]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(ConfigurationError, match="something else than a dataset"):
            collect(store, folder, Rules(), 0.0)
        assert (folder / name).read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        collect(store, tmp_path / "file", Rules(), 0.0)


def test_nothing_to_keep(store, project, tmp_path):
    with pytest.raises(ConfigurationError, match="No model was asked in any search"):
        collect(store, tmp_path / "out", Rules(), 0.0)
    told(store, project, "s", 1, result="SLOWER", low=0.5)
    told(store, project, "t", 1, result="REJECTED")
    with pytest.raises(
        ConfigurationError, match=r"None of 2 turns.*1 rejected.*; 1 right but not faster.*--keep right"
    ):
        collect(store, tmp_path / "out", Rules(), 0.0)
    assert not (tmp_path / "out").exists()


def test_the_command(store, project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    told(store, project, "s", 1)
    told(store, project, "t", 1, result="SLOWER", low=0.5)
    run = ["collect", "out", "--from", str(tmp_path / "data")]
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    assert "1 of 2 turns on 1 kernels in out" in done.output
    assert "1  right but not faster" in done.output
    done = CliRunner().invoke(app, [*run, "--keep", "right", "--best", "all", "--json"])
    done_json = json.loads(done.output)
    assert (done_json["turns"], done_json["kernels"], done_json["dropped"]) == (2, 1, {})
    assert done_json["train"] + done_json["held_out"] == 2
    missing = CliRunner().invoke(app, ["collect", "out", "--from", "nowhere"])
    assert "There is no such folder" in str(missing.exception)
