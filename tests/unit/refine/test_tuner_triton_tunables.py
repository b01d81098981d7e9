"""The numbers of Triton kernels: sizes, warps, stages and autotune lists, in all the places where people write them."""

import ast
from pathlib import Path

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.tunables.space import Kind, Space, Tunable, Value, Written
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "triton").glob("*.py"))

HEAD = """import torch
import triton
import triton.language as tl

"""
KERNEL = (
    HEAD
    + """
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

"""
)
AUTOTUNED = (
    HEAD
    + """
@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=8, num_stages=2),
    ],
    key=["n"],
)
@triton.jit
def add_kernel(x, out, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.store(out + start, tl.load(x + start))


def add(x):
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
"""
)


def space(text: str, kernel: str = "add_kernel", workload: str | None = None) -> Space:
    launch = SourceFile(Path("w.py"), workload) if workload is not None else None
    return find_tunables(
        Candidate(Language.TRITON, SourceFile(Path("k.py"), text), launch, "baseline", "baseline"),
        kernel,
        device_named("H100"),
    )


def text(found: Space, **settings: Value) -> str:
    candidate = found.form(settings)
    assert candidate is not None
    ast.parse(candidate.kernel.text)
    return candidate.kernel.text


def numbers(found: Space) -> list[str]:
    """Names of what is turned outside of the kernel, but for the registers."""
    return [one.name for one in found.tunables if one.kind not in {Kind.REGISTERS, Kind.LOOP, Kind.CACHE}]


def tunable(found: Space, name: str) -> Tunable:
    return next(tunable for tunable in found.tunables if tunable.name == name)


def test_a_literal_keyword_and_the_grid_that_repeats_it() -> None:
    wrapper = "def add(x, y, o, n):\n    add_kernel[(triton.cdiv(n, 1024),)](x, y, o, n, BLOCK=1024, num_warps=4)\n"
    found = space(KERNEL + wrapper)
    new = text(found, BLOCK=512, num_warps=8)
    assert "add_kernel[(triton.cdiv(n, 512),)](x, y, o, n, BLOCK=512, num_warps=8)" in new
    candidate = found.form({"BLOCK": 512, "num_warps": 8})
    assert candidate is not None
    assert candidate.label == "BLOCK 1024 -> 512, num_warps 4 -> 8"


@pytest.mark.parametrize(
    ("wrapper", "expected"),
    [
        ("BLOCK = 1024\ndef add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n, BLOCK)\n", "BLOCK = 256\n"),
        ("def add(x, y, o, n, block=1024):\n    add_kernel[(8,)](x, y, o, n, BLOCK=block)\n", "block=256)"),
        ("def add(x, y, o, n):\n    b = 1024\n    add_kernel[(8,)](x, y, o, n, BLOCK=b)\n", "b = 256\n"),
        ("def add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n, 1024)\n", "o, n, 256)"),
    ],
    ids=["module constant", "parameter default", "local", "positional"],
)
def test_a_size_is_turned_where_it_is_written(wrapper: str, expected: str) -> None:
    assert expected in text(space(KERNEL + wrapper), BLOCK=256)


def test_the_default_of_a_compile_time_parameter() -> None:
    kernel = KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 1024")
    found = space(kernel + "def add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n)\n")
    assert "BLOCK: tl.constexpr = 2048" in text(found, BLOCK=2048)


def test_a_size_computed_from_the_problem_is_left_alone() -> None:
    wrapper = """def add(x, y, o, n):
    BLOCK = triton.next_power_of_2(n)
    add_kernel[(8,)](x, y, o, n, BLOCK=BLOCK)
"""
    assert numbers(space(KERNEL + wrapper)) == ["num_warps"]


def test_a_size_assigned_twice_is_left_alone() -> None:
    wrapper = """def add(x, y, o, n):
    b = 1024
    if n < 512:
        b = 256
    add_kernel[(8,)](x, y, o, n, BLOCK=b)
"""
    assert numbers(space(KERNEL + wrapper)) == ["num_warps"]


def test_launch_options_are_added_overridden_and_changed() -> None:
    loop = KERNEL.replace("    at =", "    for _ in range(n):\n        tl.load(x)\n    at =")
    bare = space(loop + "def add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n, BLOCK=64)\n")
    assert "BLOCK=64, num_stages=5, num_warps=8)" in text(bare, num_warps=8, num_stages=5)
    assert tunable(bare, "num_warps").current == 4
    trailing = space(KERNEL + "def add(x, y, o, n):\n    add_kernel[(8,)](\n        x, y, o, n, BLOCK=64,\n    )\n")
    assert "BLOCK=64, num_warps=8,\n" in text(trailing, num_warps=8)
    computed = space(
        KERNEL + "def add(x, y, o, n):\n    w = min(n // 256, 8)\n    add_kernel[(8,)](x, y, o, n, 64, num_warps=w)\n"
    )
    assert "64, num_warps=2)" in text(computed, num_warps=2)
    candidate = computed.form({"num_warps": 2})
    assert candidate is not None
    assert candidate.label == "num_warps as computed -> 2"


