"""The study of honest programs: what it judges, how it counts, and where public kernels come from."""

import ast
import hashlib
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from tests.bench.honest import summarise, tasks
from tests.bench.honest_programs import find_programs
from tests.wild.catalogue import Project, PublicFile, projects
from tests.wild.fetch import write

PROJECTS = projects()
KERNELS = [kernel for project in PROJECTS for kernel in project.kernels]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_every_project_pins_what_it_needs(project: Project) -> None:
    assert len(project.commit) == 40
    assert all(len(file.sha256) == 64 for file in project.files)
    assert all(len(folder.commit) == 40 for folder in project.folders)
    places = {file.place for file in project.files} | set(project.own.values())
    folders = {folder.place for folder in project.folders}
    for place in (place for kernel in project.kernels for place in kernel.places):
        assert place in places or not folders.isdisjoint(map(str, PurePosixPath(place).parents))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_workload_is_complete_and_knows_its_versions(kernel) -> None:
    text = kernel.workload.read_text()
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert {"inputs", "reference", "launch"} <= names
    assert len(kernel.places) in (1, len(kernel.versions))
    for version in kernel.versions:
        assert f"\nVERSION = {version}\n" in kernel.launch_text(version)
    if kernel.versions:
        assert f"\nVERSION = {kernel.versions[0]}\n" in text


def test_every_workload_belongs_to_a_project() -> None:
    known = {kernel.workload for kernel in KERNELS}
    assert set((Path(__file__).parents[1] / "wild" / "workloads").glob("*/*_workload.py")) == known


def test_there_are_at_least_forty_public_kernels_beside_the_tutorials() -> None:
    assert sum(not kernel.name.startswith("triton/") for kernel in KERNELS) >= 40


def test_programs_have_names_of_their_own_and_those_without_a_file_are_left_out(tmp_path: Path) -> None:
    programs = find_programs(None, None)
    assert len({program.name for program in programs}) == len(programs)
    assert {program.kind for program in programs} == {"example", "twin"}
    assert len(find_programs(tmp_path, None)) == len(programs)


def test_public_kernels_that_were_fetched_are_judged_by_version(tmp_path: Path) -> None:
    folder = tmp_path / "llm.c"
    folder.mkdir()
    (folder / "gelu_forward.cu").write_text("__global__ void kernel() {}\n")
    names = [program.name for program in find_programs(tmp_path, None) if program.kind == "public"]
    assert names == ["llm.c/gelu_forward itself", "llm.c/gelu_forward version 2"]


def test_tasks_hold_programs_of_one_baseline() -> None:
    programs = find_programs(None, None)
    made = tasks(programs, 2, ["rmsnorm "])
    assert [task["id"] for task in made] == ["round 1, twin rmsnorm", "round 2, twin rmsnorm"]
    assert all(name.startswith("rmsnorm ") for name in made[0]["numbers"])


def row(name: str, verdict: str, *, refused: bool = False) -> dict:
    return {
        "task": "round 1, public x",
        "number": name,
        "kind": "public",
        "verdict": verdict,
        "stage": "timed",
        "reason": "why",
        "refused": refused,
        "seconds": 1.0,
    }


def test_refusals_are_counted_and_told() -> None:
    lost = {"task": "round 1, public x", "number": "d", "failed": "its process ended"}
    figures = summarise([row("a", "SAME"), row("b", "WRONG", refused=True), row("c", "UNTIMED"), lost])
    assert (figures["judgements"], figures["refused"], figures["untimed"]) == (3, 1, 1)
    assert figures["refusals"] == ["b: WRONG, timed: why"]
    assert figures["by_kind"]["public"]["verdicts"] == {"SAME": 1, "WRONG": 1, "UNTIMED": 1}
    assert figures["not_judged"] == ["round 1, public x, d: its process ended"]


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    """A git directory with one file of four lines, and its commit."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "kernel.py").write_text("one\ntwo\nthree\nfour\n")
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return folder / ".git", said.stdout.strip()


def test_a_file_is_written_with_the_lines_that_a_run_gets(repository: tuple[Path, str], tmp_path: Path) -> None:
    directory, commit = repository
    content = hashlib.sha256(b"one\ntwo\nthree\nfour\n").hexdigest()
    file = PublicFile("kernel.py", "placed/kernel.py", content, ((1, 1), (3, 4)))
    project = Project("theirs", "somebody/theirs", commit, (file,), (), {}, (), (), ())
    entry = write(project, file, directory, tmp_path / "run")
    assert (tmp_path / "run" / entry["written"]).read_text() == "one\nthree\nfour\n"
    assert entry["lines"] == "1 to 1, 3 to 4"


def test_a_file_of_another_text_is_refused(repository: tuple[Path, str], tmp_path: Path) -> None:
    directory, commit = repository
    file = PublicFile("kernel.py", "kernel.py", "0" * 64, ())
    project = Project("theirs", "somebody/theirs", commit, (file,), (), {}, (), (), ())
    with pytest.raises(SystemExit, match="SHA-256"):
        write(project, file, directory, tmp_path / "run")
    assert not (tmp_path / "run").exists()
