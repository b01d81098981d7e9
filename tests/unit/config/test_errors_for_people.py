"""How errors are written for people."""

from pathlib import Path

import pytest

from kernel_lsp.errors import SourceError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceError("It is empty", Path("/a/k.cu"), 3, "Write it."), "It is empty. Write it. (/a/k.cu:3)"),
        (SourceError("It is empty", Path("/a/k.cu")), "It is empty. (/a/k.cu)"),
        (SourceError("It is empty."), "It is empty."),
    ],
)
def test_in_a_window_the_place_comes_last(error: SourceError, expected: str) -> None:
    assert error.with_place == expected
