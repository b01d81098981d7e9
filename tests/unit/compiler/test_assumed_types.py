"""Triton files without a workload: what is known of their kernels, what is assumed, and what is said of both."""

import time
from collections.abc import Generator
from pathlib import Path

import pytest
import torch

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.triton.assumed import build_assumed
from kernel_lsp.compiler.triton.build import TritonBuild
from kernel_lsp.compiler.triton.forks import in_forks
from kernel_lsp.device.device import device_named
from kernel_lsp.source.candidate import SourceFile

HELPERS = """
import not_installed_anywhere
import triton
import triton.language as tl

@triton.jit
def gather(table, row, columns, mask):
    return tl.load(table + row * 64 + columns, mask=mask)
"""
KERNELS = """
import torch
import triton
import triton.language as tl
from missing_package import bench
from .helpers import gather

assert bench.run()

@triton.jit
def told(x, y, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * alpha, mask=i < n)

@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def rows(ids, table, out, n, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    values = gather(table, row, columns, columns < n)
    if EVEN:
        values = values / tl.sqrt(tl.sum(values * values) + eps)
    tl.store(out + tl.program_id(0) * n + columns, values, mask=columns < n)

@triton.jit
def needs(x):
    tl.store(x, bench.FACTOR)

@triton.jit
def typed(x: "*fp16", ACTIVATION: tl.constexpr):
    v = tl.load(x)
    if ACTIVATION == "relu":
        v = tl.maximum(v, 0)
    tl.store(x, v)

@triton.jit
def clash(x, OUT: tl.constexpr):
    tl.store(x, tl.dot(tl.zeros((3, 5), OUT), tl.zeros((5, 3), OUT)))

def host(x):
    y = torch.empty(x.shape, dtype=torch.bfloat16)
    told[(4,)](x, y, x.numel(), 2.5, BLOCK=512, num_warps=8)

if __name__ == "__main__":
    raise RuntimeError
"""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Generator[None]:
    """As workers have it: torch's other threads are missing in a fork, which would wait for them."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def built(folder: Path, text: str) -> tuple[TritonBuild, dict[str, Assumed]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        path = folder / "package/kernels.py"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").write_text("raise RuntimeError('nobody needs this')")
        (path.parent / "helpers.py").write_text(HELPERS)
        path.write_text(text)
        made, assumed = build_assumed(SourceFile(path, text), device_named("sm_90"), 2)
    return made, {one.kernel: one for one in assumed}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[TritonBuild, dict[str, Assumed]]:
    return built(tmp_path_factory.mktemp("assumed"), KERNELS)


def test_what_a_launch_in_the_file_tells_is_not_assumed(kernels) -> None:
    made, assumed = kernels
    assert assumed["told"].compiled
    assert assumed["told"].types == ("x: *fp32",)
    facts = next(fact for fact in made.build.binary.kernels if fact.name.startswith("told"))
    assert facts.name == "told[BLOCK=512, num_warps=8]"
    ptx = next(binary.ptx for binary in made.binaries if "told" in binary.kernels[0].name)
    assert "bf16" in ptx, "the type of a tensor that host code makes"


def test_decorators_and_uses_tell_the_rest(kernels) -> None:
    made, assumed = kernels
    assert assumed["rows"].compiled, assumed["rows"].problem
    assert assumed["rows"].types == ("ids: *i64", "table: *fp32", "out: *fp32", "n: i32", "eps: fp32")
    assert assumed["typed"].types == ("ACTIVATION=relu",)
    names = [fact.name for fact in made.build.binary.kernels]
    assert "rows[BLOCK=128, EVEN=True, num_warps=2]" in names, "the first configuration, with its heuristics"
    assert all(fact.registers > 0 for fact in made.build.binary.kernels)


def test_what_cannot_be_loaded_or_compiled_says_why(kernels) -> None:
    made, assumed = kernels
    assert not assumed["needs"].compiled
    assert "line 5" in assumed["needs"].problem
    assert "missing_package" in assumed["needs"].problem
    assert not assumed["clash"].compiled
    assert assumed["clash"].types == ("x: *fp32", "OUT=tl.float32")
    assert assumed["clash"].problem == "line 39: Shape element 0 must be a power of 2"
    (warning,) = made.build.diagnostics
    assert (warning.line, warning.severity) == (5, "warning")
    assert "missing_package" in warning.message


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("tl.lod(x)", "module 'triton.language' has no attribute 'lod'"),
        ("tl.store(x, nowhere)", "nowhere is not defined"),
        (
            "tl.store(x, tl.math.pow(tl.load(x), 2.0))",
            (
                "module 'triton.language.math' has no attribute 'pow'. Triton 3 has it elsewhere: write "
                "`from triton.language.extra import libdevice` and call `libdevice.pow(...)`."
            ),
        ),
        (
            "tl.store(x, tl.sum(tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16), trans_b=True)))",
            (
                "dot() got an unexpected keyword argument 'trans_b'. `tl.dot` transposes nothing any more: write "
                "`tl.dot(a, tl.trans(b))`."
            ),
        ),
    ],
)
def test_what_is_wrong_for_any_types_is_an_error_at_its_line(statement: str, said: str, tmp_path: Path) -> None:
    text = f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x):\n    {statement}\n"
    made, assumed = built(tmp_path, text)
    (error,) = made.build.diagnostics
    assert (error.line, error.severity, error.message) == (6, "error", said)
    assert made.build.binary is None
    assert not assumed["k"].compiled


def test_an_error_in_one_kernel_costs_no_other_its_facts_and_a_helper_is_no_kernel(tmp_path: Path) -> None:
    text = """import triton
