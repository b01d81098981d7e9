"""A KernelBench problem as a target, on a machine without a GPU: its own `Model`, right and wrong answers to it."""

import asyncio
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_lsp import policy
from kernel_lsp.bench.records import comparison_of
from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.program_equality import same_model
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage, Verdict
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from tests.host_header import with_host_header

pytestmark = pytest.mark.skipif(bool(find_gpus()), reason="a GPU gives other verdicts")

PROBLEM = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Scales rows."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.relu(x) * self.scale


batch, size = 4096, 2048


def get_inputs():
    return [torch.rand(batch, size) - 0.5]


def get_init_inputs():
    return [size]
'''
MODEL = PROBLEM.split("batch,")[0].replace("Model", "ModelNew")
TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, scale, y, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * tl.load(scale + at % size, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        scale_kernel[(triton.cdiv(n, 1024),)](x, self.scale, y, n, x.size(1), BLOCK=1024)
        return y
"""
INLINE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void scale_kernel(const float* x, const float* scale, float* y, int n, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.f) * scale[i % size];
}

torch::Tensor scale_rows(torch::Tensor x, torch::Tensor scale) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(), n,
                                           x.size(1));
    return y;
}
"""
rows = load_inline(
    name="rows",
    cpp_sources="torch::Tensor scale_rows(torch::Tensor x, torch::Tensor scale);",
    cuda_sources=SOURCE,
    functions=["scale_rows"],
)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return rows.scale_rows(x, self.scale)
'''
ANSWERS = {
    "itself": MODEL,
    "another": MODEL.replace("torch.relu(x)", "x.clamp(min=0)"),
    "triton": TRITON,
    "inline": INLINE,
    "ignores": MODEL.replace(" * self.scale", ""),
    "wrong": MODEL.replace("torch.relu(x)", "x.abs()"),
    "rounds": MODEL.replace("torch.relu(x)", "1.0001 * torch.relu(x)"),
    "rounds a little": MODEL.replace("torch.relu(x)", "1.0000155 * torch.relu(x)"),
    "overruns": INLINE.replace("fmaxf(x[i]", "fmaxf(x[i + 1]"),
    "other name": MODEL.replace("self.scale", "self.factor"),
    "other shape": MODEL.replace("torch.ones(size)", "torch.ones(1, size)"),
    "derived": MODEL.replace("torch.ones(size)", "2 * torch.ones(size)")
    .replace("* self.scale", "* self.scale / 2")
    .replace("self.scale", "self.factor"),
    "left out": MODEL.replace("self.scale = nn.Parameter(torch.ones(size))", "self.size = size").replace(
        "self.scale", "torch.ones(self.size, device=x.device)"
    ),
    "fixed_size": MODEL.replace("        return", "        assert x.size(1) % 2 == 0\n        return"),
    "no_answer": PROBLEM.split("batch,")[0],
    "raises": MODEL.replace("super().__init__()", 'super().__init__()\n        raise ValueError("no")'),
    "reaches": MODEL.replace("import torch\n", "import ctypes\nimport torch\n", 1),
    "syntax": INLINE.replace("fmaxf(", "fmaxg("),
    "words": INLINE.replace("rows.scale_rows(x,", "rows.scale_rows(x.clone(),")
    .replace("auto y = torch::empty_like(x)", "auto y = x.clone()")
    .replace("def __init__(self, size):", 'def __init__(self, size):\n        """The constructor (open to all)."""'),
    "hidden": INLINE.replace(
        "cuda_sources=SOURCE", "cuda_sources=SOURCE.replace('int n =', 'as' 'm(\"syscall\"); int n =')"
    ),
}


