"""Profiles follow the text that they were taken of."""

from dataclasses import asdict
from pathlib import Path

from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.profiles import CountedKernel, CountedLine, Profiles

PATH = Path("/a/k.cu")
TEXT = "one\ntwo\nthree\n"


def document(text: str) -> Document:
    return Document(PATH.as_uri(), PATH, text, 1, "utf-16")


def kernel(name: str, *lines: int) -> CountedKernel:
    counted = [CountedLine(line, "" if line else "t.cuh:7", f"a | {line}", "counted: 3 %", ("3 %",)) for line in lines]
    return CountedKernel(name, "Counted.", ("Instructions",), tuple(counted))


def test_counts_move_with_their_lines_are_dropped_where_these_change_and_return_with_an_undo() -> None:
    profiles = Profiles()
    profiles.take(document(TEXT), [asdict(kernel("k", 0, 1, 2, 3))])
    (found,) = profiles.of(document("one\nTWO\nmore\nthree\n"))
    assert [one.line for one in found.lines] == [0, 1, 4]
    assert found.about == "Counted. The text was edited since."
    (found,) = profiles.of(document("zero\none\nTWO\nmore\nthree\n"))
    assert [one.line for one in found.lines] == [0, 2, 5]
    assert profiles.of(document(TEXT)) == (kernel("k", 0, 1, 2, 3),)


def test_another_kernels_profile_is_kept_while_the_text_is_the_same() -> None:
    profiles = Profiles()
    profiles.take(document(TEXT), [asdict(kernel("k", 1))])
    profiles.take(document(TEXT), [asdict(kernel("l", 2))])
    assert [one.name for one in profiles.of(document(TEXT))] == ["k", "l"]
    profiles.take(document(TEXT + "four\n"), [asdict(kernel("l", 2))])
    assert [one.name for one in profiles.of(document(TEXT + "four\n"))] == ["l"]


def test_a_table_names_other_files_and_keeps_code_in_its_cell() -> None:
    rows = kernel("k", 0, 2).table.splitlines()
    assert rows[2:4] == ["| Line | Instructions | Code |", "| --: | --: | --- |"]
    assert rows[4:] == ["| t.cuh:7 | 3 % | ``a \\| 0`` |", "| 2 | 3 % | ``a \\| 2`` |"]
