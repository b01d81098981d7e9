import subprocess
from pathlib import Path

import pytest

from kernel_lsp.report.diff import diff_view, unified_diff

OLD = "a\nb\nc\n"


@pytest.mark.parametrize("new", ["a\nB\nc\n", "a\nb\nc", "", "a\r\nb\nc\n", "a\nb\x0cb\nc\nd"])
def test_the_diff_applies(tmp_path, new):
    file = tmp_path / "k.cu"
    file.write_bytes(OLD.encode())
    diff = unified_diff(Path("k.cu"), OLD, new)
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "-p1"], input=diff.encode(), cwd=tmp_path, check=True, capture_output=True
    )
    assert file.read_bytes() == new.encode()


def test_no_change_is_no_diff():
    assert unified_diff(Path("k.cu"), OLD, OLD) == ""


def test_a_terminal_sees_what_goes_and_what_comes():
    view = diff_view(unified_diff(Path("k.cu"), OLD, "a\nB[bold]\nc\n"))
    styles = {view.plain[span.start : span.end]: span.style for span in view.spans}
    assert styles["-b\n"] == "red"
    assert styles["+B[bold]\n"] == "green"
    assert styles["--- a/k.cu\n"] == "bold"
