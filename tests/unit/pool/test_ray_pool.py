"""A pool on a real cluster of Ray's: nodes and drivers die, tokens are wrong, tasks kill their lanes."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from kernel_lsp.store.store import open_store
from tests.served_model.scale import write_scale
from tests.unit.check import check_support as kernels
from tests.unit.learn.policy_on_a_pool import RESULTS
from tests.unit.learn.test_cheats_earn_nothing import RANDOM
from tests.unit.pool.ray_cluster import RayCluster, needs_ray
from tests.unit.refine import test_sweeps_by_turns as sweeps

pytestmark = [*needs_ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
CANDIDATES = ROOT / "tests/kernelbench/candidates"
TAKEN = ("12.1", "19.4", "19.7", "22.1", "25.1", "26.2", "30.1", "48.1", "53.0", "53.1", "21.0")
CRASH = "*static_cast<volatile int*>(nullptr) = 1;"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with RayCluster(folder) as cluster:
        yield cluster


def bench(cluster: RayCluster, pool: str, ledger: str = "ledger.jsonl", **changes: str):
    problems = str(ROOT / "tests/fixtures/kernelbench")
    given = ("--root", problems, "--candidates", "candidates", "--no-compiled", "--ledger", ledger, "--pool", pool)
    return cluster.command("bench", "kernelbench", *given, **changes)


def lines(cluster: RayCluster, ledger: str = "ledger.jsonl") -> list[dict]:
    file = cluster.folder / ledger
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_candidates(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for taken in TAKEN:
        number, sample = taken.split(".")
        shutil.copy(CANDIDATES / f"level_1_problem_{number}_sample_{sample}_kernel.py", folder)
    honest = (CANDIDATES / "level_1_problem_25_sample_0_kernel.py").read_text()
    crashing = honest.replace("a = a.contiguous();", CRASH)
    assert CRASH in crashing
    (folder / "level_1_problem_25_sample_9_kernel.py").write_text(crashing)


@pytest.mark.thorough
def test_nobody_joins_without_the_token_and_nothing_listens_elsewhere(cluster):
    write_candidates(cluster.folder / "candidates")
    there = f"ray://{cluster.address}"
    runs = {
        "does not take this user's token": bench(cluster, there, RAY_AUTH_TOKEN="a wrong token, also long enough"),
        "has no token for the pool": bench(cluster, there, RAY_AUTH_TOKEN="", RAY_AUTH_MODE="disabled"),
        "Nobody answers at 127.0.0.1:1": bench(cluster, "ray://127.0.0.1:1"),
    }
    for words, run in runs.items():
        said, complaints = run.communicate(timeout=120)
        assert (run.returncode, said) == (2, ""), complaints
        assert words in complaints
        assert len(complaints.splitlines()) == 2, complaints
    assert not lines(cluster)
    assert {address for pid in cluster.pids() for address in listening(pid)} == {"127.0.0.1"}


@pytest.mark.thorough
def test_a_cluster_that_asks_for_no_token_is_refused(tmp_path):
    with RayCluster(tmp_path, token="") as open_to_all:
        write_candidates(tmp_path / "candidates")
        run = bench(open_to_all, f"ray://{open_to_all.address}", RAY_AUTH_TOKEN="a token that nobody asks for")
        said, complaints = run.communicate(timeout=300)
    assert (run.returncode, said) == (3, ""), complaints
    assert "does its Ray ask for a token?" in complaints
    assert not lines(open_to_all)


def test_a_late_machine_joins_and_a_task_that_kills_its_lanes_is_given_up_alone(cluster):
    (cluster.folder / "errands").mkdir()
    (cluster.folder / "msgspec.py").write_text("raise SystemExit('the driver looked where it was called')")
    asked = ("meet1", "die", "meet2", "break", "unfit", "plain1", "plain2")
    run = cluster.python("-m", "tests.unit.pool.synthetic", f"ray://{cluster.address}", "errands", *asked)
    cluster.add()
    said, complaints = run.communicate(timeout=400)
    assert run.returncode == 0, complaints
    found = json.loads(said)
    assert sorted(done["name"] for done in found["done"]) == ["meet1", "meet2", "plain1", "plain2", "unfit"]
    lanes = {done["name"]: done["lane"] for done in found["done"]}
    assert lanes["meet1"] != lanes["meet2"]
    assert sorted(found["failed"]) == ["break", "die"]
    [(unfit, words)] = [one for one in found["said"] if one[1].startswith("left alone")]
    assert words == "left alone for 30 s: others keep it busy, 60 % of the time"
    assert (cluster.folder / "errands/unfit.tries").read_text().split()[0] == unfit != lanes["unfit"]
    assert "was lost" in found["failed"]["die"]
    tries = {name: len((cluster.folder / f"errands/{name}.tries").read_text().split()) for name in asked}
    assert (tries["die"], tries["break"], tries["plain1"]) == (3, 2, 1)
    assert all(str(cluster.folder) not in done["path"] for done in found["done"]), "its modules would be ours"


@pytest.mark.thorough
def test_every_task_has_one_verdict_though_a_machine_and_the_driver_die(cluster):
    write_candidates(cluster.folder / "candidates")
    node = cluster.add()
    there = f"ray://{cluster.address}"
    first = bench(cluster, there)
    wait_for(lambda: len({line["where"]["lane"] for line in lines(cluster)}) > 1 or len(lines(cluster)) > 3, first)
    cluster.kill(node)
    before = len(lines(cluster))
    wait_for(lambda: len(lines(cluster)) > before + 1, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    kept = lines(cluster)
    assert len(kept) < len(TAKEN) + 1, "there was work left"
    here, again = bench(cluster, "local", "local.jsonl"), bench(cluster, there)
    for run in (here, again):
        _, complaints = run.communicate(timeout=400)
        assert run.returncode == 0, complaints
    found = lines(cluster)
    assert found[: len(kept)] == kept
    assert len(found) == len({line["key"] for line in found}) == len(TAKEN) + 1
    assert verdicts(found) == verdicts(lines(cluster, "local.jsonl"))
    assert [line["eager"]["verdict"] for line in found if line["index"] == 9] == ["RUN_FAILED"]
    assert {line["where"]["lane"] for line in lines(cluster, "local.jsonl")} == {"emulator"}


def test_a_sweep_judged_on_a_cluster_is_the_sweep_that_this_machine_judges(cluster):
    for pool in ("local", f"ray://{cluster.address}"):
        (folder := cluster.folder / f"sweep_{pool[:3]}").mkdir()
        home = {"KERNEL_LSP_PATHS_DATA": str(folder / "home/data"), "KERNEL_LSP_JUDGE_FAMILIES": "normal"}
        turns = {"KERNEL_LSP_REFINE_TURNS": "3", "KERNEL_LSP_MODEL_PROFILE": "general"}
        names = []
        for n in (2, 3, 4):
            names.append(name := f"{folder.name}/scale_{n}.cu")
            (cluster.folder / name).write_text(sweeps.KERNEL.format(n=n))
            (folder / f"scale_{n}_workload.py").write_text(sweeps.WORKLOAD.format(n=n))
        for turn in (1, 2):
            asked = ("refine", "--turn-batch", f"{folder.name}/sweep", "--pool", pool, *(names if turn == 1 else ()))
            run = cluster.command(*asked, **home, **turns)
            said, complaints = run.communicate(timeout=300)
            assert run.returncode == 0, said + complaints
            if turn == 1:
                sweeps.answered(folder, turn)
    here, there = (sweeps.kept(cluster.folder / f"sweep_{name}") for name in ("loc", "ray"))
    assert here == there
    assert (len(here[0]), len(here[1])) == (3 * 4, 3)
    with open_store(cluster.folder / "sweep_ray/home/data") as store:
        lanes = [store.find_verdict(row.id)["evidence"]["where"]["lane"] for row in store.list_verdicts()]
    assert len(lanes) == 3
    assert all(lane.endswith("/0") for lane in lanes)


def test_a_folder_checked_on_a_cluster_is_what_this_machine_finds(cluster):
    wrong = kernels.KERNEL.replace("FACTOR *", "1 + FACTOR *")
    for name, text in (("right", kernels.KERNEL), ("wrong", wrong)):
        kernels.write_scale(cluster.folder / f"tree/{name}").write_text(text)
    home = {"KERNEL_LSP_JUDGE_FAMILIES": "normal"}
    found = {}
    for pool in ("local", f"ray://{cluster.address}"):
        data = {"KERNEL_LSP_PATHS_DATA": str(cluster.folder / f"check_{pool[:3]}")}
        run = cluster.command("check", "tree", "--json", "--pool", pool, **home, **data)
        said, complaints = run.communicate(timeout=300)
        assert run.returncode == 1, said + complaints
        found[pool[:3]] = [(file["path"], file["ok"], rules(file)) for file in json.loads(said)["files"]]
    assert found["loc"] == found["ray"]
    assert [(ok, rule) for _, ok, rule in found["ray"]] == [(True, []), (False, [("KL020", 3)])]


def test_a_policys_answers_are_judged_on_a_cluster(cluster):
    (folder := cluster.folder / "policy").mkdir()
    write_scale(folder).with_name("scale_workload.py").write_text(RANDOM)
    there = f"ray://{cluster.address}"
    run = cluster.python("-m", "tests.unit.learn.policy_on_a_pool", there, str(folder))
    said, complaints = run.communicate(timeout=400)
    assert run.returncode == 0, complaints
    found = json.loads(said)
    assert found["results"] == 2 * RESULTS
    assert {place["lane"].rpartition("/")[2] for place in found["where"]} == {"0"}
    assert len({place["pid"] for place in found["where"]}) > 1, "lanes rested between the steps"


def rules(file: dict) -> list[tuple]:
    return [(one["code"], one["line"]) for one in file["diagnostics"]]


def verdicts(found: list[dict]) -> dict[str, tuple]:
    return {
        line["key"]: (line["verdict"], line["eager"]["verdict"], line["cheat"], line["build_way"]) for line in found
    }


def wait_for(condition, run) -> None:
    until = time.monotonic() + 300
    while not condition():
        assert run.poll() is None, "it ended"
        assert time.monotonic() < until
        time.sleep(0.05)


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process listens for TCP."""
    try:
        links = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 - no file of any folder
    except OSError:
        return set()
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    ours = (row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links)
    return {".".join(str(byte) for byte in reversed(bytes.fromhex(address[-8:]))) for address in ours}
