import os

import pytest

from kernel_lsp.cli.apply import write_if_unchanged
from kernel_lsp.errors import SourceError


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"old\r\n")
    path.chmod(0o640)
    return path


def test_the_file_is_replaced_and_keeps_its_mode(kernel):
    write_if_unchanged(kernel, "old\r\n", "new µ\r\n")
    assert kernel.read_bytes() == "new µ\r\n".encode()
    assert kernel.stat().st_mode & 0o777 == 0o640
    assert list(kernel.parent.iterdir()) == [kernel]


def test_a_link_stays_a_link(kernel):
    link = kernel.with_name("link.cu")
    link.symlink_to(kernel)
    write_if_unchanged(link, "old\r\n", "new")
    assert link.is_symlink()
    assert kernel.read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_left_alone(kernel):
    kernel.write_bytes(b"mine")
    with pytest.raises(SourceError, match="was changed while it was being refined") as caught:
        write_if_unchanged(kernel, "old\r\n", "new")
    assert caught.value.cure
    assert kernel.read_bytes() == b"mine"
    assert list(kernel.parent.iterdir()) == [kernel]


def test_a_line_ending_is_a_change(kernel):
    with pytest.raises(SourceError):
        write_if_unchanged(kernel, "old\n", "new")


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(SourceError, match="cannot be written: No such file"):
        write_if_unchanged(tmp_path / "none.cu", "old", "new")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(kernel, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_if_unchanged(kernel, "old\r\n", "new")
    assert kernel.read_bytes() == b"old\r\n"
    assert list(kernel.parent.iterdir()) == [kernel]
