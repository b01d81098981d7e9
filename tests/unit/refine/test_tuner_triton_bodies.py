"""What can be turned inside Triton kernels, and the bound on registers at their launches."""

import re
from pathlib import Path

import pytest
from rewrite_triton_support import ptx

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.tunables import triton_body
from kernel_lsp.refine.tunables.space import Kind, Space, Tunable
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

SUM = """
import triton
import triton.language as tl


@triton.jit
def total(x, out, rows, cols, BLOCK: tl.constexpr):
    for row in range(rows):
        acc = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            acc += tl.load(x + row * cols + at, mask=at < cols, other=0.0)
        tl.store(out + row, tl.sum(acc), eviction_policy="evict_first")


def run(x, out):
    total[(1,)](x, out, x.shape[0], x.shape[1], BLOCK=128)
"""
SIGNATURE = {"x": "*fp32", "out": "*fp32", "rows": "i32", "cols": "i32"}
PRODUCT = SUM.replace("acc += tl.load", "acc += tl.dot").replace(
    "        tl.store", "        acc += tl.load(x)\n        tl.store"
)


def space(text: str = SUM, gpu: str = "H100") -> Space:
    base = Candidate(Language.TRITON, SourceFile(Path("k.py"), text), None, "baseline", "baseline")
    return find_tunables(base, "total", device_named(gpu))


def titled(found: Space, title: str) -> Tunable:
    return next(one for one in found.tunables if title in one.title)


def turned(found: Space, one: Tunable, name: str) -> str:
    choice = next(choice for choice in one.choices if str(choice) == name)
    candidate = found.form({one.name: choice})
    assert candidate is not None
    assert candidate.label == f"{one.title} {one.shown(one.current)} -> {name}"
    return candidate.kernel.text


def test_loads_and_stores_get_hints_and_those_that_are_there_are_changed() -> None:
    found = space()
    load, store = titled(found, "hint of the load in line 12"), titled(found, "hint of the store in line 13")
    assert 'other=0.0, eviction_policy="evict_last")' in turned(found, load, "evict_last")
    assert 'other=0.0, cache_modifier=".cg")' in turned(found, load, ".cg")
    assert str(store.current) == "evict_first"
    assert 'tl.sum(acc), cache_modifier=".cs")' in turned(found, store, ".cs")


def test_loads_of_a_product_get_no_hints() -> None:
    kinds = [one.title for one in space(PRODUCT).tunables if one.kind is Kind.CACHE]
    assert kinds == ["hint of the store in line 14"]


def test_loops_get_the_options_that_fit_their_place() -> None:
    found = space()
    outer, inner = titled(found, "loop in line 8"), titled(found, "loop in line 10")
    assert [str(choice) for choice in outer.choices] == ["as written", "flattened"]
    assert "for row in tl.range(rows, flatten=True):" in turned(found, outer, "flattened")
    assert "in tl.range(0, cols, BLOCK, loop_unroll_factor=4):" in turned(found, inner, "unrolled by 4")
    assert "in tl.range(0, cols, BLOCK, disable_licm=True):" in turned(found, inner, "nothing moved out")


def test_an_option_that_is_set_or_that_is_of_no_loop_is_not_offered() -> None:
    text = SUM.replace("range(0, cols, BLOCK)", "tl.range(0, cols, BLOCK, loop_unroll_factor=2)")
    assert [str(one) for one in titled(space(text), "loop in line 10").choices] == ["as written", "nothing moved out"]
    static = SUM.replace("range(0, cols, BLOCK)", "tl.static_range(0, 8)")
    assert "loop in line 10" not in {one.title for one in space(static).tunables}


@pytest.mark.parametrize(("gpu", "offered"), [("H100", False), ("B200", True), ("RTX 5090", False)])
def test_warps_are_specialised_only_where_the_hardware_can(gpu: str, offered: bool) -> None:
    loop = titled(space(PRODUCT, gpu), "loop in line 10")
    assert ("warps specialised" in map(str, loop.choices)) is offered
    assert ("one accumulator" in map(str, loop.choices)) is offered


def test_only_options_of_the_installed_triton_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_body, "loop_options", lambda: frozenset({"flatten"}))
    assert {one.title for one in space().tunables if one.kind is Kind.LOOP} == {"loop in line 8"}


def test_registers_are_bounded_at_the_launch_and_never_above_the_register_file() -> None:
    found = space()
    assert found.form({"maxnreg": 128}) is not None
    assert "BLOCK=128, maxnreg=128)" in turned(found, titled(found, "maxnreg"), "128")
    assert found.form({"maxnreg": 128, "num_warps": 32}) is None
    given = space(SUM.replace("BLOCK=128)", "BLOCK=128, maxnreg=96)"))
    assert "BLOCK=128, maxnreg=64)" in turned(given, titled(given, "maxnreg"), "64")
    whole = re.sub(r", BLOCK=128\)", ", BLOCK=128, **options)", SUM)
    assert "maxnreg" not in {one.name for one in space(whole).tunables}


def test_every_choice_inside_a_kernel_compiles(tmp_path: Path) -> None:
    found = space()
    inside = [one for one in found.tunables if one.kind in {Kind.LOOP, Kind.CACHE}]
    texts = [turned(found, one, str(choice)) for one in inside for choice in one.choices if choice != one.current]
    assert len(texts) == 8
    compiled = [ptx(tmp_path, text, SIGNATURE, {"BLOCK": 128}) for text in (SUM, *texts)]
    assert len(set(compiled)) > 5, "most of them make another machine code"