import triton.language as tl

@triton.jit
def wrong(x):
    tl.store(x, nowhere)

@triton.jit
def combine(a, b):
    return a + b

@triton.jit
def right(x, LOSS_TYPE: tl.constexpr, N: tl.constexpr):
    v = tl.associative_scan(tl.load(x + tl.arange(0, N)), 0, combine)
    if LOSS_TYPE == 3:
        scaled = v * 2
    elif LOSS_TYPE == 4:
        scaled = v * 3
    tl.store(x + tl.arange(0, N), scaled)
"""
    made, assumed = built(tmp_path, text)
    assert [error.line for error in made.build.diagnostics] == [6]
    assert {name: one.compiled for name, one in assumed.items()} == {"wrong": False, "right": True}
    assert "LOSS_TYPE=3" in assumed["right"].types, "one of the values that it is compared with"
    assert [fact.name.partition("[")[0] for fact in made.build.binary.kernels] == ["right"]


def test_a_name_that_switches_leave_unbound_is_no_error(tmp_path: Path) -> None:
    text = """import triton
import triton.language as tl

@triton.jit
def k(x, y, HAS_A: tl.constexpr, USE_B: tl.constexpr):
    if not HAS_A:
        a = tl.load(x)
    if USE_B:
        tl.store(y, a)
"""
    made, assumed = built(tmp_path, text)
    assert made.build.diagnostics == ()
    assert assumed["k"].compiled
    assert {"HAS_A=False", "USE_B=False"} <= set(assumed["k"].types)


def test_what_there_was_no_time_for_is_said_and_is_not_for_good(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("kernel_lsp.compiler.triton.assumed._SECONDS", 0.0)
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
    _, assumed = built(tmp_path, text)
    assert (assumed["k"].problem, assumed["k"].hurried) == ("there was no time left to compile it", True)


def test_work_that_hangs_or_crashes_costs_its_own_process_alone() -> None:
    def hang() -> str:
        while True:
            pass

    def crash() -> str:
        raise RuntimeError

    answers = in_forks([lambda: "first", hang, crash, lambda: "last"], 2, 1, time.perf_counter() + 60)
    assert answers == ["first", None, None, "last"]


def test_a_missing_package_matters_only_where_its_value_does(tmp_path: Path) -> None:
    """A test of a version by a helper of a package that is not here: one branch is taken, and that is said."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "versions.py").write_text(
        "import math, triton.language as tl\n"
        "from not_installed_anywhere.utils import Version, mark\n"
        "if Version('3.1') < Version('2.4'):\n    raise RuntimeError('too old')\n"
        "elif Version('3.1') >= Version('3.0'):\n    cast = tl.cast\n"
        "else:\n    cast = None\n"
        "@mark\nclass Settings(Version.base):\n    pass\n"
    )
    made, assumed = built(
        tmp_path,
        "import triton\nimport triton.language as tl\nfrom .versions import Version, cast, mark\n\n"
        "@triton.jit\ndef copied(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = cast(tl.program_id(0), tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)\n\n"
        "@mark\n@triton.jit\ndef marked(x):\n    tl.store(x, 1.0)\n\n"
        "@triton.jit\ndef asks(x):\n    tl.store(x, Version.number)\n",
    )
    assert assumed["copied"].compiled, assumed["copied"].problem
    why = "for which `not_installed_anywhere` is missing"
    assert f"the test at versions.py, line 3 does not hold, {why}" in assumed["copied"].types
    assert f"the test at versions.py, line 5 holds, {why}" in assumed["copied"].types
    assert assumed["marked"].compiled
    assert assumed["marked"].types[0].startswith("without its decorators, because versions.py, line 2")
    assert not assumed["asks"].compiled
    assert "not_installed_anywhere" in assumed["asks"].problem
    assert not made.build.diagnostics, "it is a module of others that is missing"


