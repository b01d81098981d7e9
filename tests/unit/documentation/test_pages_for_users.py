"""Pages that lead a user by the hand: what they show happens, and no verdict is left without advice."""

import re
from pathlib import Path

import pytest

from kernel_lsp.judge.verdict import Outcome
from tests.lsp.job_session import command_line

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The texts of a page that are written in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def lines_of(listing: str) -> list[str]:
    """What a listing of a terminal shows, without how long it took, what there was time for, and blanks."""
    shown = [line for line in listing.splitlines() if not line.startswith("$ ")]
    return [re.sub(r"  [\d.]+ m?s(?=  |$)| \(\d+ checks\)|\s+", "", line) for line in shown]


@pytest.mark.timeout(300)
def test_the_first_workload_finds_the_mistake_as_its_page_says(tmp_path: Path) -> None:
    page = (DOCS / "first-workload.md").read_text()
    kernel, guarded = blocks(page, "cuda")
    [workload] = blocks(page, "python")
    file = tmp_path / "scale_bias.cu"
    broken = kernel.splitlines(keepends=True)
    mended = "".join([*broken[:5], guarded, *broken[6:]])
    runs = re.findall(r"^```\n(\$ kernel-lsp (.*?)\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    states = [(kernel, None), (kernel, workload), (mended, workload), (mended, workload)]
    for (listing, command), (text, beside) in zip(runs, states, strict=True):
        file.write_text(text)
        if beside is not None:
            file.with_name("scale_bias_workload.py").write_text(beside)
        shown = "".join(lines_of(command_line(tmp_path, *command.split()).stdout))  # lines break where a terminal ends
        assert [line for line in lines_of(listing) if line not in shown] == [], (command, shown)


def test_every_verdict_has_advice() -> None:
    page = (DOCS / "after-a-verdict.md").read_text()
    table = page.split("\n\n")[2]
    told = [name for row in table.splitlines()[2:] for name in re.findall(r"[A-Z_]{4,}", row.split("|")[1])]
    assert sorted(told) == sorted(Outcome)
