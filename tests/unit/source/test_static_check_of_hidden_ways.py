"""Ways to others' objects by a name, a place or a text that does not show it, each beside an honest neighbour."""

from itertools import chain, repeat

import pytest

from kernel_lsp.source.static_check import Violation
from kernel_lsp.source.static_check.host import cpp_findings
from kernel_lsp.source.static_check.names import MOST_MEANINGS
from kernel_lsp.source.static_check.python import python_findings

USUAL = "import torch\nimport triton\nimport triton.language as tl\n"
BASE = "class A:\n    def put(self, f):\n        self.elapsed_time = f\n    def go(self):\n        self.put(1)\n"
DERIVED = "class B(A):\n    {}def go(cls, target, f):\n        {}.put({}f)\n"
ANY = """
class A:
    def of(self, name):
        return getattr(self, name)
    @classmethod
    def me(cls):
        return {}
"""
LAYER = """
class B(torch.nn.Module):
    def forward(self, x):
        self.x = x
    def go(self, x):
        self.forward(x)
"""
STATIC = "class A{}:\n    @staticmethod\n    def forward(ctx, f):\n        ctx.f = f\n"
RECORD = """
import dataclasses
@dataclasses.dataclass
class A{}:
    f_back: object
match x:
    case A(f):
        pass
"""
WARN = "import warnings\n{}\nwarnings.warn({}stacklevel=2)\n"
CLASS = "class W(UserWarning):\n    def __str__(self):\n        return 'x'\n"
KERNEL = '@triton.jit(repr={})\ndef kernel(x):\n    """{}"""\n    tl.store(x, 1)\n'


def violations(text: str) -> list[str]:
    found = python_findings(USUAL + text, builds=False, beside_device_code=False)
    return [one.what for one in found if isinstance(one, Violation)]


