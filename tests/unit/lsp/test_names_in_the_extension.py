"""What the extension calls the server's jobs and states is what the server calls them."""

import re
from pathlib import Path

import pytest

from kernel_lsp.lsp.catalog import JOBS
from kernel_lsp.lsp.job import State

PROTOCOL = (Path(__file__).parents[3] / "extension/src/protocol.ts").read_text()


@pytest.mark.parametrize(("declared", "said"), [("work:", set(JOBS)), ("export type JobState =", set(State))])
def test_unions_are_the_servers_own(declared: str, said: set[str]) -> None:
    union = re.search(re.escape(declared) + r" ([^;]+);", PROTOCOL)
    assert union is not None
    assert set(re.findall(r'"(\w+)"', union[1])) == said
