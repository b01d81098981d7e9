"""The classic kernels of high performance computing: an obvious bug in each is WRONG where there is no GPU, too."""

import asyncio
import re
from pathlib import Path

import pytest

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Verdict

pytest.importorskip("torch")
FOLDER = Path(__file__).parents[3] / "examples" / "cuda"
BUGS = {
    "gemv": ("half > 0; half /= 2", "half > 1; half /= 2"),
    "spmv": ("k < row_starts[row + 1]", "k < row_starts[row + 1] - 1"),
    "jacobi2d": ("- h2 * f[i]", "+ h2 * f[i]"),
    "conjugate_gradient": ("*rr_new / *rr * p[i]", "*rr / *rr_new * p[i]"),
}


async def judged(folder: Path, name: str) -> Verdict:
    """The verdict on a kernel with its bug, on its smallest case."""
    right, bug = BUGS[name]
    text = (FOLDER / f"{name}.cu").read_text()
    assert text.count(right) == 1
    (folder / f"{name}.cu").write_text(text)
    workload = (FOLDER / f"{name}_workload.py").read_text()
    small = re.sub(r"CASES = \[\n(.*?\n).*?\n\]", r"CASES = [\n\1]", workload, flags=re.DOTALL)
    (folder / f"{name}_workload.py").write_text(small)
    target = make_target(folder / f"{name}.cu")
    async with open_session(target, Settings.model_validate({"judge": {"families": ["large"]}})) as session:
        return await session.judge(target.version(text.replace(right, bug), "bug", "user"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BUGS)
def test_an_obvious_bug_is_wrong(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    verdict = asyncio.run(judged(tmp_path, name))
    assert verdict.verdict is Outcome.WRONG, verdict.reason
