from pathlib import Path

import pytest

from kernel_lsp.source.kernel import Language
from kernel_lsp.source.triton import find_triton_kernels, is_broken_triton, kernels_elsewhere


def names(text: str) -> list[str]:
    return [kernel.name for kernel in find_triton_kernels(text, Path("k.py"))]


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import triton", "@triton.jit"),
        ("import triton", "@triton.jit(do_not_specialize=['n'])"),
        ("import triton as tr", "@tr.jit"),
        ("from triton import jit", "@jit"),
        ("from triton import cdiv, jit as tjit", "@tjit()"),
        ("import triton.runtime.jit", "@triton.runtime.jit.jit"),
        ("from triton import runtime as r", "@r.jit"),
        ("try:\n    import triton as t\nexcept ImportError:\n    t = None", "@t.jit"),
    ],
)
def test_jit_under_any_name(imports: str, decorator: str) -> None:
    assert names(f"{imports}\n{decorator}\ndef kernel(x):\n    pass\n") == ["kernel"]


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import torch, triton", "@torch.jit"),
        ("import triton\nfrom numba import jit", "@jit"),
        ("import triton", "@triton.autotune(configs=[], key=[])"),
        ("import triton", "@functools.cache"),
    ],
)
def test_other_decorators_make_no_kernel(imports: str, decorator: str) -> None:
    assert names(f"{imports}\n{decorator}\ndef kernel(x):\n    pass\n") == []


def test_record_of_an_autotuned_kernel() -> None:
    text = '''import triton
import triton.language as tl
from triton.language import constexpr as CE
# größer
@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % 2 == 0})
@triton.jit
def kernel(x_ptr, n: tl.int32, B: tl.constexpr, C: "tl.constexpr" = 3, D: CE = 1, *, eps=1e-6):
    """Doc."""
    tl.store(x_ptr, eps)


y = 1
'''
    (kernel,) = find_triton_kernels(text, Path("k.py"))
    data = text.encode()
    assert kernel.language is Language.TRITON
    assert kernel.autotuned
    assert data[kernel.span.start : kernel.span.end].startswith(b"@triton.autotune(")
    assert data[kernel.span.start : kernel.span.end].endswith(b"eps)")
    assert data[kernel.name_span.start : kernel.name_span.end] == b"kernel"
    assert data[kernel.body.start : kernel.body.end].startswith(b'"""Doc."""')
    assert [(p.name, p.type, p.constexpr) for p in kernel.parameters] == [
        ("x_ptr", "", False),
        ("n", "tl.int32", False),
        ("B", "tl.constexpr", True),
        ("C", '"tl.constexpr"', True),
        ("D", "CE", True),
        ("eps", "", False),
    ]


HELPER = """import triton
@triton.jit
def helper(x):
    return x
@triton.jit
def kernel(x):
    y = helper(x)
"""


def test_function_that_only_kernels_call_is_no_kernel() -> None:
    assert names(HELPER) == ["kernel"]


def test_function_that_is_also_launched_is_a_kernel() -> None:
    assert names(HELPER + "def run(x):\n    helper[(1,)](x)\n") == ["helper", "kernel"]


def test_recursive_function_is_a_kernel() -> None:
    assert names("import triton\n@triton.jit\ndef f(x):\n    f(x)\n") == ["f"]


def test_kernels_inside_functions_and_classes() -> None:
    text = "import triton\ndef make():\n    @triton.jit\n    def inner(x):\n        pass\n    return inner\n"
    assert names(text) == ["inner"]


def test_unfinished_code_after_a_kernel_does_no_harm() -> None:
    assert names("import triton\n@triton.jit\ndef kernel(x):\n    pass\n\ndef broken(:\n    x = [\n") == ["kernel"]


def test_functions_that_calls_make_kernels() -> None:
    text = """import triton
from triton import jit as J
def a(x): pass
a = J(a)
a = triton.heuristics({"E": lambda args: True})(a)
def b(x): pass
tuned = triton.autotune(configs=[], key=[])(triton.jit(b))
def plain(x): pass
plain = wrapped(plain)
"""
    kernels = find_triton_kernels(text, Path("k.py"))
    assert [(kernel.name, kernel.autotuned) for kernel in kernels] == [("a", False), ("b", True)]


def test_kernels_that_come_from_elsewhere() -> None:
    launches = "import triton\nfrom ops.add import kernel as k\ndef run(x):\n    k[(1,)](x)\n    x[1](2)\n"
    assert kernels_elsewhere(launches) == "It launches k, from ops.add."
    gluon = "from triton.experimental import gluon\n@gluon.jit\ndef k(x):\n    pass\n"
    assert [kernel.name for kernel in find_triton_kernels(gluon, Path("k.py"))] == ["k"]
    assert kernels_elsewhere(gluon) is None
    assert kernels_elsewhere("import triton\ntable = {}\ntable[1](2)\n") is None


def test_what_returns_a_value_is_no_kernel_unless_it_is_launched() -> None:
    """Triton's own libraries and others' have files of such functions, which kernels elsewhere call."""
    text = """
import triton

@triton.jit
def helper(x):
    if x > 0:
        return x
    return -x

@triton.jit
def kernel(x):
    if x is None:
        return
    return None

@triton.jit
def both(x):
    return x

both[(1,)](1)
"""
    assert [kernel.name for kernel in find_triton_kernels(text, Path("k.py"))] == ["kernel", "both"]
    helpers = text[: text.index("@triton.jit\ndef kernel")]
    assert kernels_elsewhere(helpers) == "Its functions are for kernels elsewhere, as each returns a value: helper."


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("import triton\n@triton.jit\ndef k(x, n)\n    pass\n", True),
        ("from triton.experimental import gluon\n@gluon.jit(f)\ndef k(x, n:\n    pass\n", True),
        ("import triton\n@triton.jit\ndef k(x, n):\n    pass\n", False),
        ("import triton\ndef k(x, n)\n    pass\n", False),
        ("import numba  # not triton\n@numba.jit\ndef k(x, n)\n    pass\n", False),
    ],
)
def test_a_broken_file_is_known_by_its_marks(text: str, is_broken: bool) -> None:
    assert is_broken_triton(text) is is_broken
