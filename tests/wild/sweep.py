"""Runs `check` and `facts` on others' kernel files, without a workload: `python -m tests.wild.sweep`.

Goes through the files of `sweep.toml`, at the commits that stand there. No GPU is needed. Prints a table in Markdown,
one line for each file; the last line sums up. Ends with 1 where a command printed a traceback.

Options: --mirrors DIR with copies of repositories, `OWNER+NAME/repo` each, which are read in place of the network;
--only PROJECT, several times for several; --record writes each line into the table of README.md beside this file, in
place of an older one. With PATH..., kernel files or folders of them, these are gone through instead, at most --most N
of each folder.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.errors import SourceError
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import base_name
from tests.wild.fetch import git, git_directory

_CATALOGUE = Path(__file__).with_name("sweep.toml")
_README = Path(__file__).with_name("README.md")
_MARKS = ("<!-- table of the sweep -->", "<!-- end of the table -->")
_HEAD = "| file | kernels | built | facts | check | seconds | what failed and why |\n|---|---|---|---|---|---|---|"
_BROKEN = "a traceback"
_SECONDS = 600.0  # for one file in a command


@dataclass(frozen=True)
class Row:
    """What came of one file.

    Attributes:
        file: its name in the table.
        kernels: how many there are.
        built: how many of them `check` made machine code of.
        with_facts: how many of them `facts` has figures for.
        check: how `check` ended.
        facts_ended: the exit code of `facts`.
        seconds: of the check of this file, and of the command `facts` after it.
        traceback: whether one of them printed one.
        why: what was said first of the kernels without facts.
    """

    file: str
    kernels: int
    built: int
    with_facts: int
    check: str
    facts_ended: int
    seconds: float
    traceback: bool
    why: str

    @property
    def line(self) -> str:
        """As a row of the table."""
        ended = _BROKEN if self.traceback else self.check
        cells = (self.file, self.kernels, self.built, self.with_facts, ended, f"{self.seconds:.1f}", self.why)
        return f"| {' | '.join(str(cell) for cell in cells)} |"


@dataclass(frozen=True)
class Repository:
    """A public repository, or what is taken of it: `folders` whole, of which `files` are gone through.

    `environment` are variables that its code wants to have.
    """

    name: str
    repository: str
    commit: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    environment: dict[str, str]


def repositories() -> tuple[Repository, ...]:
    """Those of `sweep.toml`, in its order."""
    content = tomllib.loads(_CATALOGUE.read_text())
    return tuple(
        Repository(
            name,
            one["repository"],
            one["commit"],
            tuple(one["folders"]),
            tuple(one["files"]),
            one.get("environment", {}),
        )
        for name, one in content.items()
    )


@dataclass(frozen=True)
class Batch:
    """Files that are checked by one command.

    Attributes:
        files: their paths by their names in the table.
        variables: of the environment, that they want.
        kept: for builds and results, empty at first: what an earlier state of the tool found is of no interest.
    """

    files: dict[str, Path]
    variables: dict[str, str]
    kept: Path


def public_files(folder: Path, mirrors: Path | None, only: list[str]) -> Iterator[Batch]:
    """Put the repositories below a folder, one after another, and return the files of each.

    Raises:
        SystemExit: a repository cannot be had.
    """
    for one in repositories():
        if only and one.name not in only:
            continue
        place = folder / "files" / one.name
        taken = git(git_directory(one, mirrors, folder), "archive", one.commit, *one.folders)
        with tarfile.open(fileobj=io.BytesIO(taken)) as archive:
            archive.extractall(place, filter="data")
        yield Batch({f"{one.name}: {file}": place / file for file in one.files}, one.environment, folder / "kept")


def kernel_lsp(
    batch: Batch, *arguments: str, files: int = 1, folder: Path | None = None
) -> tuple[int, str, str, float]:
    """How a command in a folder ended, what it printed on each of its outputs, and its seconds; -1 where it came to no
    end.
    """
    variables = batch.variables
    passed = {"KERNEL_LSP_RUNNER_ENVIRONMENT": ",".join(variables)} if variables else {}
    paths = {f"KERNEL_LSP_PATHS_{kind}": str(batch.kept / kind) for kind in ("CACHE", "DATA")}
    environment = os.environ | variables | passed | paths
    command = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", *arguments]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=files * _SECONDS, check=False, env=environment, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return -1, "", "it came to no end", files * _SECONDS
    return done.returncode, done.stdout, done.stderr, time.perf_counter() - start


def rows_of(batch: Batch) -> Iterator[Row]:
    """Check all files of a batch, then ask for the facts of each."""
    paths = [str(path) for path in batch.files.values()]
    _, printed, complaints, _ = kernel_lsp(batch, "check", "--json", *paths, files=len(paths))
    reports = {one["path"]: one for one in _parsed(printed).get("files", [])}
    for name, path in batch.files.items():
        yield _row(name, path, reports.get(str(path), {}), batch, complaints)


def _row(name: str, path: Path, report: dict[str, Any], batch: Batch, complaints: str) -> Row:
    ended, facts, more, seconds = kernel_lsp(batch, "facts", "--json", str(path))
    built = (json.loads(facts) if facts.strip() else [{}])[0]
    kernels = frozenset(kernel.name for kernel in find_kernels(path.read_text(errors="replace"), path))
    errors = [d for d in report.get("diagnostics", []) if d["severity"] == "error"]
    with_facts = _among(kernels, built)
    said = [f"{one['kernel']}: {one['problem']}" for one in report.get("assumed", []) if not one["compiled"]]
    said += [f"line {d['line']}: {d['message']}" for d in errors]
    said += [] if report else (complaints or more).strip().splitlines()[-1:]
    said += [f"no facts of {', '.join(sorted(kernels - with_facts))}"] if kernels > with_facts and not said else []
    return Row(
        file=name,
        kernels=len(kernels),
        built=len(_among(kernels, report)),
        with_facts=len(with_facts),
        check=f"{len(errors)} errors" if errors else "no error" if report.get("ok") else "no report",
        facts_ended=ended,
        seconds=float(report.get("seconds", 0.0)) + seconds,
        traceback=any(re.search(r"^Traceback", text, re.MULTILINE) for text in (complaints, more)),
        why=said[0].replace(f"{path.parent}/", "").replace("|", "\\|").splitlines()[0][:160] if said else "",
    )


def _among(kernels: frozenset[str], report: dict[str, Any]) -> frozenset[str]:
    """Those of a file's kernels that a report has figures for."""
    figures = report.get("kernels") if "way" in report else report.get("resources")
    named = {base_name(one["name"]).rpartition("::")[2] for one in figures or ()}
    return frozenset(name for name in kernels if name.rpartition("::")[2] in named)


