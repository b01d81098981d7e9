"""Checks public kernels on the emulator, as they are and with mistakes planted: `python -m tests.wild.faults FOLDER`.

FOLDER is one that `python -m tests.wild.fetch FOLDER` has filled. Of the kernels there those are taken whose project
names faults. Each is checked with our workload, then once with each fault, which `check` must find at its line. No GPU
is needed. Prints a table in Markdown; ends with 1 where a kernel is not right, or a fault is not found.

Options: --only WORD in a kernel's name, several times for several; --record writes each line into the table of
README.md beside this file, in place of an older one.
"""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wild.catalogue import Fault, PublicKernel, kernels_in
from tests.wild.sweep import Batch, kernel_lsp, write_table

_MARKS = ("<!-- table of faults -->", "<!-- end of faults -->")
_HEAD = "| kernel | what is checked | what `check` says | seconds |\n|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """What `check` said of one version of a kernel.

    Attributes:
        kernel: its name.
        version: the fault that is planted, or that there is none.
        said: what was found.
        seconds: of the command, compiling included.
        good: False if it is not what should have been said.
    """

    kernel: str
    version: str
    said: str
    seconds: float
    good: bool

    @property
    def line(self) -> str:
        """As a row of the table."""
        return f"| {self.kernel} | {self.version} | {self.said} | {self.seconds:.1f} |"


def rows_of(kernel: PublicKernel, project: Path, kept: Path) -> Iterator[Row]:
    """Check each version of a kernel as it is, then with each fault."""
    of_file = dict(zip(kernel.places, kernel.versions, strict=False)) if len(kernel.places) > 1 else {}
    for place in kernel.places:
        report, seconds = _checked(kernel, of_file.get(place), project / place, kept)
        errors = _errors(report)
        found = {f"{code}:{line}" for code, _, line in errors}
        good = found == kernel.known and _has_run(report)
        yield Row(kernel.name, f"{Path(place).name} as it is", _state(report, errors), seconds, good)
    for fault in kernel.faults:
        path = project / (fault.file if fault.file in kernel.places else kernel.places[0])
        with planted(fault, project):
            report, seconds = _checked(kernel, of_file.get(fault.file), path, kept)
        errors = _errors(report)
        wanted = (fault.code, Path(fault.file).name, fault.line)
        good = wanted in errors if fault.code else not errors and _has_run(report)
        said = f"{fault.code} at line {fault.line}" if good and fault.code else _state(report, errors)
        what = f"{Path(fault.file).name}: `{' '.join(fault.old.split())}` → `{' '.join(fault.new.split())}`"
        yield Row(kernel.name, what.replace("|", "\\|"), said if good else f"NOT FOUND: {said}", seconds, good)


@contextlib.contextmanager
def planted(fault: Fault, project: Path) -> Generator[None]:
    """Have a file of a project with a fault within the context.

    Raises:
        SystemExit: the file does not have the text.
    """
    path = project / fault.file
    text = path.read_text()
    if fault.old not in text:
        raise SystemExit(f"{path} has no `{fault.old}`.")
    path.write_text(text.replace(fault.old, fault.new, 1))
    try:
        yield
    finally:
        path.write_text(text)


def _checked(kernel: PublicKernel, version: int | None, path: Path, kept: Path) -> tuple[dict[str, Any], float]:
    """Return the report of `check --json` on a version of a kernel with its workload, and the command's seconds."""
    workload = kernel.workload
    if version is not None:
        workload = kept / str(version) / kernel.workload.name
        workload.parent.mkdir(exist_ok=True)
        workload.write_text(kernel.launch_text(version))
    batch = Batch({kernel.name: path}, {}, kept)
    command = ("check", "--json", "--workload", str(workload), str(path))
    _, printed, complaints, seconds = kernel_lsp(batch, *command, folder=path.parent)
    report = (json.loads(printed) if printed.strip() else {}).get("files", [{}])[0]
    return report or {"diagnostics": [{"severity": "error", "message": complaints.strip()[-200:]}]}, seconds


def _errors(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return rule, file's name and line of each error."""
    return [
        (d.get("code") or "", Path(d.get("path", "")).name, d.get("line", 0))
        for d in report.get("diagnostics", [])
        if d["severity"] == "error"
    ]


def _state(report: dict[str, Any], errors: Sequence[tuple[str, str, int]]) -> str:
    """Return the outcome of a check in words."""
    if errors:
        return ", ".join(f"{code} at line {line} of {name}" for code, name, line in errors)
    emulation = report.get("emulation") or {}
    if lacking := emulation.get("needs_gpu"):
        return f"not run: {lacking['reason']} (line {lacking['line']} of {Path(lacking['path'] or '').name})"
    return f"right in {len(emulation.get('runs', []))} runs" if _has_run(report) else "it was not run"


def _has_run(report: dict[str, Any]) -> bool:
    return bool((report.get("emulation") or {}).get("runs"))


def record(rows: Sequence[Row]) -> None:
    """Write rows into README.md, between the marks; those of other kernels stay as they are."""
    checked = {row.kernel for row in rows}

    def merged(held: Sequence[str]) -> list[str]:
        kept = [line for line in held if line.startswith("| ") and line.split(" | ")[0][2:] not in checked]
        return [_HEAD, *sorted([line for line in kept if not line.startswith("| kernel |")] + [r.line for r in rows])]

    write_table(_MARKS, merged)


def main() -> None:
    """Check, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    rows: list[Row] = []
    print(_HEAD)
    with tempfile.TemporaryDirectory(prefix="faults-") as kept:
        for kernel, _ in kernels_in(asked.folder.resolve()):
            if kernel.faults and (not asked.only or any(word in kernel.name for word in asked.only)):
                project = asked.folder.resolve() / kernel.name.partition("/")[0]
                for row in rows_of(kernel, project, Path(kept)):
                    rows.append(row)
                    print(row.line, flush=True)
                if asked.record:
                    record(rows)
    raise SystemExit(not all(row.good for row in rows))


if __name__ == "__main__":
    main()