class Verdicts:
    """The verdict on each answer that a test asks for, in one session."""

    def __init__(self, runner: asyncio.Runner, session: Session, folder: Path) -> None:
        self._runner, self._session, self._folder = runner, session, folder
        self._found: dict[str, Verdict] = {}

    def __getitem__(self, name: str) -> Verdict:
        if name not in self._found:
            text = SourceFile(self._folder / f"{name}.py", ANSWERS[name])
            answer = self._session.target.answer(text, name, "user")
            self._found[name] = self._runner.run(self._session.judge(answer, always_run=name == "another"))
        return self._found[name]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory) -> Iterator[Verdicts]:
    folder = tmp_path_factory.mktemp("answers")
    path = folder / "rows.py"
    path.write_text(PROBLEM)
    with_host_header(folder / "builds")
    settings = Settings(paths=PathSettings(data=folder, cache=folder))
    with asyncio.Runner() as runner:
        opening = open_session(make_target(path), settings)
        session = runner.run(opening.__aenter__())
        try:
            yield Verdicts(runner, session, folder)
        finally:
            runner.run(opening.__aexit__(None, None, None))


def checks(verdict: Verdict) -> dict[str, tuple[CheckStatus, str]]:
    return {check.name: (check.status, check.detail) for check in verdict.evidence.checks}


def test_the_model_itself_is_the_same_program(verdicts):
    assert (verdicts["itself"].verdict, verdicts["itself"].stage) == (Outcome.SAME, Stage.BUILD)


@pytest.mark.parametrize("name", ["another", "triton", "inline", "words", "other name", "other shape"])
def test_a_right_answer_is_right_on_the_emulator(verdicts, name):
    assert (verdicts[name].verdict, verdicts[name].stage) == (Outcome.UNTIMED, Stage.CORRECT), verdicts[name].reason
    found = checks(verdicts[name])
    assert found["weights"] == (CheckStatus.PASSED, "by state: all 1 are given to it")
    assert found["inputs: weights"][0] is CheckStatus.PASSED
    assert "needs a GPU" in found["the case as written"][1]


def test_the_evidence_says_how_an_extension_was_built(verdicts):
    evidence = verdicts["inline"].evidence
    assert (evidence.build_way, [e.path for e in evidence.extensions]) == ("fast", ["fast"])
    assert [kernel.name for kernel in evidence.candidate_resources] == ["scale_kernel"]
    assert evidence.candidate_resources[0].threads == 256