def _parsed(text: str) -> dict[str, Any]:
    return json.loads(text) if text.strip() else {}


def record(rows: Sequence[Row]) -> None:
    """Write rows into README.md, between the marks; those of other files of the catalogue stay as they are."""

    def merged(held: Sequence[str]) -> list[str]:
        lines = {line.split(" | ")[0].removeprefix("| "): line for line in held if line.startswith("| ")}
        lines |= {row.file: row.line for row in rows}
        wanted = [f"{one.name}: {file}" for one in repositories() for file in one.files]
        kept = [lines[name] for name in wanted if name in lines]
        commits = [f"- {one.name}: {one.repository}, {one.commit[:12]}" for one in repositories()]
        return [_HEAD, *kept, "", _summary(kept), "", *commits]

    write_table(_MARKS, merged)


def write_table(marks: tuple[str, str], merged: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Replace the lines of README.md between two marks by what `merged` makes of them."""
    before, mark, rest = _README.read_text().partition(marks[0])
    held, end, after = rest.partition(marks[1])
    _README.write_text("\n".join([f"{before}{mark}", *merged(held.splitlines()), f"{end}{after}"]))


def main() -> None:
    """Go through the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--most", type=int)
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        if asked.paths:
            try:
                found = [file.path for path in asked.paths for file in find_kernel_files([path])[: asked.most]]
            except SourceError as error:
                raise SystemExit(str(error)) from None
            above = os.path.commonpath([path.parent for path in found])
            named = {str(path.relative_to(above)): path for path in found}
            batches = iter([Batch(named, {}, Path(scratch) / "kept")])
        else:
            batches = public_files(Path(scratch), asked.mirrors, asked.only)
        print(_HEAD)
        rows: list[Row] = []
        for one in (row for batch in batches for row in rows_of(batch)):
            rows.append(one)
            print(one.line, flush=True)
            if asked.record:
                record(rows)
    print(f"\n{_summary([one.line for one in rows])}")
    raise SystemExit(any(one.traceback for one in rows))


def _summary(lines: Sequence[str]) -> str:
    """What holds of all rows together, Triton's and CUDA's apart."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    parts = [f"{len(cells)} files"]
    for language, suffixes in (("Triton", (".py",)), ("CUDA", (".cu", ".cuh"))):
        own = [row for row in cells if row[0].endswith(suffixes)]
        kernels, known = sum(int(row[1]) for row in own), sum(int(row[3]) for row in own)
        if kernels:
            share = f"{known / kernels:.0%}"
            parts.append(f"{known} of {kernels} {language} kernels ({share}) in {len(own)} files have facts")
    broken = sum(row[4] == _BROKEN for row in cells)
    return ", ".join([*parts, f"{broken} with a traceback"]) + "."


if __name__ == "__main__":
    main()
