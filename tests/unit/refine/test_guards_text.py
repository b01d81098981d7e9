"""The text of a guarded file: the old one with lines put in, and right on both sides of the border."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict
from kernel_lsp.refine.guards.guarded import fresh_sizes
from kernel_lsp.refine.guards.predicate import GuardQuantity, Predicate, QuantityKind, Side, Term, find_predicate
from kernel_lsp.refine.guards.site import Guards, NotGuardedError, SeenCase, VariantChange
from kernel_lsp.refine.language import refine_part
from kernel_lsp.runner.messages.oracle import OtherSizes
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.capture import Capture, CapturedCase, capture_text
from kernel_lsp.workload.spec import WorkloadFile
from tests.scale_kernel import KERNEL, WORKLOAD

TRITON = '''"""Halves a tensor, a row a program."""

import torch
import triton
import triton.language as tl

WARPS = 1


@triton.jit
def halve_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < cols
    start = tl.program_id(0) * cols
    tl.store(y_ptr + start + at, 0.5 * tl.load(x_ptr + start + at, mask=mask), mask=mask)


# The way in.
def halve(x, *, factor=1.0):
    """Half of a matrix."""
    # A row a program.
    rows, cols = x.shape
    y = torch.empty_like(x)
    halve_kernel[(rows,)](x, y, cols, BLOCK=triton.next_power_of_2(cols), num_warps=WARPS)
    return y


CASES = [dict(rows=2, cols=40), dict(rows=9, cols=24)]


def inputs(rows, cols):
    return (torch.randn(rows, cols, device="cuda"),)


def reference(x):
    return 0.5 * x


def launch(module, x):
    return module.halve(x)
'''
N = GuardQuantity("n", "n", QuantityKind.SIZE, (40, 100), "n")
SLOW, QUICK = "0.5 * tl.load(x_ptr + start + at, mask=mask)", "tl.load(x_ptr + start + at, mask=mask) / 2"


def guards_of(target: Target) -> Guards:
    found = refine_part(target.language).guards
    assert found is not None
    return found


def matrix(rows: int, cols: int) -> SeenCase:
    return SeenCase({"rows": rows, "cols": cols}, (TensorSpec("float32", (rows, cols), (cols, 1), 0, 4 * rows * cols),))


def vector(n: int) -> SeenCase:
    spec = TensorSpec("float32", (n,), (1,), 0, 4 * n)
    return SeenCase({"n": n}, (spec,), (Launch("scale", (1, 1, 1), (128, 1, 1), arguments=(None, None, n)),))


def guarded(target: Target, variant: str, cases: list[SeenCase], sides: list[Side]) -> tuple[str, Predicate]:
    change = VariantChange(target.baseline, target.version(variant, "variant", "user"), target.workload, tuple(cases))
    predicate = find_predicate(guards_of(target).quantities(change), sides)
    assert predicate is not None
    return guards_of(target).write(change, predicate, "Measured: twice as fast from here on."), predicate


def is_old_with_more(old: str, new: str) -> bool:
    """Whether all lines of the old text stand in the new one in their order, no more than two blocks apart."""
    at, gaps, lines = 0, 0, new.split("\n")
    for line in old.split("\n"):
        start = at
        while at < len(lines) and lines[at] != line:
            at += 1
        gaps += at > start
        at += 1
    return at <= len(lines) and gaps <= 2


def triton_target(folder: Path) -> Target:
    (folder / "halve.py").write_text(TRITON)
    return make_target(folder / "halve.py")


def cuda_target(folder: Path, kernel: str = KERNEL) -> Target:
    (folder / "scale.cu").write_text(kernel)
    (folder / "scale_workload.py").write_text(WORKLOAD.replace("[dict(n=100)]", "[dict(n=40), dict(n=100)]"))
    return make_target(folder / "scale.cu")


@pytest.mark.fast
def test_triton_dispatches_in_the_function_that_launches(tmp_path: Path) -> None:
    text, predicate = guarded(
        triton_target(tmp_path), TRITON.replace(SLOW, QUICK), [matrix(2, 40), matrix(9, 24)], [Side.LOSES, Side.WINS]
    )
    assert str(predicate) == "rows >= 4"
    assert is_old_with_more(TRITON, text)
    assert (
        '''    """Half of a matrix."""
    # Measured: twice as fast from here on.
    if x.shape[0] >= 4:
        return _halve_rows_from_4(x, factor=factor)
    # A row a program.
    rows, cols = x.shape
'''
        in text
    )
    copy = text[text.index("def _halve_kernel_rows_from_4(") : text.index("# The way in.")]
    assert QUICK in copy
    assert SLOW not in copy
    assert "    _halve_kernel_rows_from_4[(rows,)](x, y, cols, BLOCK=" in copy
    assert "num_warps=WARPS)" in copy, "what the variant leaves as it is stays shared"


@pytest.mark.fast
def test_without_a_launch_the_only_public_function_is_the_place(tmp_path: Path) -> None:
    text = TRITON.partition("def launch")[0]
    (tmp_path / "halve.py").write_text(text)
    made, _ = guarded(
        make_target(tmp_path / "halve.py"),
        text.replace(SLOW, QUICK),
        [matrix(2, 40), matrix(9, 24)],
        [Side.LOSES, Side.WINS],
    )
    assert "    if x.shape[0] >= 4:\n        return _halve_rows_from_4(x, factor=factor)\n" in made


@pytest.mark.fast
def test_a_captured_function_is_the_place_of_its_guard(tmp_path: Path) -> None:
    target, tensor = (
        triton_target(tmp_path),
        {"kind": "tensor", "dtype": "float32", "shape": [2, 40], "stride": [40, 1]},
    )
    case = CapturedCase({"x": tensor, "factor": {"kind": "float", "value": 1.0}}, (), 1, 3, 0.1)
    capture = Capture("train.py", str(target.source.path), "halve", ("halve_kernel",), TRITON, (case,), 3)
    file = SourceFile(tmp_path / capture.file_name, capture_text(capture))
    captured = replace(target, workload=WorkloadFile(file, target.source.path, False, True, captured=True))
    cases = [replace(one, parameters={}, arguments=(*one.arguments, 1.0)) for one in (matrix(2, 40), matrix(9, 40))]
    text, predicate = guarded(captured, TRITON.replace(SLOW, QUICK), cases, [Side.LOSES, Side.WINS])
    assert str(predicate) == "x.shape[0] >= 4"
    assert "        return _halve_x_0_from_4(x, factor=factor)\n" in text


@pytest.mark.fast
def test_constants_that_the_variant_changes_get_names_of_their_own(tmp_path: Path) -> None:
    variant = TRITON.replace("WARPS = 1", "WARPS = 4\nSTAGES = 2").replace(
        "num_warps=WARPS", "num_warps=WARPS, num_stages=STAGES"
    )
    text, _ = guarded(triton_target(tmp_path), variant, [matrix(2, 40), matrix(9, 24)], [Side.WINS, Side.LOSES])
    assert is_old_with_more(TRITON, text)
    assert re.search(r"_WARPS_\w+ = 4\n\n\nSTAGES = 2\n", text)
    assert re.search(r"    halve_kernel\[\(rows,\)\]\(.*num_warps=_WARPS_\w+, num_stages=STAGES\)", text)


@pytest.mark.fast
def test_cuda_dispatches_at_the_head_of_the_kernel(tmp_path: Path) -> None:
    text, predicate = guarded(
        cuda_target(tmp_path),
        KERNEL.replace("0.5f * x[i]", "x[i] / 2"),
        [vector(40), vector(100)],
        [Side.LOSES, Side.WINS],
    )
    assert str(predicate) == "n >= 64"
    assert (
        text
        == """__device__ __forceinline__ void scale_n_from_64(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / 2;
}

