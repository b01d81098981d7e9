import os

import pytest

from kernel_lsp.cli.apply import FileChange, apply_changes
from kernel_lsp.errors import SourceError


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"old\r\n")
    path.chmod(0o640)
    return path


def test_the_file_is_replaced_and_keeps_its_mode(kernel):
    apply_changes([FileChange(kernel, "old\r\n", "new µ\r\n")])
    assert kernel.read_bytes() == "new µ\r\n".encode()
    assert kernel.stat().st_mode & 0o777 == 0o640
    assert list(kernel.parent.iterdir()) == [kernel]


def test_a_link_stays_a_link(kernel):
    link = kernel.with_name("link.cu")
    link.symlink_to(kernel)
    apply_changes([FileChange(link, "old\r\n", "new")])
    assert link.is_symlink()
    assert kernel.read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_left_alone(kernel):
    kernel.write_bytes(b"mine")
    with pytest.raises(SourceError, match="was changed while it was being refined") as caught:
        apply_changes([FileChange(kernel, "old\r\n", "new")])
    assert caught.value.fix
    assert kernel.read_bytes() == b"mine"
    assert list(kernel.parent.iterdir()) == [kernel]


def test_a_line_ending_is_a_change(kernel):
    with pytest.raises(SourceError):
        apply_changes([FileChange(kernel, "old\n", "new")])


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(SourceError, match="cannot be written: No such file"):
        apply_changes([FileChange(tmp_path / "none.cu", "old", "new")])
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(kernel, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        apply_changes([FileChange(kernel, "old\r\n", "new")])
    assert kernel.read_bytes() == b"old\r\n"
    assert list(kernel.parent.iterdir()) == [kernel]


def test_of_two_files_neither_is_touched_when_one_has_changed(kernel):
    other = kernel.with_name("workload.py")
    other.write_text("mine")
    with pytest.raises(SourceError, match="was changed while it was being refined"):
        apply_changes([FileChange(kernel, "old\r\n", "new"), FileChange(other, "theirs", "new")])
    assert (kernel.read_bytes(), other.read_bytes()) == (b"old\r\n", b"mine")
    assert sorted(kernel.parent.iterdir()) == [kernel, other]


def test_two_files_change_together(kernel):
    other = kernel.with_name("workload.py")
    other.write_text("a")
    apply_changes([FileChange(kernel, "old\r\n", "new"), FileChange(other, "a", "b")])
    assert (kernel.read_bytes(), other.read_bytes()) == (b"new", b"b")


def test_a_file_in_latin_1_stays_in_it(kernel):
    kernel.write_bytes(b"// \xa9\nold\n")
    apply_changes([FileChange(kernel, "// ©\nold\n", "// ©\nnew\n")])
    assert kernel.read_bytes() == b"// \xa9\nnew\n"