METHODS = [
    (BASE + DERIVED.format("@classmethod\n    ", "super()", "target, "), BASE + DERIVED.format("", "super()", "")),
    (BASE + DERIVED.format("", "super(B, B)", "target, "), BASE + DERIVED.format("", "super(B, cls)", "")),
    (BASE + DERIVED.format("", "super()", "target, ") + "B.go(B, x, f)", BASE + DERIVED.format("", "super()", "")),
    (STATIC.format("") + "A().forward(x, f)", STATIC.format("(torch.autograd.Function)") + "A.apply(f)"),
    (
        STATIC.format("") + "    def go(self, x):\n        self.forward(x, f)",
        STATIC.format("(torch.autograd.Function)") + LAYER,
    ),
    (
        BASE + DERIVED.format("", "super()", "target, ").replace("        super", "        def of(kind): super"),
        BASE + DERIVED.format("", "super()", "").replace("        super", "        if f: super"),
    ),
    (BASE + DERIVED.format("", "cls = B\n        super()", "target, "), BASE + DERIVED.format("", "super()", "")),
    (
        "cm = classmethod\n" + BASE + DERIVED.format("@cm\n    ", "cls", "target, "),
        "class A:\n    @classmethod\n    def go(cls): pass\n    relu = staticmethod(torch.relu)",
    ),
    (BASE + "    def set(self, x, f):\n        self.put(x, f)\nA.set(A, x, f)", BASE + "A().put(f)"),
    (BASE + "    go = classmethod(go)", BASE + "    gone = property(go)"),
    (ANY.format("0") + "[A][0].of(x, 'gi_' + 'frame')", ANY.format("0") + "A().of('x' + 'y')"),
    (ANY.format("cls") + "A.me().of(x, 'gi_' + 'frame')", ANY.format("cls()") + "A.me().of('x' + 'y')"),
]
PATTERNS = [
    ("import abc\n" + RECORD.format("(abc.ABC)"), RECORD.format("").replace("f_back", "x")),
    ("import typing\n" + RECORD.format("(typing.Protocol)"), "match x:\n    case int(y) | [str(y)]:\n        pass"),
    (
        "import typing\nclass int(typing.Protocol):\n    pass\nmatch x:\n    case int(y):\n        pass",
        RECORD.format("").replace("A(f)", "A(x=f)"),
    ),
]
WARNINGS = [
    (WARN.format("warnings.filterwarnings('error', module='a')", "'x', "), WARN.format("", "'x', ")),
    (WARN.format("warnings.simplefilter(action)", "'x', "), WARN.format("warnings.simplefilter('ignore')", "'x', ")),
    (WARN.format("with warnings.catch_warnings(action='error'): pass", "'x', "), "import warnings\nwarnings.warn(x)"),
    (WARN.format(CLASS, "W('x'), "), "import warnings\n" + CLASS + "warnings.warn('x', W)"),
    (WARN.format(CLASS, "'x', W, "), WARN.format("", "'x', DeprecationWarning, ")),
    (WARN.format("def f(text):", "    text, ").replace("\nwarn", "\n    warn"), WARN.format("a = 'x %d'", "a % 1, ")),
    (WARN.format("", "x.text, "), WARN.format("", "f'{x.text}', ")),
    (WARN.format("", "*given, "), WARN.format("", "'x' if y else 'y', ")),
    (
        "import typing_extensions as t\nclass W(UserWarning): pass\n@t.deprecated('x', category=W)\ndef f(): pass",
        "import typing_extensions as t\n@t.deprecated('x')\ndef f(): pass",
    ),
]
PARTS = [
    ("torch.autograd.detect_anomaly()", "torch.autograd.grad(y, x)"),
    (
        "from torch.autograd.anomaly_mode import set_detect_anomaly",
        "from torch.autograd.function import once_differentiable",
    ),
    ("torch.jit.trace(f, x)", "torch.jit.script(f)"),
    ("import numpy as np\na = np.zeros(1)\na.resize(9, refcheck=False)", "import numpy as np\nnp.zeros(1).resize(9)"),
    ("import numpy as np\nnp.zeros(1).resize(9, **given)", "x.resize(9)"),
    ("torch.utils.checkpoint.checkpoint(f, x, debug=True)", "torch.utils.checkpoint.checkpoint(f, x)"),
    ("torch.utils.checkpoint.capture_logs", "from torch.utils.checkpoint import checkpoint"),
    ("torch.autograd.profiler.EventList", "torch.autograd.profiler.record_function('x')"),
    ("import time\ntime.clock_settime(0, 1)", "import time\ntime.perf_counter_ns()"),
    ("torch.ops.symm_mem.get", "torch.ops.mine.get"),
    ("from triton.runtime.cache import FileCacheManager", "from triton.runtime.jit import KernelInterface"),
    ("class A(triton.JITFunction): pass", "class A(triton.runtime.KernelInterface): pass"),
    ("class A(triton.compiler.ASTSource): pass", "class A(triton.runtime.OutOfResources): pass"),
    ("triton.JITFunction.parse(kernel)", "isinstance(kernel, triton.JITFunction)"),
    (
        "from triton.runtime.driver import driver\ndriver.active.utils.load_binary()",
        "triton.runtime.driver.active.get_current_target().arch",
    ),
    ("d = triton.runtime.driver\nf(d.active)", "d = triton.runtime.driver.active\nd.get_current_stream(0)"),
    ("triton.compiler.code_generator", "class E(triton.compiler.CompilationError): pass"),
    ("kernel.parse()", "from packaging import version\nversion.parse('1')"),
    (
        "type(kernel).parse(kernel)",
        "class A:\n    def parse(self):\n        pass\n    def go(self):\n        self.parse()",
    ),
    ("parse = kernel.parse", "parser.parse('x')"),
    ("kernel[(1,)](x, ir_override='a')", "kernel[(1,)](x, num_warps=4)"),
    ("made.kernel = b''", "class A:\n    def __init__(self):\n        self.kernel = b''"),
    ("made.asm['cubin'] = b''", "made.asm['ptx']"),
    ("made.function = 1", "made.n_regs"),
]
TEXTS = [
    (KERNEL.format("'''\ndef kernel(x):\n    pass'''", ""), KERNEL.format("name", "\n    def kernel(x): ...\n    ")),
    (
        "if x:\n    " + KERNEL.replace("\n", "\n    ").format("f", "\ndef kernel(x):\n    pass"),
        KERNEL.format("'def'", ""),
    ),
]
NAMES = [
    (
        "import os as m\ndef f():\n    import math as m\nm.system('x')",
        "import math as m\ndef f():\n    import itertools as n\nm.pi",
    ),
    ("import sys as m\nm = torch\nm.addaudithook(f)", "import math as m\nm.sqrt(2)\nm = torch\nm.sqrt(x)"),
    ("import math as m\ndef f(m):\n    m._share(1)", "import math as m\ndef f(m):\n    m.share(1)"),
    ("import math as m\nfor m in x:\n    m._share(1)", "import math as m\nm = None"),
    ("import math as m\nm = m.a\nm = m.b\nm.__dict__", "t = torch\nt = t.nn\nt.Linear(1, 2)"),
    (
        "\n".join(f"import math.{name} as m" for name in "abcdefghij"),
        "try:\n    from torch import fft as m\nexcept ImportError:\n    from torch import special as m",
    ),
]
CPP = [
    ('#define H "/proc/self/maps"\n#include H', '#define H 1\n#include "h.h"'),
    ('void f() __attribute__((ifunc("g")));', "struct __attribute__((aligned(16), packed)) A { int a; };"),
    ('void f() __attribute__((noinline, alias("g")));', "void f() __attribute__((always_inline));"),
    ('[[gnu::section("a")]] int a;', "[[gnu::always_inline]] [[maybe_unused]] inline void f() {}"),
    ('[[using gnu: noinline, symver("a")]] void f();', "[[using gnu: noinline, hot]] void f();"),
    ('#define A __attribute__\nint a A((section("a")));', "#define A(n) __attribute__((aligned(n)))\nint a;"),
    ('#define S section\nint a __attribute__((S("a")));', '__attribute__((target("avx2,fma"))) void f();'),
    ("void f() { __builtin_eh_return(1, p); }", "int f(int a) { return __builtin_expect(a, 0) + __builtin_clzll(a); }"),
    ("void f() { __builtin_longjmp(b, 1); }", "void f(float a) { __builtin_prefetch(&a); __builtin_unreachable(); }"),
    ("void* f() { return __builtin_thread_pointer(); }", 'bool f() { return __builtin_cpu_supports("avx2"); }'),
    (
        "void f() { c10::cuda::CUDACachingAllocator::allocator.store(p); }",
        "auto a = c10::cuda::CUDACachingAllocator::get();",
    ),
    ("void f() { get()->attachOutOfMemoryObserver(g); }", "void f() { get()->raw_alloc(8); }"),
    ('void f(py::object x) { x.attr("f_back"); }', 'void f(py::object x) { x.attr("shape"); }'),
]