@pytest.mark.parametrize(("text", "language"), [(TRITON, Language.TRITON), (INLINE, Language.TORCH)])
def test_an_answer_may_be_in_another_language_than_the_problem(text, language, tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(PROBLEM)
    target = make_target(path)
    assert target.language is Language.TORCH
    assert target.answer(SourceFile(path, text), "", "user").language is language


def test_a_wrong_answer_names_case_and_element(verdicts):
    verdict = verdicts["wrong"]
    assert (verdict.verdict, verdict.stage) == (Outcome.WRONG, Stage.CORRECT)
    assert verdict.evidence.mismatch is not None
    assert verdict.evidence.mismatch.case.startswith("batch=")


def test_of_what_is_less_exact_than_allowed_the_reason_says_by_how_much(verdicts):
    of_one, of_all = verdicts["rounds"].reason, verdicts["rounds a little"].reason
    assert re.search(r" is inexact from index .* by up to [4-7]\d\d units of rounding where 128 are allowed$", of_one)
    off = r" is inexact by [3-7]\d(\.\d)? units of rounding \(root mean square\) where 3\d(\.\d)? are allowed; most"
    assert re.search(off, of_all)
    assert "units" not in verdicts["wrong"].reason
    assert " is wrong from index " in verdicts["wrong"].reason


def test_ignored_weights_that_are_all_ones_are_found(verdicts):
    assert verdicts["ignores"].verdict is Outcome.WRONG
    assert "weights" in verdicts["ignores"].reason


@pytest.mark.parametrize("seconds", [math.inf, -1.0])
def test_where_right_answers_take_long_weights_are_tried_together_only(seconds, tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "VARIED_WEIGHTS_SECONDS", seconds)
    path = tmp_path / "rows.py"
    path.write_text(PROBLEM)

    async def run() -> Verdict:
        settings = Settings(paths=PathSettings(data=tmp_path, cache=tmp_path))
        async with open_session(make_target(path), settings) as session:
            return await session.judge(session.target.answer(SourceFile(path, ANSWERS["triton"]), "triton", "user"))

    found = checks(asyncio.run(run()))
    assert found["inputs: weights"][0] is CheckStatus.PASSED
    assert found["inputs: other `x`"][0] is CheckStatus.PASSED
    assert ("inputs: other `scale`" in found) is (seconds > 0)
    assert ("inputs: each weight alone" in found) is (seconds < 0)


def test_an_access_out_of_bounds_is_found_at_its_line(verdicts):
    verdict = verdicts["overruns"]
    assert verdict.verdict is Outcome.RUN_FAILED
    line = next(n for n, line in enumerate(ANSWERS["overruns"].splitlines(), 1) if "x[i + 1]" in line)
    assert f"line {line}" in verdict.reason


@pytest.mark.parametrize("name", ["derived", "left out"])
def test_an_answer_that_cannot_be_given_weights_is_rejected(verdicts, name):
    verdict = verdicts[name]
    assert (verdict.verdict, verdict.stage) == (Outcome.ILLEGITIMATE, Stage.LEGITIMATE), verdict.reason
    assert verdict.reason.startswith("rejected: it cannot be given the problem's weights `scale`: ")
    assert checks(verdict)["weights"] == (CheckStatus.FAILED, verdict.reason)
    assert "inputs: weights" in checks(verdict), "and what was not varied is said"
    assert checks(verdict)["inputs: weights"][0] is CheckStatus.SKIPPED
    assert not comparison_of(verdict).right


def test_sizes_that_the_problem_fixes_may_be_relied_on(verdicts):
    verdict = verdicts["fixed_size"]
    assert verdict.verdict is Outcome.UNTIMED, verdict.reason
    assert "not held against it" in checks(verdict)["other sizes"][1]


@pytest.mark.parametrize(
    ("name", "outcome", "stage", "said"),
    [
        ("no_answer", Outcome.BUILD_FAILED, Stage.PARSE, "no `ModelNew`"),
        ("raises", Outcome.BUILD_FAILED, Stage.BUILD, "ValueError: no"),
        ("reaches", Outcome.ILLEGITIMATE, Stage.LEGITIMATE, "imports `ctypes`"),
        (
            "hidden",
            Outcome.ILLEGITIMATE,
            Stage.LEGITIMATE,
            "line 13 of its host code holds machine instructions of the host in a string",
        ),
        ("syntax", Outcome.BUILD_FAILED, Stage.BUILD, "syntax.py:"),
    ],
)
def test_what_cannot_be_run_says_why(verdicts, name, outcome, stage, said):
    assert (verdicts[name].verdict, verdicts[name].stage) == (outcome, stage), verdicts[name].reason
    assert said in verdicts[name].reason


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("Scales rows.", "Something else."), True),
        (("batch, size = 4096, 2048", "batch, size = 8, 8"), True),
        (("torch.relu(x)", "torch.relu(x) + 0"), False),
        (("torch.ones", "torch.zeros"), False),
    ],
)
def test_models_are_the_same_by_their_syntax(change, same):
    assert same_model(PROBLEM, PROBLEM.replace(*change).replace("Model", "ModelNew")) is same


NORM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return self.norm(x).mean(dim=-1)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64]
"""


def test_weights_of_its_own_where_others_would_decide_are_not_right(tmp_path):
    path = tmp_path / "norm.py"
    path.write_text(NORM)
    text = NORM.split("def get_inputs")[0].replace("Model", "ModelNew").replace("self.norm", "self.own")

    async def run() -> Verdict:
        settings = Settings(paths=PathSettings(data=tmp_path, cache=tmp_path))
        async with open_session(make_target(path), settings) as session:
            return await session.judge(session.target.answer(SourceFile(tmp_path / "own.py", text), "own", "user"))

    verdict = asyncio.run(run())
    assert (verdict.verdict, verdict.stage) == (Outcome.UNTIMED, Stage.RUN), verdict.reason
    assert "rounding alone" in verdict.reason
    assert not comparison_of(verdict).right
