"""A text that makes the same program is SAME without being run."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict

EXAMPLES = Path(__file__).parents[3] / "examples"


def judge(path: Path, texts: list[str], folder: Path) -> list[Verdict]:
    settings = Settings(paths=PathSettings(data=folder, cache=folder))

    async def run() -> list[Verdict]:
        async with open_session(make_target(path), settings) as session:
            return [await session.judge(session.target.version(text, "variant", "user")) for text in texts]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "comment", "change"),
    [
        ("cuda/rmsnorm.cu", "// a comment\n", ("sum += v * v", "sum += v * v * 2.0f")),
        ("triton/softmax.py", "# a comment\n", ("num_warps = 4", "num_warps = 8")),
    ],
)
def test_a_comment_makes_the_same_program_and_a_change_does_not(name, comment, change, tmp_path):
    path = EXAMPLES / name
    text = path.read_text()
    changed = text.replace(*change) if change[0] in text else text.replace("num_warps=4", "num_warps=8")
    assert changed != text
    commented, other = judge(path, [comment + text if path.suffix == ".cu" else text + comment, changed], tmp_path)
    assert (commented.verdict, commented.stage) == (Outcome.SAME, Stage.BUILD)
    assert commented.cases == ()
    assert other.verdict is not Outcome.SAME
