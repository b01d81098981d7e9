"""A file's text in the last commit."""

import subprocess

import pytest

from kernel_lsp.errors import SourceError
from kernel_lsp.source.revision import committed_text


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "k.cu").write_bytes(b"// one\r\n__global__ void k() {}\r\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return folder


def test_it_is_the_text_of_the_last_commit_line_ends_included(repository):
    (repository / "k.cu").write_text("// two\n")
    assert committed_text(repository / "k.cu") == "// one\r\n__global__ void k() {}\r\n"


def test_a_file_that_was_never_committed_is_an_error_to_fix(repository):
    (repository / "new.cu").write_text("")
    with pytest.raises(SourceError, match="last commit has no such file") as refused:
        committed_text(repository / "new.cu")
    assert refused.value.fix == "Commit the file first."


def test_so_is_a_file_in_no_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(SourceError, match="not a git repository"):
        committed_text(tmp_path / "k.cu")


def test_filters_of_the_repository_are_not_run(repository, tmp_path):
    git(repository, "config", "diff.bad.textconv", f"touch {tmp_path}/ran; cat")
    (repository / ".gitattributes").write_text("*.cu diff=bad\n")
    committed_text(repository / "k.cu")
    assert not (tmp_path / "ran").exists()
