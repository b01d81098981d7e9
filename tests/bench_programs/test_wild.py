"""Public kernels: how they are gathered, how mistakes are planted in them, and what is said of each."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.public_kernels import faults_of, summarise
from tests.wild import faults, fetch, sweep
from tests.wild.catalogue import FOLDER, Fault, Project, PublicFile, PublicFolder, PublicKernel, projects

KERNEL = '#include "loop.hpp"\nwait(full);\n'
LOOP = "void loop() {\n  wait(bar, tic);\n}\n"
IN_FILE = Fault("src/kernel.cu", "wait(full);", "", "KL060", 2)
IN_HEADER = Fault("src/loop.hpp", "wait(bar, tic);", "wait(bar, toc);", "KL018", 2)
MEND = Fault("src/kernel.cu", "wait(full);", "wait(full), wait(empty);", "", 0)
ELSEWHERE = Fault("src/other.hpp", "a", "b", "KL061", 1)


@pytest.fixture
def mirrors(tmp_path: Path) -> tuple[Path, str]:
    """A folder of mirrors with one repository, and its commit."""
    work, mirror = tmp_path / "work", tmp_path / "mirrors" / "somebody+theirs"
    (work / "src").mkdir(parents=True)
    (work / "src" / "kernel.cu").write_text(KERNEL)
    (work / "src" / "loop.hpp").write_text(LOOP)
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
        subprocess.run(["git", *arguments], cwd=work, check=True)
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, check=True, capture_output=True, text=True)
    mirror.mkdir(parents=True)
    (work / ".git").rename(mirror / "repo")
    return tmp_path / "mirrors", said.stdout.strip()


def project_at(commit: str, **others: Any) -> Project:
    given: dict[str, Any] = {"files": (), "folders": (), "own": {}, "options": (), "empty": (), "kernels": ()}
    return Project("theirs", "somebody/theirs", commit, **(given | others))


def kernel_with(*found: Fault) -> PublicKernel:
    return PublicKernel("theirs/kernel", ("src/kernel.cu",), Path("kernel_workload.py"), (), faults=found)


def test_files_folders_and_what_is_ours_come_into_one_folder(
    mirrors: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory, commit = mirrors
    content = hashlib.sha256(KERNEL.encode()).hexdigest()
    project = project_at(
        commit,
        files=(PublicFile("src/kernel.cu", "first.cu", content, ((2, 2),)),),
        folders=(PublicFolder("src", "headers", "somebody/theirs", commit),),
        own={"attention.cu": "headers/ours.cu"},
        options=("-DX",),
        empty=("package/__init__.py",),
    )
    theirs = tmp_path / "ours" / "theirs"
    theirs.mkdir(parents=True)
    (theirs / "attention.cu").write_text("ours\n")
    monkeypatch.setattr(fetch, "FOLDER", tmp_path / "ours")
    monkeypatch.setattr(fetch, "projects", lambda: (project,))
    run = tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["fetch", str(run), "--mirrors", str(directory)])
    fetch.main()
    files = {str(path.relative_to(run / "theirs")): path for path in (run / "theirs").rglob("*") if path.is_file()}
    (manifest,) = json.loads((run / "manifest.json").read_text())
    assert manifest["written"] == "theirs/first.cu"
    assert files["first.cu"].read_text() == "wait(full);\n"
    assert files["headers/loop.hpp"].read_text() == LOOP
    assert files["headers/ours.cu"].read_text() == "ours\n"
    assert files["package/__init__.py"].read_text() == ""
    assert files["pyproject.toml"].read_text() == '[tool.kernel-lsp]\nbuild.options = ["-DX"]\n'


def test_nothing_is_fetched_into_this_repository(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["fetch", str(FOLDER / "fetched")])
    with pytest.raises(SystemExit, match="outside"):
        fetch.main()


def test_a_folder_that_is_not_there_is_named(mirrors: tuple[Path, str], tmp_path: Path):
    directory, commit = mirrors
    part = PublicFolder("include", "include", "somebody/theirs", commit)
    with pytest.raises(SystemExit, match="include"):
        fetch.unpack(part, fetch.git_directory(part, directory, tmp_path), tmp_path / "run")


def test_each_fault_of_the_catalogue_is_in_a_file_that_a_kernel_needs():
    for project in projects():
        for kernel in project.kernels:
            for fault in kernel.faults:
                assert fault.old != fault.new, kernel.name
                assert bool(fault.code) == bool(fault.line), kernel.name


def test_a_fault_is_in_its_file_for_a_while(tmp_path: Path):
    path = tmp_path / "src" / "loop.hpp"
    path.parent.mkdir()
    path.write_text(LOOP)
    with faults.planted(IN_HEADER, tmp_path):
        assert path.read_text() == LOOP.replace("tic", "toc")
    assert path.read_text() == LOOP
    with pytest.raises(RuntimeError, match="checking failed"), faults.planted(IN_HEADER, tmp_path):
        raise RuntimeError("checking failed")
    assert path.read_text() == LOOP
    path.write_text("nothing like it\n")
    with pytest.raises(SystemExit, match="has no"), faults.planted(IN_HEADER, tmp_path):
        pass


def error(code: str, name: str, line: int) -> dict[str, Any]:
    return {"severity": "error", "code": code, "path": f"/somewhere/{name}", "line": line}


def test_rows_say_whether_each_fault_was_found_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "src"
    source.mkdir()
    (source / "kernel.cu").write_text(KERNEL)
    (source / "loop.hpp").write_text(LOOP)

    def checked(_kernel: PublicKernel, _version: int | None, path: Path, _kept: Path) -> tuple[dict[str, Any], float]:
        found: list[dict[str, Any]] = []
        if "wait(full)" not in path.read_text():
            found.append(error("KL060", "kernel.cu", 2))
        if "toc" in (source / "loop.hpp").read_text():
            found.append(error("KL018", "loop.hpp", 3))  # a line too late
        return {"diagnostics": found, "emulation": {"runs": [1, 2]}}, 1.0

    monkeypatch.setattr(faults, "_checked", checked)
    kernel = kernel_with(IN_FILE, IN_HEADER, MEND)
    rows = list(faults.rows_of(kernel, tmp_path, tmp_path))
    assert [row.good for row in rows] == [True, True, False, True]
    assert rows[0].line == "| theirs/kernel | kernel.cu as it is | right in 2 runs | 1.0 |"
    assert rows[1].said == "KL060 at line 2"
    assert rows[2].said == "NOT FOUND: KL018 at line 3 of loop.hpp"
    assert rows[3].said == "right in 2 runs"


def test_the_table_keeps_the_rows_of_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "README.md"
    first, last = faults._MARKS
    page.write_text(
        f"before\n{first}\n{faults._HEAD}\n| a/b | old | x | 1.0 |\n| c/d | kept | x | 1.0 |\n{last}\nafter\n"
    )
    monkeypatch.setattr(sweep, "_README", page)
    faults.record([faults.Row("a/b", "new", "right", 2.0, good=True)])
    assert page.read_text() == (
        f"before\n{first}\n{faults._HEAD}\n| a/b | new | right | 2.0 |\n| c/d | kept | x | 1.0 |\n{last}\nafter\n"
    )


def test_the_judge_gets_faults_of_the_file_and_of_headers_that_it_includes(tmp_path: Path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "loop.hpp").write_text(LOOP)
    kernel = kernel_with(IN_FILE, MEND, IN_HEADER, ELSEWHERE)
    found = dict(faults_of(kernel, source / "kernel.cu", KERNEL))
    assert found == {
        "KL060, line 2 of kernel.cu: `wait(full);` → ``": '#include "loop.hpp"\n\n',
        "KL018, line 2 of loop.hpp: `wait(bar, tic);` → `wait(bar, toc);`": "void loop() {\n  wait(bar, toc);\n}\n\n"
        "wait(full);\n",
    }


def test_a_bug_that_hangs_is_found():
    row = {"task": "a/b", "number": "bug 1", "label": "line 1", "verdict": "TIMED_OUT", "seconds": {"total": 1.0}}
    figures = summarise([row])
    assert (figures["bugs"], figures["bugs_wrong"]) == (1, 1)
