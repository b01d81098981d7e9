"""Runs `check` and `facts` on kernel files as their authors have them: `python -m tests.wild.sweep PATH...`.

Each path is a kernel file, or a folder of them. No GPU is needed. Prints a table in Markdown: kernels, how many
of them have facts, how the two commands ended, and what was said first of those without; the last line sums up. Ends
with 1 where a command printed a traceback. Option: --most N files of each folder.
"""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.check import find_kernel_files
from kernel_lsp.check.places import base_name
from kernel_lsp.errors import SourceError
from kernel_lsp.source.files import find_kernels

_SECONDS = 600.0  # for one command


@dataclass(frozen=True)
class Row:
    """What came of one file: its kernels, those with facts, the ends of the commands, and why others have none."""

    file: str
    kernels: frozenset[str]
    with_facts: frozenset[str]
    check_ended: int
    facts_ended: int
    seconds: float
    traceback: bool
    why: str

    @property
    def line(self) -> str:
        """As a row of the table."""
        count = f"{len(self.with_facts)} of {len(self.kernels)}"
        return f"| {self.file} | {count} | {self.check_ended} | {self.facts_ended} | {self.seconds:.1f} | {self.why} |"


def kernel_lsp(*arguments: str) -> tuple[int, str, str]:
    """How a command ended, and what it printed on each of its outputs; -1 where it came to no end."""
    command = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return -1, "", "it came to no end"
    return done.returncode, done.stdout, done.stderr


def row(path: Path) -> Row:
    """Check a file and ask for its facts."""
    check_ended, printed, complaints = kernel_lsp("check", "--json", str(path))
    facts_ended, facts, more = kernel_lsp("facts", "--json", str(path))
    report = _parsed(printed).get("files", [{}])[0]
    built = (json.loads(facts) if facts.strip() else [{}])[0]
    text = path.read_text(errors="replace")
    kernels = frozenset(kernel.name for kernel in find_kernels(text, path))
    named = {base_name(kernel["name"]).rpartition("::")[2] for kernel in built.get("kernels", [])}
    why = [f"{one['kernel']}: {one['problem']}" for one in report.get("assumed", []) if not one["compiled"]]
    why += [f"line {d['line']}: {d['message']}" for d in report.get("diagnostics", []) if d["severity"] == "error"]
    said = why or ([] if report else complaints.strip().splitlines()[-1:])
    return Row(
        file=path.name,
        kernels=kernels,
        with_facts=frozenset(name for name in kernels if name.rpartition("::")[2] in named),
        check_ended=check_ended,
        facts_ended=facts_ended,
        seconds=float(report.get("seconds", 0.0)),
        traceback=any(re.search(r"^Traceback", text, re.MULTILINE) for text in (complaints, more)),
        why=said[0].replace("|", "\\|").splitlines()[0][:160] if said else "",
    )


def _parsed(text: str) -> dict[str, Any]:
    return json.loads(text) if text.strip() else {}


def main() -> None:
    """Go through the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--most", type=int)
    asked = parser.parse_args()
    try:
        files = [file.path for path in asked.paths for file in find_kernel_files([path])[: asked.most]]
    except SourceError as error:
        raise SystemExit(str(error)) from None
    print("| file | kernels with facts | check | facts | seconds | why others have none |\n|---|---|---|---|---|---|")
    rows: list[Row] = []
    for file in files:
        rows.append(row(file))
        print(rows[-1].line, flush=True)
    kernels, known = sum(len(one.kernels) for one in rows), sum(len(one.with_facts) for one in rows)
    broken = sum(one.traceback for one in rows)
    print(f"\n{len(rows)} files, {known} of {kernels} kernels with facts, {broken} with a traceback")
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
