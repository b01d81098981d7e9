"""`kernel-lsp trust` and `untrust`."""

import json

from tests.lsp.job_session import command_line


def test_the_command_line_lists_what_is_trusted(tmp_path):
    assert command_line(tmp_path, "trust").stdout == ""
    assert command_line(tmp_path, "trust", ".").returncode == 0
    kept = tmp_path / ".home/config/kernel-lsp/trusted.json"
    assert json.loads(kept.read_text()) == {"folders": [str(tmp_path)]}
    done = command_line(tmp_path, "trust", "nowhere")
    assert (done.returncode, "no such folder" in done.stderr) == (2, True)
