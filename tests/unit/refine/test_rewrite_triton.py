from pathlib import Path

import pytest
from rewrite_triton_support import interpret, ptx, rewritten

from kernel_lsp.refine.rewrites.triton import cache_hints, persistent, pipelined_loop, whole_row

LAYERNORM = """
import torch
import triton
import triton.language as tl


@triton.jit
def layernorm(x_ptr, weight_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n_cols
    y_ptr += row * n_cols

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / n_cols
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols - mean * mean + eps)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask)
        weight = tl.load(
            weight_ptr + cols,
            mask=mask,
        )
        tl.store(y_ptr + cols, (x - mean) * rstd * weight, mask=mask)


def run(x, weight):
    y = torch.empty_like(x)
    layernorm[(x.shape[0],)](x, weight, y, x.shape[1], 1e-5, BLOCK=64)
    return y
"""
SIGNATURE = {"x_ptr": "*fp32", "weight_ptr": "*fp32", "y_ptr": "*fp32", "n_cols": "i32", "eps": "fp32"}
CHECK = """
import kernel, torch
x, weight = torch.randn(7, 100), torch.randn(100)
expected = torch.nn.functional.layer_norm(x, (100,), weight, eps=1e-5)
torch.testing.assert_close(kernel.run(x, weight), expected, rtol=1e-4, atol=1e-4)
"""


def test_hints_fit_what_is_read_again(tmp_path: Path) -> None:
    first, last, stores, past = rewritten(cache_hints.rewrite, LAYERNORM)
    assert first.kernel.text.count("evict_first") == 2
    assert 'tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")' in last.kernel.text
    assert 'tl.load(x_ptr + cols, mask=mask, eviction_policy="evict_first")' in last.kernel.text
    assert 'mask=mask, eviction_policy="evict_last",\n' in last.kernel.text
    text = ptx(tmp_path, last.kernel.text, SIGNATURE, {"BLOCK": 64})
    assert "L2::evict_last" in text
    assert "L2::evict_first" in text
    assert "st.global.cs" in ptx(tmp_path, stores.kernel.text, SIGNATURE, {"BLOCK": 64})
    assert "ld.global.cg" in ptx(tmp_path, past.kernel.text, SIGNATURE, {"BLOCK": 64})


def test_hints_that_stand_are_kept() -> None:
    hinted = LAYERNORM.replace("mask=mask)", 'mask=mask, cache_modifier=".ca")').replace(
        "other=0.0)", 'other=0.0, eviction_policy="evict_last")'
    )
    for candidate in rewritten(cache_hints.rewrite, hinted):
        assert candidate.kernel.text.count('cache_modifier=".ca"') == 2
        assert candidate.kernel.text.count('other=0.0, eviction_policy="evict_last")') == 1


def test_loops_get_stages(tmp_path: Path) -> None:
    candidates = rewritten(pipelined_loop.rewrite, LAYERNORM)
    assert [c.label for c in candidates] == ["loops of 4 stages", "loops of 3 stages", "loops of 2 stages"]
    assert candidates[1].kernel.text.count("in tl.range(0, n_cols, BLOCK, num_stages=3):") == 2
    ptx(tmp_path, candidates[1].kernel.text, SIGNATURE, {"BLOCK": 64})
    assert rewritten(pipelined_loop.rewrite, candidates[0].kernel.text) == []


def test_a_matrix_product_gets_hints_on_its_stores_alone_and_an_autotuner_keeps_its_stages() -> None:
    product = (Path(__file__).parents[3] / "examples" / "triton" / "matmul.py").read_text()
    assert [c.label for c in rewritten(cache_hints.rewrite, product)] == ["streaming stores"]
    assert rewritten(pipelined_loop.rewrite, product) == []
    assert len(rewritten(pipelined_loop.rewrite, product.replace("@triton.autotune", "@settings"))) == 3


@pytest.mark.parametrize(("gpu", "multiprocessors"), [("A100", 108), ("RTX 4090", 128)])
def test_persistent_programs_are_as_many_as_the_device_holds(gpu: str, multiprocessors: int) -> None:
    texts = [candidate.kernel.text for candidate in rewritten(persistent.rewrite, LAYERNORM, gpu)]
    assert f"min(x.shape[0], {16 * multiprocessors})" in texts[0]
    assert f"min(x.shape[0], {4 * multiprocessors})" in texts[1]


@pytest.mark.parametrize(
    "launch", ["    copy[(4,)](x, n)", "\ncopy[(4,)](copy[(2,)](x, n), n)", "\ncopy[(copy[(2,)](x, n),)](x, n)"]
)
def test_launches_inside_the_kernel_or_another_launch_leave_it_alone(launch: str) -> None:
    head = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef copy(x, n):\n"
    body = "    tl.store(x + tl.program_id(0), 1.0)\n"
    assert rewritten(persistent.rewrite, f"{head}{body}\ncopy[(4,)](x, n)\n") != []
    assert rewritten(persistent.rewrite, f"{head}{body}{launch}\n") == []


