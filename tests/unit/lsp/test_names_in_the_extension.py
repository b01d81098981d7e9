"""What the extension calls the server's jobs and states is what the server calls them."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from kernel_lsp.lsp.jobs import State, Work

PROTOCOL = (Path(__file__).parents[3] / "extension/src/protocol.ts").read_text()


@pytest.mark.parametrize(("declared", "said"), [("work:", Work), ("export type JobState =", State)])
def test_unions_are_the_servers_own(declared: str, said: type[StrEnum]) -> None:
    union = re.search(re.escape(declared) + r" ([^;]+);", PROTOCOL)
    assert union is not None
    assert re.findall(r'"(\w+)"', union[1]) == [one.value for one in said]
