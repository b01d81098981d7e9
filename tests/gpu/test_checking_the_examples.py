"""The examples are right as they stand, and their workloads can tell."""

import json
from pathlib import Path

import pytest
from judges import EXAMPLES, CommandLine

pytestmark = pytest.mark.gpu


def test_all_examples_are_well(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    process = kernel_lsp("check", str(EXAMPLES), "--json")
    printed, said = process.communicate(timeout=240)
    assert printed, said
    reports = {Path(file["path"]).name: file for file in json.loads(printed)["files"]}
    errors = {name: [d for d in file["diagnostics"] if d["severity"] == "error"] for name, file in reports.items()}
    assert {name: found for name, found in errors.items() if found} == {}
    assert process.returncode == 0
    assert len(reports) >= 18
    for name, file in reports.items():
        families = {c["name"] for c in file["checks"] if c["status"] == "passed"}
        assert len([f for f in families if f.startswith("inputs: ")]) >= 4, name
