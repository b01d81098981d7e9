"""Times in the repository's baseline: recorded, held to, and taken again only for other machine code."""

import json
from pathlib import Path
from typing import Any

import pytest
import spinning
from judges import CommandLine

pytestmark = pytest.mark.gpu


def test_slower_machine_code_is_found_and_the_same_is_not_timed(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    path = spinning.write(tmp_path)
    (tmp_path / ".git").mkdir()

    def check(*options: str) -> tuple[int, dict[str, Any]]:
        process = kernel_lsp("check", str(path), "--json", *options)
        printed, said = process.communicate(timeout=240)
        assert printed, said
        return process.returncode, json.loads(printed)["files"][0]

    code, recorded = check("--update-baseline")
    assert code == 0
    assert recorded["times"]
    assert all(low <= case["us"] <= high for case in recorded["times"] for low, high in [case["interval"]])
    baseline = json.loads((tmp_path / ".kernel-lsp/baseline.json").read_text())
    (record,) = baseline["files"][path.name].values()
    assert record["times"]

    text = path.read_text()
    path.write_text("// a comment\n" + text)
    code, same = check()
    assert (code, same["times"]) == (0, None), "the machine code is the recorded one"

    path.write_text(text.replace(*spinning.rounds(400)))
    code, slow = check()
    assert code == 1
    assert slow["times"]
    assert "KL043" in {found["code"] for found in slow["diagnostics"]}
