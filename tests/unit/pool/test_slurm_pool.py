"""A pool of SLURM's tasks; a small program stands in for `srun`, which starts them on this machine."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.check import check_support as kernels
from tests.unit.pool.ray_cluster import RayCluster, descendants, needs_ray

pytestmark = [*needs_ray, pytest.mark.timeout(300)]

SRUN = """#!/usr/bin/env python3
import signal, subprocess, sys, time
with open("{folder}/asked", "w") as file:
    file.write("\\n".join(sys.argv[1:]))
def start():
    return subprocess.Popen([*sys.argv[4:], "--num-cpus=1", "--num-gpus=0"])
tasks, ended = [start() for _ in range(int(sys.argv[1].split("=")[1]))], []
def end(*_):
    ended.append(True)
    for task in tasks:
        task.terminate()
signal.signal(signal.SIGTERM, end)
while any(task.poll() is None or task.poll() and not ended for task in tasks):
    for number, task in enumerate(tasks):
        if task.poll() and not ended:  # on a busy machine Ray gives a node up after 30 s, which cannot be set
            tasks[number] = start()
    time.sleep(0.2)
"""
REFUSED = "#!/bin/sh\necho 'srun: error: Unable to allocate resources: Invalid partition' >&2\nexit 1\n"


def check(cluster: RayCluster, srun: str):
    (programs := cluster.folder / "bin").mkdir(exist_ok=True)
    (programs / "srun").write_text(srun)
    (programs / "srun").chmod(0o755)
    changes = {"PATH": f"{programs}:{os.environ['PATH']}", "KERNEL_LSP_JUDGE_FAMILIES": "normal"}
    return cluster.command("check", "tree", "--json", "--pool", "slurm:2", **changes)


@pytest.fixture
def place(tmp_path: Path) -> RayCluster:
    """A folder with two kernels, and what runs commands there; its cluster is not started."""
    for name in ("one", "two"):
        kernels.write_scale(tmp_path / f"tree/{name}")
    return RayCluster(tmp_path, token="")


def test_tasks_of_slurm_are_lanes_and_end_with_the_command(place):
    run = check(place, SRUN.format(folder=place.folder))
    said, complaints = run.communicate(timeout=240)
    assert run.returncode == 0, complaints
    assert [file["ok"] for file in json.loads(said)["files"]] == [True, True]
    asked = (place.folder / "asked").read_text().splitlines()
    assert asked[:3] == ["--ntasks=2", "--gpus-per-task=1", "--export=ALL"]
    assert descendants(run.pid) == []
    assert not any("gcs_server" in words and str(place.environment["XDG_RUNTIME_DIR"]) in words for words in commands())


def test_what_slurm_refuses_is_said(place):
    run = check(place, REFUSED)
    said, complaints = run.communicate(timeout=120)
    assert (run.returncode, said) == (3, "")
    assert "`srun` has ended, so there are no lanes: srun: error: Unable to allocate resources" in complaints.replace(
        "\n", " "
    )


def commands() -> list[str]:
    """The command lines of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text())
        except OSError:
            continue
    return found
