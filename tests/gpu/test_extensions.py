"""A workload that calls the host functions of a PyTorch extension, which is built with its host code for that."""

import json
import shutil
from pathlib import Path

import pytest
from judges import EXAMPLES, CommandLine, edited

pytestmark = pytest.mark.gpu


def test_an_extension_is_built_called_and_right(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    rotary = EXAMPLES / "cuda" / "rotary.cu"
    workload = rotary.with_name("rotary_workload.py").read_text()
    launch = workload[workload.index("    THREADS = 256") :]
    (tmp_path / "rotary_workload.py").write_text(edited(workload, (launch, "    return module.rotary_(q, cos, sin)\n")))
    shutil.copy(rotary, tmp_path)
    process = kernel_lsp("check", "rotary.cu", "--json")
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, printed + said
    (file,) = json.loads(printed)["files"]
    assert file["diagnostics"] == []
    assert len([c for c in file["checks"] if c["status"] == "passed"]) >= 8
