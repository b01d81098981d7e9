"""Positions of a client in any encoding, against what the specification says and against each other."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.uris import path_of, uri_of
from kernel_lsp.source.text import Span

ENCODINGS = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(st.sampled_from("ab \té\u2028\f\x85漢𝛼🙂\r\n"), max_size=60)


def document(text, encoding="utf-16"):
    return Document("file:///x.cu", Path("/x.cu"), text, 1, encoding)


@pytest.mark.parametrize(("encoding", "columns"), [("utf-8", 7), ("utf-16", 4), ("utf-32", 3)])
def test_columns_are_counted_in_the_clients_encoding(encoding, columns):
    text = document("x\né🙂a = 1", encoding)
    at = len("x\né🙂a".encode())
    assert text.position(at) == types.Position(1, columns)
    assert text.offset(types.Position(1, columns)) == at


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\r"])
def test_only_three_breaks_end_a_line(break_):
    text = document(f"a\x0b\f\x1c\x85\u2028\u2029b{break_}c")
    assert text.position(len(text.lines.data) - 1) == types.Position(1, 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_positions_past_an_end_are_pulled_back(encoding):
    text = document("é🙂\r\nb", encoding)
    assert text.offset(types.Position(0, 999)) == len("é🙂".encode())
    assert text.offset(types.Position(7, 3)) == len(text.lines.data)
    assert document("", encoding).offset(types.Position(0, 1)) == 0


def test_a_position_within_a_character_is_its_start():
    assert document("é🙂b", "utf-8").offset(types.Position(0, 4)) == 2
    assert document("🙂b", "utf-16").offset(types.Position(0, 1)) == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=TEXTS)
def test_every_character_has_one_position(encoding, text):
    seen = document(text, encoding)
    at = 0
    for before, character in zip(["", *text], text, strict=False):
        if not (before == "\r" and character == "\n"):  # between the two there is no position of its own
            assert seen.offset(seen.position(at)) == at
        at += len(character.encode())
    assert seen.offset(seen.position(at)) == at


def units(text, encoding):
    if encoding == "utf-32":
        return len(text)
    return len(text.encode("utf-16-le")) // 2 if encoding == "utf-16" else len(text.encode())


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=TEXTS, cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)), new=TEXTS)
def test_a_clients_range_edits_what_it_means(encoding, text, cuts, new):
    """The client splits lines and counts by itself here, as an editor does, from the characters."""
    start, end = sorted(min(cut, len(text)) for cut in cuts)
    if any(text[at - 1 : at + 1] == "\r\n" for at in (start, end)):
        return
    documents = Documents(encoding)
    documents.open(types.TextDocumentItem("file:///x.cu", "cuda", 1, text))

    def position(at):
        lines = text[:at].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return types.Position(len(lines) - 1, units(lines[-1], encoding))

    change = types.TextDocumentContentChangePartial(types.Range(position(start), position(end)), new)
    assert documents.change("file:///x.cu", 2, [change]).text == text[:start] + new + text[end:]


def test_half_a_pair_of_surrogates_keeps_its_width():
    documents = Documents("utf-16")
    found = documents.open(types.TextDocumentItem("file:///x.cu", "cuda", 1, "a\ud83db"))
    assert found.text == "a\ufffdb"
    assert found.position(found.offset(types.Position(0, 2))) == types.Position(0, 2)


def test_a_range_that_is_the_wrong_way_round_is_empty():
    extent = types.Range(types.Position(0, 3), types.Position(0, 1))
    assert document("abcdef").span(extent) == Span(3, 3)


@pytest.mark.parametrize("name", ["a b.cu", "ünï.cu", "100%.cu", "q?#.cu"])
def test_uris_name_files(name):
    assert path_of(uri_of(Path("/tmp") / name)) == Path("/tmp") / name


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "git:/x.cu", "file://%00", "file:", "", "http://[", "%%%"])
def test_other_uris_name_none(uri):
    assert path_of(uri) is None


@pytest.mark.parametrize(
    ("uri", "language", "name"),
    [
        ("untitled:Untitled-1", "cuda-cpp", "Untitled-1.cu"),
        ("untitled:Untitled-1", "python", "Untitled-1.py"),
        ("git:/a/k.cu?ref", "plaintext", "k.cu_ref"),
        ("", "", "untitled"),
    ],
)
def test_a_text_on_no_disk_has_the_suffix_of_its_language(uri, language, name):
    found = Documents().open(types.TextDocumentItem(uri, language, 1, ""))
    assert (found.path, found.on_disk) == (Path(name), False)