def test_what_a_call_further_up_prepares_is_prepared(tmp_path: Path) -> None:
    """A library may ask a function of its own for its device, once another call has looked for it."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "device.py").write_text(
        "name = None\ndef look_for(kind):\n    global name\n    name = kind\ndef block():\n    return len('x' + name)\n"
    )
    _, assumed = built(
        tmp_path,
        "import triton\nimport triton.language as tl\nfrom . import device\n"
        "device.look_for('gpu')\nBLOCK = tl.constexpr(device.block())\n\n"
        "@triton.jit\ndef ones(x):\n    tl.store(x + tl.arange(0, BLOCK), 1.0)\n",
    )
    assert assumed["ones"].compiled, assumed["ones"].problem


def test_arrays_may_have_to_hold_whole_numbers(tmp_path: Path) -> None:
    _, assumed = built(
        tmp_path,
        "import triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef counted(parts, n, BLOCK: tl.constexpr):\n    total = 0\n"
        "    for start in range(0, n, BLOCK):\n        i = start + tl.arange(0, BLOCK)\n"
        "        total += tl.sum(tl.load(parts + i, mask=i < n, other=0), 0)\n"
        "    tl.store(parts, total)\n",
    )
    assert assumed["counted"].compiled, assumed["counted"].problem
    assert "parts: *i32" in assumed["counted"].types


LAUNCHED_WITH_STARS = """import torch
import triton
import triton.language as tl

@triton.jit
def passed(x_ptr, out_ptr, n, stride_x, stride_out, step, CAUSAL: tl.constexpr, dtype: tl.constexpr):
    if CAUSAL:
        n = n // 2
    at = x_ptr + tl.arange(0, 64) * stride_x
    for _ in range(n):
        tl.store(out_ptr + tl.arange(0, 64) * stride_out, tl.load(at).to(dtype))
        at += step

def run(x, out, pair, causal):
    passed[(1,)](x, out, 64, *((x.stride(0), 1) if causal else (0, 0)), x.stride(0), True, tl.float16)

@triton.jit
def unknown(x_ptr, n, CAUSAL: tl.constexpr, dtype: tl.constexpr):
    if CAUSAL:
        tl.store(x_ptr + tl.arange(0, 64), tl.zeros((64,), dtype))

def other(x, sizes):
    unknown[(1,)](x, *sizes, tl.float16)
"""


def test_starred_arguments_shift_no_others(tmp_path: Path) -> None:
    made, assumed = built(tmp_path, LAUNCHED_WITH_STARS)
    assert not made.build.diagnostics, "what holds of an assumed type only is no error"
    assert assumed["passed"].compiled, assumed["passed"].problem
    assert not any(one.startswith(("CAUSAL", "dtype", "step: *")) for one in assumed["passed"].types)
    assert assumed["unknown"].compiled, assumed["unknown"].problem
    assert any(one.startswith("dtype=") for one in assumed["unknown"].types), "nothing tells what follows the star"


def test_tuples_and_descriptors_are_told_by_how_they_are_read(tmp_path: Path) -> None:
    """Strides are passed as a tuple, and a descriptor under another name to a function of `tl`."""
    text = """
import triton
import triton.language as tl

@triton.jit
def strided(x, y, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i * stride[1], tl.load(x + i * stride[0]))

@triton.jit
def described(a_desc, b_desc, out_desc):
    for at in tl.static_range(2):
        own = a_desc if at == 0 else b_desc
        tl.store_tensor_descriptor(out_desc, (0, at), tl.load_tensor_descriptor(own, (0, at)))
"""
    path = tmp_path / "k.py"
    path.write_text(text)
    _, (strided, described) = build_assumed(SourceFile(path, text), device_named("sm_90"), 2)
    assert strided.compiled, strided.problem
    assert "stride: 2 integers" in strided.types
    assert described.compiled, described.problem
    assert {"a_desc: desc", "b_desc: desc", "out_desc: desc"} <= set(described.types)


INTEGERS = """import torch
import triton
import triton.language as tl

MODE_SUM = tl.constexpr(12)

@triton.jit
def low(value, shift: tl.constexpr):
    return (value >> shift) & 15

@triton.jit
def unpack(value, shift: tl.constexpr):
    return low(value, shift)

