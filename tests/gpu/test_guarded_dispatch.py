"""What wins on large sizes only is offered behind a condition, and the file as a whole is faster."""

from pathlib import Path

import pytest
import spinning
from judges import Judges, edited

from kernel_lsp.judge.verdict import Outcome

pytestmark = pytest.mark.gpu

CUDA = edited(spinning.KERNEL, spinning.rounds(2000))
LOOP = "round < ROUNDS;"
CUDA_CASES = ("CASES = [dict(n=1000), dict(n=1 << 20)]", "CASES = [dict(n=1000), dict(n=1 << 20), dict(n=1 << 21)]")

TRITON = '''import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, cols, rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * cols + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < cols
    state = tl.arange(0, BLOCK) + 1
    for _ in range(rounds):
        state = state ^ (state << 13)
        state = state ^ ((state >> 17) & 0x7FFF)
        state = state ^ (state << 5)
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, tl.where(state == 0, 0.0, 2.0 * x), mask=mask)


def scale(x):
    """Twice a matrix, after rounds of a generator that never reaches zero."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    scale_kernel[(rows,)](x, y, cols, 2000, BLOCK=triton.next_power_of_2(cols), num_warps=4)
    return y


CASES = [dict(rows=4, cols=256), dict(rows=16384, cols=256), dict(rows=32768, cols=256)]
CONTRACT = dict(contiguous=True, finite=True)


def inputs(rows, cols):
    return (torch.randn(rows, cols, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    return module.scale(x)
'''


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "scale.cu").write_text(CUDA)
    (folder / "scale_workload.py").write_text(edited(spinning.WORKLOAD, CUDA_CASES))
    return folder / "scale.cu"


def test_a_kernel_that_wins_on_large_sizes_only(judges: Judges, cuda: Path) -> None:
    variant = edited(CUDA, (LOOP, "round < (n >= 20000 ? ROUNDS / 2 : 2 * ROUNDS);"))
    found = judges.refine(cuda, variant)
    assert found.best is not None, found.reason + "; ".join(found.notes)
    assert (found.best.verdict, found.best.evidence.candidate_origin) == (Outcome.FASTER, "guard:user")
    split = found.best.evidence.split
    assert split is not None
    assert [case.path for case in split.cases] == ["old", "new", "new"]
    if split.predicate.startswith("n >= "):
        assert {case.path for case in split.fresh} == {"old", "new"}
    else:  # where code lies makes the old path slower by a few per cent behind one condition, and not behind another
        assert split.predicate.startswith("gridDim.x >= ")
        assert "`n >= " in split.note
    assert found.best.evidence.sources["candidate"].endswith(CUDA.partition("int n) {")[2])


def test_a_function_that_wins_on_many_rows_only(judges: Judges, tmp_path: Path) -> None:
    path = tmp_path / "scale_rows.py"
    path.write_text(TRITON)
    found = judges.refine(path, edited(TRITON, ("cols, 2000, BLOCK", "cols, 1000 if rows >= 64 else 4000, BLOCK")))
    assert found.best is not None, found.reason + "; ".join(found.notes)
    assert found.best.verdict is Outcome.FASTER
    assert found.best.evidence.candidate_label == "guarded: rows >= 256; variant"
    assert (
        "    if x.shape[0] >= 256:\n        return _scale_rows_from_256(x)\n"
        in found.best.evidence.sources["candidate"]
    )


@pytest.mark.parametrize("rounds", [1000, 4000])
def test_on_a_uniform_workload_no_guard_is_written(judges: Judges, cuda: Path, rounds: int) -> None:
    found = judges.refine(cuda, edited(CUDA, (LOOP, f"round < {rounds};")))
    assert not [one for one in found.tried if one.candidate.origin.startswith("guard:")]
    assert (found.best is not None) == (rounds < 2000), found.reason