__global__ void scale(const float* x, float* y, int n) {
    // Measured: twice as fast from here on.
    if (n >= 64) {
        scale_n_from_64(x, y, n);
        return;
    }
"""
        + KERNEL.partition("\n")[2]
    )


@pytest.mark.fast
def test_functions_and_constants_that_a_kernel_uses_come_with_it(tmp_path: Path) -> None:
    old = """// Half.
#define HALF 0.5f
constexpr int STEP = 1;
__device__ float half_of(float x) { return HALF * x * STEP; }
__device__ float twice(float x) { return half_of(x) * 2; }

// Scales.
template <typename T, int N = 1>
__global__ void scale(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
"""
    new = old.replace("STEP = 1;", "STEP = 2;").replace("#define HALF 0.5f\n", "#define HALF 0.5f\n#define MORE 1\n")
    target = cuda_target(tmp_path, old)
    text, _ = guarded(target, new, [vector(40), vector(100)], [Side.WINS, Side.LOSES])
    assert is_old_with_more(old, text)
    assert text.count("#define HALF") == 1
    assert "#define MORE 1\nconstexpr int STEP_n_below_64 = 2;\n" in text
    assert "half_of_n_below_64(float x) { return HALF * x * STEP_n_below_64; }" in text
    assert "template <typename T, int N = 1>\n__device__ __forceinline__ void scale_n_below_64(const T* x" in text
    assert "    if (n < 64) {\n        scale_n_below_64<T, N>(x, y, n);" in text


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("int n)", "long long n)"), "the variant changes the parameters of `scale`"),
        (("__global__ void scale", "__global__ void other"), "the variant has other kernels"),
        (("0.5f", "0.5f"), None),
    ],
)
def test_what_cannot_be_guarded_is_said(change: tuple[str, str], why: str | None, tmp_path: Path) -> None:
    target = cuda_target(tmp_path)
    made = VariantChange(
        target.baseline,
        target.version(KERNEL.replace(*change), "variant", "user"),
        target.workload,
        (vector(40), vector(100)),
    )
    if why is None:
        assert [q.name for q in guards_of(target).quantities(made)] == ["n"]
        return
    with pytest.raises(NotGuardedError, match=why):
        guards_of(target).quantities(made)


@pytest.mark.fast
def test_a_variant_with_another_launch_is_not_guarded_in_a_kernel(tmp_path: Path) -> None:
    target = cuda_target(tmp_path)
    other = target.version(KERNEL, "variant", "user", WORKLOAD.replace("(128,)", "(64,)"))
    with pytest.raises(NotGuardedError, match="changes how the kernel is launched"):
        guards_of(target).quantities(VariantChange(target.baseline, other, target.workload, (vector(40), vector(100))))


def judged(target: Target, text: str, folder: Path) -> Verdict:
    async def main() -> Verdict:
        settings, _ = load_settings(overrides={"judge.families": ["normal"], "paths.cache": folder / "cache"})
        async with open_session(target, settings) as session:
            return await session.judge(target.version(text, "guarded", "user"))

    return asyncio.run(main())


def test_a_session_knows_what_kernels_are_given_and_adds_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    async def main() -> tuple[list[tuple[object, ...]], tuple[str, ...]]:
        settings, _ = load_settings(overrides={"judge.families": ["normal"], "paths.cache": tmp_path / "cache"})
        async with open_session(cuda_target(tmp_path), settings) as session:
            assert session.baseline_built is not None
            assert session.harness is not None
            asked = ((0, {"n": 64}), (1, {"n": 1 << 40}), (1, {"n": 96}))
            added = await session.harness.oracle(OtherSizes(changes=asked))
            return [launch.arguments for plan in session.baseline_built.plans for launch in plan.launches], added

    assert asyncio.run(main()) == ([(None, None, 40), (None, None, 100)], ("n=64", "", "n=96"))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Predicate((Term(N, ">=", 64),)), [(1, {"n": 64}, "new"), (0, {"n": 60}, "old")]),
        (Predicate((Term(N, ">=", 100),)), [(1, {"n": 104}, "new"), (0, {"n": 96}, "old")]),
        (Predicate((Term(replace(N, parameter=""), ">=", 64),)), []),
    ],
)
def test_fresh_sizes_lie_on_both_sides_of_the_border(predicate: Predicate, expected: object) -> None:
    assert fresh_sizes(predicate, (vector(40), vector(100)), [Side.LOSES, Side.WINS]) == expected


@pytest.mark.fast
def test_fresh_sizes_keep_their_remainder() -> None:
    lengths = GuardQuantity("n", "n", QuantityKind.SIZE, (64, 80, 41), "n")
    found = fresh_sizes(
        Predicate((Term(lengths, "%", 16),)), (vector(64), vector(80), vector(41)), [Side.WINS, Side.WINS, Side.LOSES]
    )
    assert found == [(0, {"n": 96}, "new"), (2, {"n": 57}, "old")]


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_both_sides_compute_on_the_emulator(
    language: str, wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    sides = [Side.LOSES, Side.WINS]
    if language == "triton":
        target, cases = triton_target(tmp_path), [matrix(2, 40), matrix(9, 24)]
        text, _ = guarded(target, TRITON.replace(SLOW, QUICK), cases, sides)
        text = text.replace("/ 2", "/ 3") if wrong else text
    else:
        target, cases = cuda_target(tmp_path), [vector(40), vector(100)]
        text, _ = guarded(target, KERNEL.replace("0.5f * x[i]", "x[i] / 2"), cases, sides)
        text = text.replace("/ 2", "/ 3") if wrong else text
    verdict = judged(target, text, tmp_path)
    if wrong:
        assert verdict.verdict is Outcome.WRONG, "the new path runs where its condition holds"
        assert verdict.evidence.mismatch is not None
        assert ("rows=9" if language == "triton" else "n=100") in verdict.evidence.mismatch.case
    else:
        assert (verdict.verdict, verdict.stage) == (Outcome.UNTIMED, Stage.CORRECT), verdict.reason