def pairs(*several: list[tuple[str, str]]) -> list[object]:
    return [pytest.param(*pair, id=pair[0].splitlines()[-1].strip()[:50]) for pair in chain(*several)]


@pytest.mark.parametrize(("attempt", "honest"), pairs(METHODS, PATTERNS, WARNINGS, PARTS, TEXTS, NAMES))
def test_a_hidden_way_is_refused_and_its_honest_neighbour_is_not(attempt: str, honest: str) -> None:
    assert violations(attempt) != []
    assert violations(honest) == []


@pytest.mark.parametrize(("attempt", "honest"), pairs(CPP))
def test_extensions_of_compilers_are_known_or_refused(attempt: str, honest: str) -> None:
    assert any(isinstance(found, Violation) for found in cpp_findings(attempt))
    assert not any(isinstance(found, Violation) for found in cpp_findings(honest))


def test_a_name_of_many_meanings_is_read_in_each() -> None:
    others = [f"import math as m{number}" for number in range(3)]
    meanings = ["import os as m", *(f"m = math.{name}" for name, _ in zip("abcdef", repeat(0), strict=False))]
    assert len(meanings) < MOST_MEANINGS
    assert violations("\n".join(["import math", *others, *meanings, "m.kill(1, 9)"])) == ["reaches for `os.kill`"]