@triton.jit
def packed(weights, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(weights + i)
    tl.store(out + i, unpack(value, 4).to(tl.float32))

@triton.jit
def ranged(ends, starts, counts, out, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    if at > 0:
        at -= tl.load(ends + at - 1)
    base = tl.load(starts + at) - tl.load(counts + at)
    for part in range(tl.cdiv(tl.load(counts + at), BLOCK)):
        tl.store(out + base + part * BLOCK + tl.arange(0, BLOCK), 1.0)

def run(x):
    ends = torch.empty(8, dtype=x.dtype)
    ranged[(1,)](ends, torch.zeros(8, dtype=x.dtype), torch.cumsum(ends, 0), x, BLOCK=64)

@triton.jit
def choosing(x, mode: tl.constexpr):
    if mode == MODE_SUM:
        tl.store(x, 1.0)
    else:
        tl.static_assert(False, "no such mode")

@triton.jit
def typed(x, out):
    kind: tl.constexpr = x.dtype.element_ty
    if kind == tl.bfloat16:
        parts: tl.constexpr = 2
    tl.store(out, tl.load(x) * parts)

@triton.jit
def product(x, BLOCK: tl.constexpr, PER_TH: tl.constexpr):
    i = tl.arange(0, BLOCK * PER_TH)
    tl.store(x + i, tl.load(x + i) + 1)

@triton.jit
def grouped(x, BLOCK: tl.constexpr, GROUP: tl.constexpr = 128):
    i = tl.arange(0, BLOCK)
    values = tl.load(x + i[:, None] * BLOCK + i[None, :]).reshape(BLOCK, BLOCK // GROUP, GROUP)
    tl.store(x + i, tl.sum(tl.sum(values, 2), 1))

@triton.jit
def dequantised(codes, factors, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = tl.load(codes + i)
    values = (values >> 4) & 15
    values = values * tl.load(factors + i)
    tl.store(out + i, values)
"""


def test_the_bits_and_indices_that_helpers_take_make_integers_of_what_is_loaded(tmp_path: Path) -> None:
    _, assumed = built(tmp_path, INTEGERS)
    for one in assumed.values():
        assert one.compiled, (one.kernel, one.problem)
    assert "weights: *i32" in assumed["packed"].types
    assert {"ends: *i32", "starts: *i32", "counts: *i32"} <= set(assumed["ranged"].types), "as wide as `at`"
    assert "mode=12" in assumed["choosing"].types
    assert "x: *bf16" in assumed["typed"].types
    assert {"BLOCK=64", "PER_TH=64"} <= set(assumed["product"].types)
    assert "BLOCK=128" in assumed["grouped"].types
    assert {"codes: *i32", "factors: *fp32"} <= set(assumed["dequantised"].types), "only what is loaded is shifted"


def test_kernels_that_a_function_defines_are_compiled(tmp_path: Path) -> None:
    """As where a library makes them only once Triton is found."""
    _, assumed = built(
        tmp_path,
        "def kernels(block):\n"
        "    import triton\n    import triton.language as tl\n"
        "    if not triton.__version__:\n        return None\n"
        "    ROW = tl.constexpr(64)\n"
        "    configs = [triton.Config({'BLOCK': 128})]\n\n"
        "    @triton.autotune(configs=configs, key=[])\n    @triton.jit\n"
        "    def ones(x, BLOCK: tl.constexpr):\n        tl.store(x + ROW + tl.arange(0, BLOCK), 1.0)\n\n"
        "    SIZE = tl.constexpr(block)\n\n"
        "    @triton.jit\n    def sized(x):\n        tl.store(x + tl.arange(0, SIZE), 1.0)\n\n"
        "    return ones, sized\n",
    )
    assert assumed["ones"].compiled, assumed["ones"].problem
    assert not assumed["sized"].compiled
    assert "block" in assumed["sized"].problem


def test_kernels_that_are_static_methods_are_compiled_where_one_class_has_the_name(tmp_path: Path) -> None:
    text = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3.0)

class Scale:
    @staticmethod
    @triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
    @triton.jit
    def forward(x, n, EVEN: tl.constexpr):
        tl.store(x + tl.program_id(0), tl.load(x) * FACTOR)

    @staticmethod
    @triton.jit
    def twice(x):
        tl.store(x, tl.load(x))

class Shift:
    @staticmethod
    @triton.jit
    def twice(x):
        tl.store(x, tl.load(x) + 1)
"""
    found, assumed = built(tmp_path, text)
    assert found.build.binary is not None
    assert {kernel.name.partition("[")[0] for kernel in found.build.binary.kernels} == {"forward"}
    assert "inside of a function or class" in assumed["twice"].problem


def test_kernels_in_a_try_are_compiled_without_what_fails_there(tmp_path: Path) -> None:
    """Its lines end as on Windows, which Triton's own reading of an indented function would trip over."""
    text = (
        "try:\n"
        "    import triton\n    import triton.language as tl\n"
        "    class Tuner(triton.NoSuchThing):\n        pass\n\n"
        "    @Tuner\n    @triton.jit\n"
        "    def tuned(x, BLOCK: tl.constexpr):\n\n        tl.store(x + tl.arange(0, BLOCK), 1.0)\n\n"
        "    @triton.jit\n    def plain(x):\n\n        tl.store(x, 1.0)\n"
        "except Exception:\n    print('no Triton')\n"
    )
    _, assumed = built(tmp_path, text.replace("\n", "\r\n"))
    assert assumed["plain"].compiled, assumed["plain"].problem
    assert assumed["tuned"].compiled, assumed["tuned"].problem
    assert "without its decorators" in assumed["tuned"].types[0]
    assert "NoSuchThing" in assumed["tuned"].types[0]


def test_constants_that_triton_1_took_from_keywords_are_an_error_at_their_line(tmp_path: Path) -> None:
    made, assumed = built(
        tmp_path,
        "import triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef k(\n    x,\n    **meta\n):\n    tl.store(x + tl.arange(0, meta['BLOCK']), 1.0)\n\n"
        "def host(x):\n    k[(1,)](x, BLOCK=64)\n",
    )
    (error,) = made.build.diagnostics
    assert (error.line, error.message) == (7, assumed["k"].problem)
    assert error.message.startswith("Triton 3 passes no `**meta`")


def test_the_limits_of_a_type_are_numbers(tmp_path: Path) -> None:
    _, assumed = built(
        tmp_path,
        "import triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef cut(x, fp8_dtype_min: tl.constexpr, fp8_dtype_max: tl.constexpr, out_dtype: tl.constexpr):\n"
        "    v = tl.clamp(tl.load(x), min=fp8_dtype_min, max=fp8_dtype_max)\n    tl.store(x, v.to(out_dtype))\n",
    )
    assert assumed["cut"].compiled, assumed["cut"].problem
    assert {"fp8_dtype_max=127", "out_dtype=tl.float32"} <= {*assumed["cut"].types}


ASSERTED = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"TILE": 128})], key=[])
@triton.jit
def asserts(x, y, n: tl.constexpr, DEPTH: tl.constexpr, TILE: tl.constexpr, NARROW: tl.constexpr):
    tl.static_assert(n == 3)
    tl.static_assert(TILE <= DEPTH)
    tl.static_assert(NARROW * 8 == DEPTH)
    i = tl.arange(0, TILE)[:, None] * n + tl.arange(0, DEPTH)[None, :] + tl.sum(tl.arange(0, NARROW))
    tl.store(y + i, tl.load(x + i))

