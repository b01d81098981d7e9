"""Output that is no terminal, such as a pipe or a log of CI."""

from pathlib import Path

import pytest
from rich.padding import Padding
from rich.table import Table

from kernel_lsp.cli.console import err, out
from kernel_lsp.cli.main import main


def test_lines_of_a_log_end_where_their_text_does(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("case")
    table.add_column("verdict")
    table.add_row("n=1", "SAME, as far as can be told")
    table.add_row("n=2", "FASTER")
    out.print(Padding("a paragraph\n\nand another", (0, 0, 0, 2)))
    out.print(table)
    printed = capsys.readouterr().out
    assert printed.splitlines()[:3] == ["  a paragraph", "", "  and another"]
    assert printed.splitlines()[-1] == "n=2   FASTER"
    assert not any(line.endswith(" ") for line in printed.splitlines())


@pytest.mark.parametrize("forced", [False, True])
def test_a_log_shows_no_progress(
    forced: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if forced:  # as CI does for the sake of colours
        monkeypatch.setattr(err, "_force_terminal", True)
    with err.status("checking 3 files") as status:
        status.update("checking, 1 of 3 done")
    assert capsys.readouterr().err == ""


def test_paths_in_an_error_survive_a_log_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("a_folder_with_a_long_name/" * 4) / "kernel.cu"
    monkeypatch.setattr(err, "_width", 400)  # as in a log; pytest-xdist sets COLUMNS in its processes
    monkeypatch.setattr("sys.argv", ["kernel-lsp", "facts", str(path)])
    with pytest.raises(SystemExit):
        main()
    assert str(path) in capsys.readouterr().err
