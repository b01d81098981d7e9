"""Kernels that are wrong in ways that testing on one good shape does not show."""

import re

import pytest
from judges import EXAMPLES, Judges, edited

from kernel_lsp.judge.verdict import Outcome, Stage

pytestmark = pytest.mark.gpu

BIAS_GELU, RMSNORM, TRANSPOSE = (EXAMPLES / "cuda" / name for name in ("bias_gelu.cu", "rmsnorm.cu", "transpose.cu"))
SOFTMAX = EXAMPLES / "triton" / "softmax.py"

MISSING_BOUNDS = {
    "a load at the last block": (SOFTMAX, [(', mask=mask, other=float("-inf"))', ")")]),
    "a store at the last block": (SOFTMAX, [("tl.sum(numerator, axis=0), mask=mask)", "tl.sum(numerator, axis=0))")]),
    "a sum one element too long": (
        RMSNORM,
        [("i < cols; i += blockDim.x) {\n        float v", "i <= cols; i += blockDim.x) {\n        float v")],
    ),
    "a tile read": (TRANSPOSE, [("if (x < cols && y + j < rows) {", "{"), ("if (x < rows && y + j < cols) {", "{")]),
}
OTHER_FAULTS = {
    "sums in half precision": (
        RMSNORM,
        [
            ("constexpr int MAX_THREADS", "#include <cuda_fp16.h>\n\nconstexpr int MAX_THREADS"),
            ("sum += v * v;", "sum = __half2float(__float2half(sum + v * v));"),
        ],
        "is inexact from index",
    ),
    "computes nothing": (RMSNORM, [("row[i] * scale * weight[i]", "0.0f")], "is wrong from index"),
    "writes nothing": (RMSNORM, [("out[i] = row[i]", "if (cols < 0) out[i] = row[i]")], "is wrong from index"),
    "ignores the weights": (RMSNORM, [("scale * weight[i]", "scale")], "is wrong from index"),
    "ignores the bias": (BIAS_GELU, [(" + __half2float(bias[i % cols])", "")], "is wrong from index"),
    "does every row but the last": (
        RMSNORM,
        [("float* out =", "if (blockIdx.x + 1 == gridDim.x) return;\n    float* out =")],
        "is wrong from index",
    ),
    "keeps one output for all calls": (
        SOFTMAX,
        [
            ("def softmax(x):", "_kept = {}\n\n\ndef softmax(x):"),
            ("y = torch.empty_like(x)", "y = _kept.setdefault(x.shape, torch.empty_like(x))"),
        ],
        "overwrites the output of an earlier one",
    ),
    "remembers the answer": (
        SOFTMAX,
        [
            ("def softmax(x):", "_known = {}\n\n\ndef softmax(x):"),
            (
                "    y = torch.empty_like(x)",
                "    if x.shape in _known:\n        return _known[x.shape].clone()\n    y = torch.empty_like(x)",
            ),
            ("    return y\n", "    _known[x.shape] = y\n    return y\n"),
        ],
        "is wrong from index",
    ),
    "changes its input": (SOFTMAX, [("    return y\n", "    x.zero_()\n    return y\n")], "changes its input `x`"),
    "returns another type": (SOFTMAX, [("    return y\n", "    return y.half()\n")], "type float16"),
    "returns another shape": (SOFTMAX, [("    return y\n", "    return y[:, :-1]\n")], "shape"),
    "returns other strides": (SOFTMAX, [("    return y\n", "    return y.t().contiguous().t()\n")], "strides"),
    "returns two outputs": (SOFTMAX, [("    return y\n", "    return y, y\n")], "2 outputs"),
}


def test_a_dropped_guard_is_seen_past_the_end_of_the_output(judges: Judges) -> None:
    text = edited(BIAS_GELU.read_text(), ("if (i < n) {", "{"))
    verdict = judges.judge(BIAS_GELU, text)
    assert (verdict.verdict, verdict.stage) == (Outcome.WRONG, Stage.CORRECT)
    assert "on case rows=3, cols=129 it writes past the end of a tensor of shape [3, 129]" in verdict.reason
    assert "the first at index 387" in verdict.reason


@pytest.mark.parametrize("what", MISSING_BOUNDS)
def test_a_dropped_bound_is_wrong_at_a_place(judges: Judges, what: str) -> None:
    path, changes = MISSING_BOUNDS[what]
    verdict = judges.judge(path, edited(path.read_text(), *changes))
    assert verdict.verdict is Outcome.WRONG, verdict.reason
    assert re.search(r"on case rows=\d+, cols=\d+(, padding=\d+)? ", verdict.reason)
    assert re.search(r"index \[?\d+|bytes past", verdict.reason)


@pytest.mark.parametrize("what", OTHER_FAULTS)
def test_a_kernel_that(judges: Judges, what: str) -> None:
    path, changes, words = OTHER_FAULTS[what]
    verdict = judges.judge(path, edited(path.read_text(), *changes))
    assert (verdict.verdict, verdict.stage) == (Outcome.WRONG, Stage.CORRECT), verdict.reason
    assert words in verdict.reason
    assert verdict.cases == ()
    assert verdict.speedup is None


def test_the_first_wrong_element_is_in_the_evidence(judges: Judges) -> None:
    text = edited(RMSNORM.read_text(), ("out[i] = row[i]", "out[i] = i == 17 ? 1e9f : row[i]"))
    found = judges.judge(RMSNORM, text).evidence.mismatch
    assert found is not None
    assert (found.case, found.output, found.index) == ("rows=5, cols=300", 0, (0, 17))
    assert (found.count, found.total) == (5, 1500)


def test_a_race_is_caught(judges: Judges) -> None:
    racing = RMSNORM.read_text().replace("__syncthreads();", "")
    outcomes = {judges.judge(RMSNORM, f"{racing}\n// try {number}\n").verdict for number in range(3)}
    assert Outcome.WRONG in outcomes
