"""Mechanical fixes of findings, as text: what is proposed where, before any of it is checked."""

from pathlib import Path

import pytest

from kernel_lsp.check.quick_fixes import find_quick_fixes, judged
from kernel_lsp.check.record import FileReport
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.text import apply_edits

PATH = Path("k.cu")
UNGUARDED = """__global__ void scale(const float* x, float* y, int n, float f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = f * x[i];
}
"""
RACE = """__global__ void flip(float* x) {
    __shared__ float tile[64];
    for (int k = 0; k < 4; ++k) {
        tile[threadIdx.x] = x[threadIdx.x];
        x[threadIdx.x] = tile[63 - threadIdx.x];
    }
}
"""


def finding(text, line, rule, column=5):
    return Diagnostic(str(PATH), line, column, line, column + 1, Severity.ERROR, "it is wrong", rule)


def proposed(text, line, rule):
    """Titles, each with the fixed text."""
    found = find_quick_fixes(SourceFile(PATH, text), finding(text, line, rule))
    return {one.title: apply_edits(text, one.edits) for one in found}


def test_an_access_out_of_bounds_is_guarded_by_each_whole_number_parameter():
    found = proposed(UNGUARDED, 3, "KL010")
    assert list(found) == ["Guard with `if (i < n)`"]
    assert "    if (i < n) y[i] = f * x[i];\n" in found["Guard with `if (i < n)`"]


@pytest.mark.parametrize(
    ("column", "bounds"),
    [("int c = i % cols;", ["rows * cols", "rows", "cols"]), ("", ["rows", "cols", "rows * cols"])],
)
def test_an_index_that_is_split_into_row_and_column_is_guarded_by_the_product_first(column, bounds):
    text = UNGUARDED.replace("int n", "int rows, int cols").replace("    y[i]", f"    {column}\n    y[i]")
    assert list(proposed(text, 4, "KL010")) == [f"Guard with `if (i < {bound})`" for bound in bounds]


@pytest.mark.parametrize(
    ("wrong", "right"), [("if (i <= n) y[i]", "if (i < n) y[i]"), ("if (i > n) return;", "if (i >= n) return;")]
)
def test_a_guard_that_lets_one_too_many_through_is_made_stricter_first(wrong, right):
    text = UNGUARDED.replace("    y[i]", f"    {wrong}" if "y[i]" in wrong else f"    {wrong}\n    y[i]")
    line = text.count("\n", 0, text.index("= f * x[i]")) + 1
    first = next(iter(proposed(text, line, "KL010").values()))
    assert right in first
    assert first.replace(right, wrong) == text


def test_a_race_waits_before_the_line_or_at_the_end_of_its_loop():
    before, after = proposed(RACE, 5, "KL014").values()
    assert "x[threadIdx.x];\n        __syncthreads();\n        x[threadIdx.x] = tile" in before
    assert "tile[63 - threadIdx.x];\n        __syncthreads();\n    }\n}" in after


def test_nothing_is_proposed_for_other_rules_outside_of_kernels_or_in_python():
    assert proposed(UNGUARDED, 3, "KL012") == {}
    assert proposed("int n;\n" + UNGUARDED, 1, "KL010") == {}
    python = SourceFile(Path("k.py"), "import triton\n\n@triton.jit\ndef k(x, n):\n    pass\n")
    assert list(find_quick_fixes(python, finding("", 5, "KL010"))) == []


class Checked:
    """Checks by what a text holds: a guard fixes everything, a barrier brings another finding."""

    async def check(self, source):
        errors = [finding(source.text, 3, "KL010")] * (0 if "if (i < n)" in source.text else 2)
        if "__syncthreads" in source.text:
            errors = [finding(source.text, 5, "KL016")]
        return FileReport(source.path, Language.CUDA, "sm_90", ("k",), diagnostics=tuple(errors))


@pytest.mark.asyncio
async def test_only_what_a_check_finds_better_and_nothing_new_in_is_kept():
    source = SourceFile(PATH, UNGUARDED)
    [fix] = await judged(Checked(), source, await Checked().check(source))
    assert (fix.rule, fix.line, fix.title) == ("KL010", 3, "Guard with `if (i < n)`")
    race = SourceFile(PATH, RACE)
    report = FileReport(PATH, Language.CUDA, "sm_90", ("flip",), diagnostics=(finding(RACE, 5, "KL014"),) * 2)
    assert await judged(Checked(), race, report) == [], "one error of another kind is not better than two"
