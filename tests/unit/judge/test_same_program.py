"""A text that makes the same program is SAME without being run."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict
from tests.scale_kernel import KERNEL, WORKLOAD
from tests.softmax_kernel import write_softmax


def write_scale(folder: Path) -> Path:
    path = folder / "scale.cu"
    path.write_text(KERNEL)
    path.with_name("scale_workload.py").write_text(WORKLOAD)
    return path


def judge(path: Path, texts: list[str], folder: Path) -> list[Verdict]:
    settings = Settings(paths=PathSettings(data=folder, cache=folder))

    async def run() -> list[Verdict]:
        async with open_session(make_target(path), settings) as session:
            return [await session.judge(session.target.version(text, "variant", "user")) for text in texts]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("write", "comment", "change"),
    [
        (write_scale, "// a comment\n", ("0.5f", "0.25f")),
        pytest.param(write_softmax, "# a comment\n", ("num_warps=4", "num_warps=8"), marks=pytest.mark.thorough),
    ],
)
def test_a_comment_makes_the_same_program_and_a_change_does_not(write, comment, change, tmp_path):
    path = write(tmp_path)
    text = path.read_text()
    changed = text.replace(*change)
    assert changed != text
    commented, other = judge(path, [text + comment, changed], tmp_path)
    assert (commented.verdict, commented.stage) == (Outcome.SAME, Stage.BUILD)
    assert commented.cases == ()
    assert other.verdict is not Outcome.SAME