@triton.jit
def words(x, y, how: tl.constexpr, keep: tl.constexpr, KIND: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + i, eviction_policy=keep)
    tl.store(y + i, tl.dot(a, a, input_precision=how, out_dtype=KIND))

@triton.jit
def brain(x, y):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + i)
    tl.store(y + i, tl.dot(a.to(tl.float32).to(tl.bfloat16), a))

@triton.jit
def never(x, n: tl.constexpr):
    tl.static_assert(n > 2 and n < 2)
    tl.store(x, n)
"""


@pytest.fixture(scope="module")
def asserted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Assumed]:
    return built(tmp_path_factory.mktemp("asserted"), ASSERTED)[1]


def test_constants_are_assumed_that_satisfy_static_assertions(asserted: dict[str, Assumed]) -> None:
    assert asserted["asserts"].compiled, asserted["asserts"].problem
    assert asserted["asserts"].types[2:] == ("n=3", "DEPTH=128", "NARROW=16")
    assert asserted["never"].problem == "line 28: `static_assert` fails: `n > 2 and n < 2` does not hold"


def test_options_of_tritons_own_functions_are_words_and_types(asserted: dict[str, Assumed]) -> None:
    assert asserted["words"].compiled, asserted["words"].problem
    assert asserted["words"].types == ("x: *fp32", "y: *fp32", "how=tf32", "keep=", "KIND=tl.float32")


def test_arrays_may_have_to_be_of_bfloat16(asserted: dict[str, Assumed]) -> None:
    assert asserted["brain"].types == ("x: *bf16", "y: *bf16")