def test_persistent_programs_take_every_row(tmp_path: Path) -> None:
    candidates = rewritten(persistent.rewrite, LAYERNORM)
    assert len(candidates) == 2
    assert "layernorm[(min(x.shape[0], 2112),)](" in candidates[0].kernel.text
    ptx(tmp_path, candidates[1].kernel.text, SIGNATURE | {"total_programs": "i32"}, {"BLOCK": 64})
    interpret(tmp_path, candidates[1].kernel.text.replace("528", "3"), CHECK)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layernorm[(x.shape[0],)]", "layernorm[lambda meta: (x.shape[0],)]"),
        ("    row = tl", "    if eps < 0:\n        return\n    row = tl"),
        ("mean = tl.sum", "n_cols -= 1\n    mean = tl.sum"),
        ("x_ptr += row * n_cols", "x_ptr += row * n_cols * tl.num_programs(0) // tl.num_programs(0)"),
    ],
)
def test_programs_that_cannot_stay(old: str, new: str) -> None:
    assert rewritten(persistent.rewrite, LAYERNORM.replace(old, new, 1)) == []


def test_nothing_to_load_nothing_to_say() -> None:
    source = """
@triton.jit
def fill(y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.store(y_ptr + start + tl.arange(0, BLOCK), 1.0, cache_modifier=".cs")
"""
    for module in (cache_hints, persistent, pipelined_loop):
        assert rewritten(module.rewrite, source) == []


def test_a_row_in_one_block_is_loaded_once(tmp_path: Path) -> None:
    wide, narrow = rewritten(whole_row.rewrite, LAYERNORM)
    text = wide.kernel.text
    assert "for start" not in text
    assert text.count("tl.load(x_ptr") == 1
    assert text.count("cols = tl.arange(0, BLOCK)") == 1
    bits = "(x.shape[1] - 1).bit_length()"
    assert f"1e-5, BLOCK=1 << {bits}, num_warps=1 << min(max({bits} - 9, 2), 4))" in text
    assert f"{bits} - 8" in narrow.kernel.text
    # 1024 columns, 4 warps: 8 floats a thread in two 16-byte loads, for the row and for the weights.
    assert ptx(tmp_path, text, SIGNATURE, {"BLOCK": 1024}).count("ld.global") <= 2 * 8
    interpret(tmp_path, text, CHECK)


@pytest.mark.thorough
def test_the_example_in_one_block_is_right_on_odd_rows(tmp_path: Path) -> None:
    source = (Path(__file__).parents[3] / "examples" / "triton" / "layernorm.py").read_text()
    check = """
import kernel, torch
x, weight, bias = torch.randn(5, 83).half(), torch.randn(83).half(), torch.randn(83).half()
expected = torch.nn.functional.layer_norm(x, (83,), weight, bias)
torch.testing.assert_close(kernel.layernorm(x, weight, bias), expected, rtol=2e-3, atol=2e-3)
"""
    (wide, _) = rewritten(whole_row.rewrite, source)
    assert wide.kernel.text.count("tl.load(x_ptr") == 1
    interpret(tmp_path, wide.kernel.text, check)


@pytest.mark.thorough
def test_what_is_loaded_under_the_same_name_in_every_pass_is_loaded_once(tmp_path: Path) -> None:
    source = (Path(__file__).parents[2] / "exploits/softmax/softmax.py").read_text()
    check = """
import kernel, torch
x, bias = torch.randn(5, 83), torch.randn(83)
torch.testing.assert_close(kernel.softmax(x, bias), torch.softmax(x + bias, 1))
"""
    (wide, _) = rewritten(whole_row.rewrite, source)
    assert (source.count("tl.load("), wide.kernel.text.count("tl.load(")) == (6, 2)
    interpret(tmp_path, wide.kernel.text, check)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BLOCK=64)", "BLOCK=x.shape[1])"),  # not a number
        ("row * n_cols\n", "row * n_cols + BLOCK\n"),  # more than a width
        ("range(0, n_cols, BLOCK)", "range(BLOCK, n_cols, BLOCK)"),
        ("    mean = tl.sum", "    n_cols -= 1\n    mean = tl.sum"),
        ("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit"),
    ],
)
def test_rows_that_stay_in_blocks(old: str, new: str) -> None:
    assert old in LAYERNORM
    assert rewritten(whole_row.rewrite, LAYERNORM.replace(old, new)) == []


def test_what_a_store_may_have_changed_is_loaded_again() -> None:
    in_place = LAYERNORM.replace("    mean = tl", "    tl.store(y_ptr, 0.0)\n    mean = tl")
    moved = LAYERNORM.replace("    mean = tl", "    x_ptr += n_cols\n    mean = tl")
    filled = LAYERNORM.replace("mask=mask)\n        weight", "mask=mask, other=1.0)\n        weight")
    for source in (in_place, moved, filled):
        assert source != LAYERNORM
        assert rewritten(whole_row.rewrite, source)[0].kernel.text.count("tl.load(x_ptr") == 2