def test_stages_matter_only_with_a_loop() -> None:
    found = space(KERNEL + "def add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n, BLOCK=64)\n")
    assert "num_stages" not in {tunable.name for tunable in found.tunables}


def test_options_hidden_in_keywords_are_not_given_twice() -> None:
    found = space(KERNEL + "def add(x, y, o, n, **kw):\n    add_kernel[(8,)](x, y, o, n, BLOCK=64, **kw)\n")
    assert numbers(found) == ["BLOCK"]
    assert "maxnreg" not in {tunable.name for tunable in found.tunables}


def test_flags_and_problem_sizes_are_left_alone() -> None:
    kernel = KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, EVEN: tl.constexpr")
    found = space(kernel + "def add(x, y, o, n):\n    add_kernel[(8,)](x, y, o, n, BLOCK=64, HEAD_DIM=64, EVEN=1)\n")
    assert numbers(found) == ["BLOCK", "num_warps"]


def test_a_launch_in_the_workload_is_turned_there() -> None:
    workload = "def launch(module, x, y, o):\n    module.add_kernel[(8,)](x, y, o, 4, BLOCK=128)\n    return o\n"
    candidate = space(KERNEL, workload=workload).form({"BLOCK": 256})
    assert candidate is not None
    assert candidate.launch is not None
    assert "BLOCK=256" in candidate.launch.text
    assert candidate.kernel.text == KERNEL


def test_an_autotune_list_is_made_richer_or_fixed() -> None:
    found = space(AUTOTUNED)
    assert numbers(found) == ["configs"]
    written, richer, *single = found.tunables[0].choices
    assert str(written) == "as written"
    assert text(found, configs=richer).count("triton.Config(") > 6
    assert [str(choice) for choice in single[:2]] == ["BLOCK=512 num_warps=4", "BLOCK=1024 num_warps=8 num_stages=2"]
    assert 'configs=[triton.Config({"BLOCK": 1024}, num_warps=8, num_stages=2)],' in text(found, configs=single[1])
    assert len({choice.code for choice in found.tunables[0].choices if isinstance(choice, Written)}) == 2 + len(single)


@pytest.mark.parametrize(
    "names", [("BLOCK_M", "BLOCK_N", "BLOCK_K"), ("BM", "BN", "BK"), ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")]
)
def test_a_product_is_offered_the_tiles_that_win_for_products(names: tuple[str, str, str]) -> None:
    m, n, k = names
    constants = f'{{"{m}": 64, "{n}": 64, "{k}": 32, "GROUP_M": 8}}'
    source = AUTOTUNED.replace('{"BLOCK": 512}, num_warps=4', f"{constants}, num_warps=4, num_stages=3").replace(
        '        triton.Config({"BLOCK": 1024}, num_warps=8, num_stages=2),\n', ""
    )
    _, richer, first, *_ = tunable(space(source), "configs").choices
    large = f'triton.Config({{"{m}": 128, "{n}": 256, "{k}": 64, "GROUP_M": 8}}, num_warps=8, num_stages=3)'
    assert isinstance(richer, Written)
    assert isinstance(first, Written)
    assert richer.code.startswith(f"[triton.Config({constants}, num_warps=4, num_stages=3), ")
    assert 6 <= richer.code.count("triton.Config(") <= 12
    assert large in richer.code
    assert first.code == f"[{large}]"


def test_a_computed_autotune_list_is_left_alone() -> None:
    listed = AUTOTUNED[AUTOTUNED.index("configs=[") : AUTOTUNED.index("    key=")]
    computed = AUTOTUNED.replace(
        listed, 'configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (4, 8)],\n'
    )
    assert numbers(space(computed)) == []


def test_a_list_kept_in_a_constant_is_turned_there() -> None:
    listed = AUTOTUNED[AUTOTUNED.index("[\n        triton.Config") : AUTOTUNED.index(",\n    key=")]
    named = AUTOTUNED.replace(listed, "CONFIGS").replace(
        "\n@triton.autotune", f"\nCONFIGS = {listed}\n\n\n@triton.autotune"
    )
    found = space(named)
    fixed = text(found, configs=found.tunables[0].choices[2])
    assert 'CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4)]\n' in fixed
    assert "configs=CONFIGS" in fixed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_candidate_of_the_examples_parses(path: Path) -> None:
    source = path.read_text()
    kernels = [
        node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    for kernel in kernels:
        found = space(source, kernel)
        for t in found.tunables:
            for choice in t.choices:
                text(found, **{t.name: choice})
