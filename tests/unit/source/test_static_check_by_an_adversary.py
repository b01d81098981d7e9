"""Attempts of somebody who has read the static check to change functions of others, each beside an honest neighbour."""

from pathlib import Path

import pytest

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.static_check import check_cpp, check_python

USUAL = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
PROBE = (
    "class Probe:\n    def reach(self):\n        return self._timer\n    def put(self, f):\n        self.timer = f\n"
)
FUNCTION = "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.x = x\n"
DERIVED = """
class A:
    def __init__(self):
        self.n = 1
class B(A):
    def __init__(self):
        super().__init__()
        A.__init__(self)
        self._m = 2
"""
FIELDS = "import dataclasses\n@dataclasses.dataclass\nclass A:\n    e: torch.cuda.Event\n"
IMPORTS = "import argparse\nfrom types import SimpleNamespace\n"
SETS = "class A:\n    def __init__(self, name):\n        setattr(self, {}, 1)"
CUSTOM_OP = "from typing import Optional\n@torch.library.custom_op('own::f', mutates_args=())\n"


def version(text: str) -> Candidate:
    return Candidate(Language.TRITON, SourceFile(Path("kernel.py"), text), None, "", "user")


def of_kernel(text: str) -> list[str]:
    return [
        found.what
        for found in check_python(version(USUAL + text), version(USUAL), SourceFile(Path("w.py"), "")).violations
    ]


def of_launch(text: str) -> list[str]:
    kernel, own = SourceFile(Path("kernel.cu"), ""), SourceFile(Path("w.py"), "import torch\n")
    candidate = Candidate(Language.CUDA, kernel, SourceFile(Path("w.py"), "import torch\n" + text), "", "user")
    return [
        o.what for o in check_python(candidate, Candidate(Language.CUDA, kernel, None, "", "baseline"), own).violations
    ]


METHODS = [
    (
        PROBE.replace("_timer", "sys") + "Probe.reach(torch.cuda.memory)",
        PROBE.replace("_timer", "size") + "Probe().reach()",
    ),
    (PROBE + "Probe.put(watch, f)", PROBE + "Probe().put(f)"),
    (PROBE + "Probe.reach(watch)", PROBE + "p = Probe()\np.reach()"),
    (PROBE + "Probe.put(torch.cuda.Event, f)", PROBE + "def use(probe):\n    probe.put(f)\nuse(Probe())"),
    (PROBE + "P = Probe\nP.put(torch.cuda.Event, f)", PROBE + "P = Probe\nP().put(f)"),
    (PROBE + "type(Probe()).put(watch, f)", PROBE + "type(Probe()).__name__"),
    (PROBE + "for C in [Probe]:\n    C.put(torch.cuda.Event, f)", PROBE + "for C in [Probe]:\n    C()"),
    (PROBE + "class Outer:\n    P = Probe\nOuter.Probe.put(watch, f)", PROBE + "class Outer:\n    P = Probe"),
    (
        PROBE + "import functools\nfunctools.partial(Probe.put, watch)(f)",
        PROBE + "import functools\nfunctools.partial(Probe().put, f)()",
    ),
    (PROBE + "list(map(Probe.reach, watches))", PROBE + "list(map(Probe().put, fs))"),
    (PROBE + "getattr(Probe, 'put')(watch, f)", PROBE + "getattr(Probe(), 'put')(f)"),
    (
        PROBE + "    @classmethod\n    def all(cls, x, f):\n        cls.put(x, f)",
        PROBE + "    @classmethod\n    def all(cls, f):\n        cls().put(f)",
    ),
    (PROBE + "    reach = staticmethod(reach)", PROBE + "    timed = property(reach)"),
    (PROBE + "    put(watch, f)", PROBE + "    n = 3"),
    (
        PROBE + "    timed = property(reach)\nProbe.timed.fget(watch)",
        PROBE + "    timed = property(reach)\nProbe().timed",
    ),
    (
        "still = staticmethod\nclass P:\n    @still\n    def put(self):\n        self.x = 1\nP().put(torch.Tensor)",
        "class P:\n    @torch.no_grad()\n    def put(self):\n        self.x = 1\nP().put()",
    ),
    (
        "def now(f):\n    f(torch.Tensor)\nclass P:\n    @now\n    def put(self):\n        self.record = None",
        "def noted(f):\n    return f\nclass P:\n    @noted\n    def put(self):\n        self.n = None",
    ),
    (
        "class P:\n    @staticmethod\n    def put(self):\n        self.x = 1\nP.put(torch.cuda)",
        "class P:\n    @staticmethod\n    def _rows(x):\n        return x.shape[0]\nP._rows(x)",
    ),
    (
        FUNCTION + "F.forward(watch, f)",
        FUNCTION + "F.apply(x)",
    ),
    (
        "class P:\n    def __init__(self):\n        self.record = None\nP.__init__(watch)",
        DERIVED,
    ),
    (
        PROBE + "match Probe:\n    case object(put=p):\n        p(watch, f)",
        PROBE + "match x:\n    case Probe():\n        x",
    ),
]

BINDINGS = [
    ("match watch:\n    case self:\n        self._timer", "match n:\n    case rows:\n        rows"),
    ("match watch:\n    case [*self]:\n        self._timer", "match n:\n    case [*rows]:\n        rows"),
    ("match watch:\n    case {**cls}:\n        cls.x = 1", "match n:\n    case {**rest}:\n        rest"),
    ("match torch.cuda.memory:\n    case object(sys=s):\n        s", "match x:\n    case torch.Tensor():\n        x"),
    ("match print:\n    case object(__self__=b):\n        b", "match x:\n    case torch.Size(rank=r):\n        r"),
    ("try:\n    f()\nexcept E as self:\n    self._x", "try:\n    f()\nexcept E as error:\n    error.args"),
    ("with watch as self:\n    self._x", "with torch.cuda.stream(s) as stream:\n    stream"),
    ("for self in watches:\n    self._x = 1", "for layer in layers:\n    layer.training = False"),
    (FUNCTION + "        ctx = watch\n        ctx.y = 1", FUNCTION + "with f() as ctx:\n    ctx.__enter__()"),
    ("(self := watch)._x = 1", "(n := rows) + 1"),
    ("[self._x for self in watches]", "[x.shape for x in xs]"),
    ("from torch import cuda as self\nself._x", "from torch import nn as layers\nlayers.Linear(1, 2)"),
    ("from torch import *", "from math import *"),
    ("def f(x, self):\n    self._x = x", "def f(x, other):\n    return x + other"),
    ("(lambda self: self.x)(watch)", "(lambda x: x.shape)(y)"),
    ("def f():\n    global self\n    self = watch", "def f():\n    global cache\n    cache = None"),
    ("__name__ = '__main__'\nif __name__ == '__main__':\n    import gc", "if __name__ == '__main__':\n    import gc"),
    (
        "if __name__ == '__main__':\n    pass\nelse:\n    import gc",
        "if __name__ == '__main__':\n    import gc\nelse:\n    x = 1",
    ),
]

CHANGES = [
    ("E = torch.cuda.Event\nE.elapsed_time = f", "E = torch.cuda.Event\ne = E()\ne.record()"),
    ("E, n = torch.cuda.Event, 0\nE.elapsed_time = f", "a, n = layer, 0\na.packed = f"),
    ("def put(e=torch.cuda.Event):\n    e.elapsed_time = f", "def put(layer, w):\n    layer.packed = w"),
    ("def put(o):\n    o.record = f\nput(torch.cuda.Event)", "lin = torch.nn.Linear(1, 2)\nlin.weight.data = w"),
    ("def put(ctx):\n    ctx.record = f\nput(torch.cuda.Event)", "def backward(ctx, g):\n    return ctx.saved_tensors"),
    ("class P:\n    e = torch.cuda.Event\nP.e.record = f", "class P:\n    calls = 0\nP.calls = 1"),
    (
        "class P:\n    def f(self):\n        self.e = torch.cuda.Event\n        self.e.record = f",
        "class P:\n    def f(self):\n        self.e = torch.cuda.Event()\n        self.n = 1",
    ),
    ("torch.get_device_module().synchronize = f", "def f(): ...\nf.calls = 0"),
    ("d = triton.runtime.driver.active.get_device_interface()\nd.Event = f", "d = triton.runtime.driver.active.utils"),
    ("triton.runtime.driver.set_active(x)", "triton.set_allocator(f)"),
    ("object.__setattr__(watch, 'x', f)", "object.__init__"),
    (
        "setattr(watch, 'x', f)",
        "class A:\n    def f(self, i, w):\n        setattr(self, f'w{i}', w)\n        getattr(self, f'w{i}')",
    ),
    ("import functools\nfunctools.wraps(f, assigned=n)(g)", "import functools\n@functools.wraps(f)\ndef g(): ..."),
    ("import functools\nw = functools.wraps\nw(f, n)(g)", "import functools\nfunctools.lru_cache(f)"),
    ("torch.ops.aten.__dict__['add'] = f", "torch.ops.aten.add(x, y)"),
    ("import warnings\nwarnings.filters[0] = f", "import warnings\nwarnings.filterwarnings('ignore')"),
    ("import time\ntime.perf_counter = f", "import time\ntime.perf_counter()"),
    ("import time\nclocks = [time]\nclocks[0].perf_counter = f", "import time\nt = time.time\nt()"),
    ("triton.knobs.runtime.launch_enter_hook = f", "triton.knobs.runtime.debug"),
    ("import sys\nsys.stdout = f", "import sys\nprint('x', file=sys.stderr)\nsys.exit(1)"),
    ("import os\nos.environ['LD_PRELOAD'] = 'x'", "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'"),
    ("import os\nos.environ.update(x)", "import os\nos.environ.get('X', '') + os.environ['Y'] + os.getenv('Z')"),
    ("class A: ...\nA.__torch_function__ = f", "class A: ...\nA.limit = 3"),
    (
        "def other(f):\n    return torch.cuda.Event\n@other\ndef E(): ...\nE.record = g",
        "@triton.jit\ndef kernel(x): ...\nkernel.tuned = True",
    ),
    ("(torch.cuda, 0).__getitem__(0).record = f", "x.dtype in (torch.float16, torch.bfloat16)"),
    (
        "class A:\n    def __eq__(self, other):\n        other.record = f\nA() == torch.cuda.Event",
        "class A:\n    def __eq__(self, other):\n        return self.n == other.n\nA() == A()",
    ),
    ("match A():\n    case torch.cuda:\n        pass", "match x.dtype:\n    case torch.float16:\n        pass"),
    ("class E(torch.cuda.Event): ...\nE.mro()[1].record = f", "class E(torch.nn.Module): ...\nE().half()"),
    ("e = torch.cuda.Event()\ntype(e).record = f", "e = torch.cuda.Event()\ntype(e) is torch.cuda.Event"),
    ("e = torch.cuda.Event()\nE = type(e)\nE.record = f", "x = torch.empty(3)\nx.tag = 1\ntype(x)(y)"),
    ("try:\n    f()\nexcept E as e:\n    e.obj.record = f", "try:\n    f()\nexcept E as e:\n    e.add_note('x')"),
    ("c = torch.cuda.cudart()\nc.cudaEventRecord = f", "c = torch.cuda.cudart()\nc.cudaProfilerStart()"),
    (
        "import argparse\nargparse.Namespace.__init__(torch.cuda.Event, record=f)",
        "import argparse\nargparse.Namespace(n=1).n",
    ),
    (
        "import argparse\np = argparse.ArgumentParser()\np.parse_args(x, namespace=torch.Tensor)",
        "import argparse\np = argparse.ArgumentParser()\nargs = p.parse_args()\nargs.n",
    ),
    (FIELDS + "dataclasses.fields(A)[0].type.record = f", FIELDS + "dataclasses.asdict(A(e))"),
    (CUSTOM_OP + "def f(x: \"print('x')\"): ...", CUSTOM_OP + "def f(x: 'torch.Tensor', n: int) -> torch.Tensor: ..."),
    (
        "T = ''.join(parts)\n" + CUSTOM_OP + "def f(x: T): ...",
        CUSTOM_OP + "def f(x: Optional[torch.Tensor] | None): ...",
    ),
]

WAYS_OUT = [
    ("import random\nrandom._os.system('x')", "import random\nrandom.randint(0, 1)"),
    ("import logging\nlogging.os", "import logging\nlogging.getLogger(__name__).info('x')"),
    ("import logging\nlogging.basicConfig(filename='x')", "import logging\nlogging.basicConfig(level=logging.INFO)"),
    ("import logging\nlogging.FileHandler('x')", "import logging\nlogging.StreamHandler()"),
    ("import os\nos.path.genericpath.os.kill", "import os\nos.path.join(os.path.dirname(__file__), 'x')"),
    ("from os.path import os", "from os.path import join"),
    ("import os\nos.kill(1, 9)", "import os\nos.cpu_count()"),
    ("import os\nx = [os]", "import os\n'X' in os.environ"),
    ("import numpy as np\nnp.ctypeslib", "import numpy as np\nnp.prod(x.shape), np.random.rand(3), np.float32"),
    ("import numpy as np\nnp.lib.stride_tricks.as_strided(x)", "import numpy as np\nnp.linalg.norm(x)"),
    ("import numpy as np\nx.ctypes", "import numpy as np\nnp.asarray(x).strides"),
    ("import sys\nsys.modules['torch']", "import sys\nsys.argv[1:], sys.version_info >= (3, 11)"),
    ("model.modules", "for layer in model.modules(): ..."),
    ("import sys\nsys.path = []", "import sys\nsys.path.insert(0, 'x')"),
    ("import pathlib\npathlib.Path('x').read_text()", "import pathlib\npathlib.Path(__file__).parent / 'x'"),
    ("import pathlib\npathlib.Path('x').open()", "from pathlib import Path\nPath('x').suffix"),
    ("import pytest\npytest.MonkeyPatch()", "import pytest\n@pytest.mark.parametrize('n', [1])\ndef test(n): ..."),
    ("import pytest\npytest.importorskip('gc')", "import pytest\npytest.skip('x')"),
    ("import inspect\ninspect.currentframe()", "import inspect\ninspect.cleandoc(f)"),
    ("import inspect\ninspect.signature(f, eval_str=True)", "import inspect\ninspect.isfunction(f)"),
    ("import operator\noperator.attrgetter('x')", "import operator\noperator.mul(2, 3)"),
    ("from types import MethodType", "from types import SimpleNamespace"),
    ("import typing\ntyping.ForwardRef('x')", "from typing import NamedTuple"),
    ("import typing\ntyping.sys", "import typing\ntyping.cast(int, x)"),
    ("'{0.__globals__}'.format(f)", "'{0} {name}'.format(f, name=1)"),
    ("try:\n    f()\nexcept E as e:\n    e.__traceback__", "try:\n    f()\nexcept E as e:\n    e.__class__.__name__"),
    ("x.__class__.__mro__", "x.__class__.__name__"),
    ("class A:\n    def __reduce__(self): ...", "class A:\n    def __repr__(self): ..."),
    ("class A:\n    def __getattr__(self, name): ...", "class A:\n    def __getitem__(self, name): ..."),
    ("import abc\nclass A(metaclass=M): ...", "import abc\nclass A(metaclass=abc.ABCMeta): ..."),
    ("torch.jit.load('x')", "@torch.jit.script\ndef f(x): ..."),
    ("torch.library.Library('aten', 'IMPL')", "@torch.library.custom_op('own::f', mutates_args=())\ndef f(x): ..."),
    ("torch.utils.benchmark.Timer(stmt='x')", "from torch.utils.checkpoint import checkpoint\ncheckpoint(f, x)"),
    ("getattr(torch, 'utils').benchmark", "getattr(torch, 'float8_e5m2', None), hasattr(torch, 'x')"),
    ("getattr(torch, 'cuda').x = 1", "getattr(torch, 'half', torch.float32)"),
    ("torch._C._cuda_setDevice(0)", "from torch._C import _cuda_getCurrentRawStream"),
    ("torch._dynamo.config.x = 1", "torch._dynamo.disable(f)"),
    ("torch.set_default_device('cuda')", "torch.manual_seed(0), torch.cuda.set_device(0)"),
    ("import torch.cuda.memory as m\nx = [m]", "import torch.cuda.memory as m\nm.memory_allocated()"),
    ("torch.cuda.memory.CUDAPluggableAllocator(a, b, c)", "torch.cuda.memory.empty_cache()"),
    ("x._C.y", "kernel._init_handles()"),
    ("x._sys.y", "x._version"),
    ("import traceback\ntraceback.walk_stack(None)", "import traceback\ntraceback.print_exc()"),
    ("torch._inductor.codecache.PyCodeCache", "torch._scaled_mm(a, b)"),
    ("triton.runtime.cache.get_cache_manager(k)", "triton.testing.do_bench(f)"),
    ("flags = ['-wrapper', 'sh']", "flags = ['-O3', '--use_fast_math', '-Xcompiler']"),
    ("torch.cuda.modules", "from torch.nn.modules.utils import _pair\ntorch.__version__.split('.')"),
    ("import threading\nthreading.Timer(1, f)", "import threading\nthreading.RLock()"),
    ("import weakref", "import statistics"),
    ("import unknown_module", "import einops"),
]  # fmt: skip


MEMORY = [
    ("SimpleNamespace(**{'__array_' + 'interface__': d})", "SimpleNamespace(block=64, warps=4)"),
    ("SimpleNamespace(__array_interface__=d)", "SimpleNamespace(array_interface=d)"),
    ("d['__cuda_array_interface__'] = x", "d['cuda_array_interface'] = x"),
    ("argparse.Namespace(**d)", "argparse.Namespace(block=64)"),
    ("p = argparse.ArgumentParser()\np.set_defaults(**d)", "p = argparse.ArgumentParser()\np.set_defaults(n=4)"),
    ("p.add_argument('--x', dest=name)", "p.add_argument('--block-size', dest='block', default=64)"),
    ("p.add_argument('--__array_interface__')", "p.add_argument('--array', '-a')"),
    ("p.add_argument('--' + name)", "p.add_argument('--name', type=int)"),
    (SETS.format("name"), SETS.format("'name'")),
    (SETS.format("f'{name}0'"), SETS.format("f'layer{name}'")),
    (SETS.format("'__array' + name"), SETS.format("'layer_' + name")),
    ("torch.UntypedStorage._new_with_weak_ptr(address)", "torch._foreach_add(a, b)"),
    ("x.untyped_storage()._new_with_weak_ptr(address)", "kernel._init_handles()"),
    ("argparse.FileType('r+b', 0)('/proc/self/mem')", "argparse.ArgumentParser().add_argument('--n', type=int)"),
    ("argparse.ArgumentParser(fromfile_prefix_chars='@')", "argparse.ArgumentParser(description='x')"),
    ("x.untyped_storage().from_file('x', True, 8)", "x.untyped_storage().nbytes()"),
    ("import numpy as np\nnp.zeros(3).dump('x')", "import numpy as np\nnp.zeros(3).tolist()"),
    (
        "import typing_extensions\ntyping_extensions.get_annotations(f, eval_str=True)",
        "from typing_extensions import Annotated",
    ),
    ("x._weak_ref(address)", "def _own(x):\n    return x\nmodule._own(x)"),
]
"""Ways to get memory by its address: objects that describe it to numpy and torch, and storages made of pointers."""


@pytest.mark.parametrize(
    ("attempt", "honest"),
    [
        pytest.param(*pair, id=pair[0].splitlines()[-1][:50])
        for pair in (*METHODS, *BINDINGS, *CHANGES, *WAYS_OUT, *((IMPORTS + a, IMPORTS + b) for a, b in MEMORY))
    ],
)
def test_an_attempt_is_rejected_and_its_honest_neighbour_is_not(attempt: str, honest: str) -> None:
    assert of_kernel(attempt) != []
    assert of_kernel(honest) == []


LAUNCHES = [
    ("module._launches.clear()", "module.kernel[grid, block](x)"),
    ("module.launch = f", "out = torch.empty_like(x)\n    out.requires_grad = False"),
    ("put(module)\ndef put(m):\n    m.launch = f", "put(x)\ndef put(x):\n    return x.shape"),
    ("for m in [module]:\n        m._heard", "for n in [1]:\n        n.bit_length()"),
    ("[Probe][0].put(module, f)\n" + PROBE, "Probe().put(x)\n" + PROBE),
]


@pytest.mark.parametrize(("attempt", "honest"), LAUNCHES)
def test_what_a_launch_is_given_is_not_its_own(attempt: str, honest: str) -> None:
    head = "def launch(module, x):\n    "
    assert of_launch(head + attempt) != []
    assert of_launch(head + honest) == []


HOST = "#include <cuda_runtime.h>\n#include <cstdio>\n"
TWO = "void first() {}\nlong second() { return 0x1234567890; }\n"
CPP = [
    ('#define A asm\nvoid f() { A volatile("sys" "call"); }', '#define A asm volatile\nA("membar.gl;");'),
    ("void f() { dl\\\nopen(n, 2); }", '#define F(x) \\\n    g(x); \\\n    printf("syscall failed: %d", x)'),
    ('void* f(const char*, int) __asm__("dlopen");', 'void f() { asm volatile("" ::: "memory"); }'),
    ('extern "C" int g(void*, size_t, int) asm ("mpro" "tect");', '__device__ void g() { asm("trap;"); }'),
    ("#define L(name) asm(name)\nint g() L(X);", '#define PTX(text) asm volatile(text "bar.sync 0;")'),
    (
        'void f() { asm volatile("syscall" : : "a"(10)); }',
        '__device__ int f() { int x; asm("mov.u32 %0, %%laneid;" : "=r"(x)); return x; }',
    ),
    (
        'void f() { asm(".byte 0x0f, 0x05"); }',
        '__device__ void f() { asm("{ .reg .pred p;\\n @p ld.global.f32 %0, [%1]; }" : "=f"(x) : "l"(y)); }',
    ),
    ("char q = '\"'; void* h = dlsym(0, s); char r = '\"';", "char q = '\"'; int h = 0; char r = '\"';"),
    ('void f() { x.attr("__globals__"); }', 'void f() { x.attr("shape"); }'),
    ("namespace p = py; p::module_::import(n);", "namespace p = py; py::object x;"),
    ("PyRun_SimpleString(text);", "PyGILState_Ensure();"),
    ("kernel_lsp::runtime();", "int kernel_lsp_rows = 0;"),
    (
        "#define J(a, b) a##b\nint n = J(kernel, _lsp)::x;",
        "#define J(a, b) a##b\nint n = J(kernel, _rows)::x;",
    ),
    (
        "#define J(a, b) a##b\n#define K(a) J(Py, a)\nvoid f() { K(Eval_GetBuiltins)(); }",
        "#define D(t, f) case t: f##_##t(); break;\nvoid f() { switch (n) { D(1, scale) D(2, scale) } }",
    ),
    (
        "#define Half PyObject\n#define J(a, b) a ## b\n#define X(a, b) J(a, b)\nX(Half, _GetAttrString)(o, n);",
        "#define MAKE(n) make_float##n(0)\nauto v = MAKE(4);",
    ),
    ("%:define J(a, ...) a%:%:__VA_ARGS__\nJ(dl, sym)(h, s);", "#define LOG(f, ...) printf(f, ##__VA_ARGS__)\nLOG(m);"),
    ('get(f, "__glo" "bals__");', 'printf("__global__ functions: %d", n);'),
    ("cudaDeviceSetLimit(l, 1);", "cudaFuncSetAttribute(f, a, 1);"),
    (
        "mprotect(p, 1, 7);",
        '#define CHECK(c) if (c) { fprintf(stderr, "x"); exit(EXIT_FAILURE); abort(); }\nint open = 0; x.open(1);',
    ),
    (
        'cudaGetDriverEntryPoint("cuLaunchHostFunc", &p, cudaEnableDefault, &r);',
        'cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &r);',
    ),
    ("cuGetProcAddress(name, &p, 12000, 0, &r);", 'cuGetProcAddress("cuDeviceGetAttribute", &p, 12000, 0, &r);'),
    ("auto f = &cudaGetDriverEntryPoint;", "cudaDriverEntryPointQueryResult r;"),
    (
        "#define J(a, b) a##b\nJ(cudaGetDriver, EntryPoint)(n, &p, 0, &r);",
        "#define J(a, b) a##b\nJ(cudaGet, Device)(&d);",
    ),
    ('__attribute__((section(".text#"))) const char code[] = {15, 5};', "__attribute__((aligned(16))) float x[4];"),
    ('[[gnu::section(".text#")]] const char code[] = {15, 5};', "[[nodiscard]] int section(int x);"),
    (
        'void f() { asm volatile(".fill 1, 2, 0x050f"); }',
        'void f() { asm volatile(".reg .b32 x;\\n .pragma \\"nounroll\\";"); }',
    ),
    ('void f() { asm(".set mine, dlsym"); }', 'void f() { asm volatile("{\\n .reg .pred p;\\n L: bra.uni L;\\n}"); }'),
    ('void f() { asm volatile("call *%0" :: "r"(p)); }', 'void f() { asm volatile("pause"); }'),
    (
        'void f() { asm volatile("xchg %0, (%1)" :: "r"(p)); }',
        'void f() { asm volatile("bar.sync 0, %0;" :: "r"(n)); }',
    ),
    (
        'void f() { asm volatile("mov.s %0, (%1)" :: "r"(p)); }',
        'void f() { asm volatile("mma.sync.m8n8k4 {%0, %1},\\n {lo, hi};\\n @!p ld.L1::no_allocate.f32 %0, [%1];"); }',
    ),
    ("TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl(n, &f); }", "TORCH_LIBRARY_IMPL(own, CUDA, m) { m.impl(n, &f); }"),
    (
        "#define NS aten\nTORCH_LIBRARY_FRAGMENT(NS, m) { m.impl(n, &f); }",
        "#define NS own\nTORCH_LIBRARY(NS, m) { m.def(n); }",
    ),
    ("torch::Library l(torch::Library::IMPL, n, k, f, 1);", "void g(torch::Library& m) { m.def(n); }"),
    ("extern char _rtld_global[];", "extern char name[];"),
    ("void* f() { return __builtin_frame_address(3); }", "bool f(bool x) { return __builtin_expect(x, 1); }"),
    ("void f(py::object m) { m.attr(name.c_str()); }", 'void f(py::object m) { m.attr("shape"); }'),
    ("void f(py::object m) { py::getattr(m, n); }", "void f(Node& m) { m.attr(n); }"),
    ("Py_TYPE(p)->tp_call = g;", "bool b = p->tp_call == g;"),
    ('#include "/proc/self/environ"', '#include "own/kernel.h"'),
    ('const char x[] = {\n#embed "data.bin"\n};', "int embed = 1;"),
    ('void f(py::object m) { m.attr("s" "ys"); }', 'void f(py::object m) { m.attr("str" "ide"); }'),
    ('void f(py::object m) { m.attr("s\\171s"); }', 'void f(py::object m) { m.attr("\\163hape"); }'),
    ('void f(py::object m) { m.attr("__cl\\x61ss__"); }', 'printf("\\x1b[1m__global__\\033[0m");'),
    ('void f(py::object m) { m.attr("\\u005f_class__"); }', 'printf("\\u00b5s");'),
    ('void f(py::object m) { m.attr\\\n("sys"); }', '#define F(m) \\\n    m.attr("shape")'),
    ('#define A attr\nvoid f(py::object m) { m.A("sys"); }', '#define A(m) m.attr("shape")'),
    ("void f(py::object m) { getattr(m, n); }", "int get_attr(Node& m);"),
    ("auto f = &py::object::attr;", "cudaFuncAttributes attr; int n = attr.numRegs;"),
    ("py::detail::str_attr_accessor(m, n);", "auto a = x.packed_accessor32<float, 2>();"),
    ("PyObject_VectorcallMethod(n, &o, 1, 0);", "PyObject* o = THPVariable_Wrap(x);"),
    ("_PyType_Lookup(t, n);", "static PyMethodDef methods[] = {{nullptr}};"),
    ("PyDict_SetItemString(t->tp_dict, n, o);", "static PyModuleDef module = {PyModuleDef_HEAD_INIT};"),
    ("void* t = ((PyObject*)o)->ob_type;", "Py_INCREF(o);"),
    ("stdout->_fileno = 5;", "int n = fileno(stdout);"),
    ("for (FILE* f = stderr; f; f = f->_chain) n++;", "struct Node { int chain; } node; int n = node.chain;"),
    ("auto& all = py::detail::get_internals();", "auto get_internal = 1;"),
    ("c10::impl::device_guard_impl_registry[1].store(&own);", "c10::cuda::CUDAGuard guard(x.device());"),
    (TWO + "auto f = (void (*)())((char*)&second + 7);", TWO + "void (*f)() = &first;\nvoid g() { f(); }"),
    (TWO + "size_t n = (size_t)second + 2;", TWO + "size_t n(int rows) { return (size_t)rows * 2; }"),
    (
        TWO + "auto p = reinterpret_cast<const unsigned char*>(&first);",
        TWO + "cudaFuncSetAttribute((void*)first, a, 1);",
    ),
    (TWO + "auto f = reinterpret_cast<decltype(&first)>(base + 8);", TWO + "auto f = static_cast<void (*)()>(&first);"),
    ("using F = int (*)(int);\nint n = reinterpret_cast<F>(at[3])(1);", "using F = int (*)(int);\nF f = (F)entry;"),
    ("typedef void (*F)();\nF f; memcpy(&f, &n, 8);", "typedef void (*F)();\nF f; memcpy(&n, &m, 8);"),
    ("union U { size_t n; void (*f)(); };", "union U { float f; unsigned n; };"),
    (
        "long second() { return 1; }\nlong n = (long)second;",
        "long size() { return 1; }\nlong f(long size) { return (long)size; }",
    ),
    ("namespace k = kernel_lsp;", "namespace k = kernel_lsp_rows;"),
    ("namespace at { KERNEL_LSP_FUNCTION(load) }", "#define KERNEL_ROWS 4\nint n = KERNEL_ROWS;"),
    ("#define K kernel_lsp\nint n = K::x;", "#define K own\nint n = K::x;"),
    ("/* a *\\\n/ namespace k = kernel_lsp; /* b */", "/* a *\\\n * b */ int n;"),
    ("/* a *\\ \t\n/ int n; /* b */", "/* a * \\\n b */ int n;"),
    ("/* a *??/\n/ int n; /* b */", "/* a?? */ int n = x ? y : z;"),
    ("??=define K dlopen", 'printf("what??!");'),
    ("#include <a/*b>\nint n; /* */", "#include <cub/cub.cuh> /* b */"),
    ("#\\\n#", "#define D(a) \\\n    a"),
    ('auto t = u8R"(")"; namespace k = kernel_lsp; //")"', 'auto t = u8R"(kernel_lsp)";'),
    ('auto t = R"(a)\\\n" namespace k = kernel_lsp; /*")";', 'auto t = R"(a \\\n b)";'),
]


@pytest.mark.parametrize(("attempt", "honest"), CPP)
def test_the_text_of_host_code_shows_what_symbols_do_not(attempt: str, honest: str) -> None:
    baseline = SourceFile(Path("a.cu"), HOST)
    assert check_cpp([HOST + attempt], baseline).violations != ()
    assert check_cpp([HOST + honest], baseline).violations == ()


@pytest.mark.parametrize("header", ["mutex", "atomic", "chrono", "random", "span", "variant", "thread", "unistd.h"])
def test_a_header_is_no_violation(header: str) -> None:
    assert check_cpp([f"{HOST}#include <{header}>\n"], SourceFile(Path("a.cu"), HOST)).violations == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import time\n", ["imports `time`"]),
        ("import os\nos.environ['X']", ["imports `os`"]),
        ("kernel._init_handles()", ["reaches for `_init_handles`"]),
        ("torch.manual_seed(0)", ["changes a setting of the whole process with `torch.manual_seed`"]),
        ("layer.packed = w", ["changes `layer.packed`"]),
        ("class A:\n    def f(self):\n        self._x = self._y", []),
        ("if __name__ == '__main__':\n    import time", []),
    ],
)
def test_what_is_usual_is_told_once_and_rejects_nobody(text: str, told: list[str]) -> None:
    workload = SourceFile(Path("w.py"), "")
    assert [note.what for note in check_python(version(USUAL + text), version(USUAL), workload).notes] == told
    assert check_python(version(USUAL + text), version(USUAL), workload).violations == ()
    assert check_python(version(USUAL + text), version(USUAL + text), workload).notes == ()


def test_macros_that_nobody_can_read_take_no_time_and_are_refused() -> None:
    deep = "".join(f"#define M{n}(x) M{n + 1}(M{n + 1}(x) M{n + 1}(x))\n" for n in range(12))
    text = f"{HOST}#define P(a, b) a##b\n{deep}#define M12(x) P(x, x)\n" + "M0(M0(M0(a)))\n" * 500
    (violation,) = check_cpp([text], SourceFile(Path("a.cu"), HOST)).violations
    assert violation.what == "uses more macros than can be read"


HIDDEN = 'x = "+ACIACg-import gc+AAo-y = +ACI"\n'


@pytest.mark.parametrize("first", ["# coding: utf-7\n", "\n# -*- coding: utf-7 -*-\n", "\r# coding: utf-7\r"])
def test_code_that_only_an_encoding_shows_is_refused(first: str) -> None:
    workload = SourceFile(Path("w.py"), "")
    (violation,) = check_python(version(first + HIDDEN), version(USUAL), workload).violations
    assert violation.what == "declares an encoding in which its text reads otherwise"


@pytest.mark.parametrize(
    "first", ["# coding: utf-8\n# \u00b5s\n", "# -*- coding: latin-1 -*-\n", "# encoding=ascii\n", "# \u00b5s\n"]
)
def test_an_encoding_in_which_a_text_reads_the_same_is_not(first: str) -> None:
    workload = SourceFile(Path("w.py"), "")
    assert check_python(version(first + USUAL), version(USUAL), workload).violations == ()


@pytest.mark.parametrize(
    ("attempt", "honest"),
    [
        ("triton.knobs.runtime.launch_enter_hook.add(f)", "triton.Config({}, pre_hook=f)"),
        ("torch.nn.modules.module.register_module_forward_hook(f)", "layer.register_forward_hook(f)"),
        ("x.untyped_storage()._share_cuda_()", "x.untyped_storage().nbytes()"),
        ("torch.cuda.memory_snapshot()", "torch.cuda.memory_allocated()"),
    ],
)
def test_hooks_and_memory_of_the_whole_process_are_refused(attempt: str, honest: str) -> None:
    workload = SourceFile(Path("w.py"), "")
    assert check_python(version(USUAL + attempt), version(USUAL), workload).violations != ()
    assert check_python(version(USUAL + honest), version(USUAL), workload).violations == ()


PLAIN = "class Plain:\n    pass\n"
ENUM = "import enum\n"
ORDER = ENUM + "class Order(enum.Enum):\n    ROWS = 1\n"
LAYER = "class A(torch.nn.Module):\n    def f(self, k, d):\n        {}"
KERNEL = "@triton.jit\ndef kernel(x): ...\n"

MAKERS = [
    (PLAIN + "type(Plain)('P', (), d)", PLAIN + "x = Plain()\ntype(x)()"),
    (PLAIN + "T = type(Plain)\nT('P', (), d)", PLAIN + "type(x) in (Plain, int)"),
    (PLAIN + "make(type(Plain))", PLAIN + "raise TypeError('no number: %s' % type(x))"),
    (PLAIN + "class M(type(Plain)): ...", PLAIN + "class M(Plain): ..."),
    ("class M(type): ...", "class M(torch.nn.Module): ..."),
    ("import abc\nabc.ABCMeta('P', (), d)", "import abc\nclass A(metaclass=abc.ABCMeta): ..."),
    ("import abc\nclass M(abc.ABCMeta): ...", "import abc\nclass A(abc.ABC): ..."),
    (ENUM + "enum.Enum('P', {'__' + n: d})", ENUM + "enum.Enum('P', 'ROWS COLUMNS')"),
    (ENUM + "enum.Enum.__call__('P', d)", ORDER + "Order(1), Order['ROWS'], list(Order)"),
    (ENUM + "class E(enum.Enum): ...\nE('P', d)", ENUM + "class E(str, enum.Enum):\n    A = 'a'\nE('a')"),
    (ENUM + "def make(c): ...\nmake(enum.IntEnum)", ORDER + "def make(c): ...\nmake(Order)"),
    (ENUM + "enum.Enum('P', ['synchronize'], module='torch.cuda')", ENUM + "enum.IntFlag('P', ['A', 'B'])"),
    (IMPORTS + "[SimpleNamespace][0](**d)", IMPORTS + "x: SimpleNamespace = SimpleNamespace(a=1)"),
    (IMPORTS + "class N(SimpleNamespace): ...\nN(**d)", IMPORTS + "class N(SimpleNamespace): ...\nN(a=1)"),
    (IMPORTS + "SimpleNamespace({'__' + n: d})", IMPORTS + "isinstance(x, SimpleNamespace)"),
    ("import copy\ncopy.replace(x, **d)", "import copy\ncopy.copy(x)"),
    (
        IMPORTS + "p = argparse.ArgumentParser()\nadd = p.add_argument",
        IMPORTS + "argparse.ArgumentParser().add_argument('n')",
    ),
    ("import logging\nlogging.info('x', extra={'__' + n: d})", "import logging\nlogging.info('x', extra={'rows': 1})"),
    ("import logging\nlogging.getLogger('x').makeRecord", "import logging\nlogging.getLogger('x').warning('y')"),
    (LAYER.format("self._buffers[k] = d"), LAYER.format("return self._buffers['x']")),
    (LAYER.format("self._modules.update(d)"), LAYER.format("return list(self._modules.values())")),
    (LAYER.format("put(self._parameters)"), LAYER.format("self._modules = {}\n        self._modules[k] = d")),
    ("torch.nn.ParameterDict({'__' + n: d})", "torch.nn.ParameterList([w])"),
]
"""Ways to make classes, or objects with attributes, of names that are computed."""

RUNS = [
    ("g = (i for i in x)\ng.gi_code", "g = (i for i in x)\nnext(g)"),
    ("async def f(): ...\nf().cr_code.replace(co_names=n)", "def f():\n    yield 1\nf().close()"),
    ("import functools\nfunctools.wraps(mine)(watch)", "import functools\n@functools.wraps(f)\ndef g(): ..."),
    ("import functools\nclass A:\n    @functools.cached_property\n    def p(self): ...\nA.p.attrname = n", ORDER),
    (ORDER + "enum.global_enum(Order)", ORDER + "@enum.unique\nclass E(enum.Enum):\n    A = 1"),
    ("torch.compile(f, backend=g)", "torch.compile(f, backend='inductor', fullgraph=True)"),
    ("torch.compile(f, **options)", "@torch.compile\ndef f(x): ..."),
    (KERNEL + "kernel._src = text", KERNEL + "kernel.tuned = True"),
    (KERNEL + "other = kernel\nother.src = text", "class A:\n    def __init__(self):\n        self.src = 1"),
    ("torch.library.register_autograd('aten::clone', f)", "torch.library.register_autograd('own::f', f)"),
    (
        "torch.library.register_fake(n + '::clone', f)",
        "@torch.library.custom_op('own::f', mutates_args=())\ndef f(x): ...",
    ),
]
"""Ways to run, or have others run, code that the text does not show."""


@pytest.mark.parametrize(
    ("attempt", "honest"), [pytest.param(*pair, id=pair[0].splitlines()[-1][:50]) for pair in (*MAKERS, *RUNS)]
)
def test_what_makes_and_runs_by_name_is_refused_and_what_shows_its_names_is_not(attempt: str, honest: str) -> None:
    assert of_kernel(attempt) != []
    assert of_kernel(honest) == []


ELSEWHERE = [
    ("torch.cuda.amp.common.find_spec('gc')", "torch.cuda.amp.autocast()"),
    ("from torch.cuda.amp.common import find_spec", "from torch.cuda.amp import custom_fwd"),
    ("torch.cuda.tunable.mp.Process(target=f)", "torch.cuda.current_stream().synchronize()"),
    ("torch.cuda.graphs._cuda_driver", "torch.cuda.CUDAGraph()"),
    ("torch.cuda._utils._get_gpu_runtime_library()", "torch.cuda._sleep(100)"),
    ("torch.cuda.memory._snapshot()", "torch.cuda.memory.memory_allocated()"),
    ("torch.cuda.memory.caching_allocator_delete(x.data_ptr())", "torch.cuda.empty_cache()"),
    ("torch.xpu.cast(a, b)", "torch.xpu.is_available()"),
    ("torch.export.export(m, (x,)).graph_module", "torch.jit.script(f)"),
    ("torch.compiler.load_cache_artifacts(b)", "torch.compiler.is_compiling()"),
    ("torch.nn.modules.module._global_forward_hooks.update(d)", "from torch.nn.modules.batchnorm import _BatchNorm"),
    ("torch.optim.optimizer.register_optimizer_step_pre_hook(f)", "torch.optim.SGD([w], 0.1)"),
    ("triton.language.extra.module_finder.find_spec('gc')", "from triton.language.extra.cuda import libdevice"),
    ("triton.runtime._async_compile.Executor", "triton.runtime.driver.active.utils"),
    ("triton.testing.set_gpu_clock()", "triton.testing.do_bench(f)"),
    ("triton.tools.disasm.extract(a, b)", "from triton.tools.tensor_descriptor import TensorDescriptor"),
    ("from triton._internal_testing import run_in_process", "from triton._internal_testing import is_cuda"),
    ("from tqdm.contrib.concurrent import thread_map", "from tqdm import tqdm\nfor i in tqdm(x): ..."),
    ("from tqdm import TMonitor", "from tqdm.auto import trange"),
    ("import einops\neinops.einops.torch.save", "import einops\neinops.rearrange(x, 'a b -> b a')"),
    ("import packaging.tags\npackaging.tags.platform", "from packaging import version\nversion.parse('1')"),
    ("import numpy as np\nnp._core.multiarray", "import numpy as np\nnp.array([1]), np.copy(x), np.select([a], [b])"),
    ("import logging.config", "import collections\ncollections.defaultdict(list)"),
    ("x.untyped_storage().resize_(8)", "x.untyped_storage().nbytes(), x.untyped_storage().data_ptr()"),
    ("s = x.untyped_storage()", "x.resize_(8)"),
    ("torch.UntypedStorage(8)", "torch.empty(8)"),
    ("torch.cuda.Event.from_ipc_handle(0, h)", "torch.cuda.Event(enable_timing=True)"),
]
"""Ways into modules that modules of torch, Triton and others have imported or keep for themselves."""


@pytest.mark.parametrize(
    ("attempt", "honest"), [pytest.param(*pair, id=pair[0].splitlines()[-1][:50]) for pair in ELSEWHERE]
)
def test_what_modules_keep_for_themselves_is_refused_and_what_they_offer_is_not(attempt: str, honest: str) -> None:
    assert of_kernel(attempt) != []
    assert of_kernel(honest) == []


MODULE = "class A(torch.nn.Module):\n    def __init__(self): "
CATCH = "import pytest\nwith pytest.raises(ValueError) as caught:\n    int('x')\n"
LEADING_OUT = [
    ("def f(stream):\n    stream.__init__('/proc/self/mem', 'r+b')", DERIVED),
    ("[o for o in map(torch.nn.Module.__init__, things)]", MODULE + "torch.nn.Module.__init__(self)"),
    ("make = getattr(stream, '__init__')", MODULE + "super().__init__()"),
    ("import sys\nsys.stdout.buffer.raw", "import sys\nsys.stdout.write('x'), sys.stdout.flush(), sys.stderr.isatty()"),
    ("stream.buffer.detach()", "class A:\n    def f(self):\n        return self.buffer.detach()"),
    ("type(stream.raw)('/proc/self/maps')", "print(f'{x}')"),
    (CATCH + "caught.traceback[0].frame.eval(text)", CATCH + "assert 'x' in str(caught.value)"),
    (CATCH + "caught.tb", CATCH + "assert caught.match('x')"),
    ("triton.knobs.setenv('CC', '/bin/sh')", "triton.knobs.runtime.debug"),
    ("from triton.knobs import setenv", "from triton import knobs\nknobs.autotuning.print"),
    ("torch.ops.inductor._reinterpret_tensor(x, (9,), (1,), 99)", "torch.ops.aten._scaled_mm(x, y)"),
    ("getattr(torch.ops, 'inductor')", "x.as_strided((9,), (1,))"),
    ("torch.cuda.cudart().cudaHostRegister(p, 4096, 0)", "torch.cuda.cudart().cudaProfilerStart()"),
    ("torch.compile(f, options={'cpp.cxx': (None, 'sh')})", "torch.compile(f, options={'max_autotune': True})"),
    ("torch.compile(f, options=made(x))", "torch.compile(f, mode='max-autotune', dynamic=True)"),
]
"""Objects of others that lead to files, frames, programs or memory beyond a tensor."""


@pytest.mark.parametrize(
    ("attempt", "honest"), [pytest.param(*pair, id=pair[0].splitlines()[-1][:50]) for pair in LEADING_OUT]
)
def test_what_leads_out_of_the_file_by_others_objects_is_refused(attempt: str, honest: str) -> None:
    assert of_kernel(attempt) != []
    assert of_kernel(honest) == []


NUMPY = "import numpy as np\n"
WARN = "import warnings\n"
LOG = "import logging\nlog = logging.getLogger('x')\n"
FORMATTER = "import logging\nclass F(logging.Formatter):\n    def format(self, record):\n"
TRUSTED = [
    ("torch.sparse_coo_tensor(i, v, (4,)).to_dense()", "torch.zeros(4).scatter_add(0, i, v)"),
    ("torch.Tensor.to_sparse(x)._indices().add_(9)", "x.max(0).indices.add_(9)"),
    ("x.indices()", "class A:\n    def indices(self):\n        return 1\nA().indices()"),
    ("f = torch.sparse_csr_tensor", "torch.sparse.mm(x, y)"),
    ("torch.segment_reduce(x, 'sum', lengths=n, unsafe=True)", "torch.nn.functional.embedding_bag(x, w, n)"),
    ("torch.nn.functional.ctc_loss(x, t, n, m)", "torch.nn.functional.nll_loss(x, t)"),
    ("torch.nn.CTCLoss()(x, t, n, m)", "torch.nn.NLLLoss()(x, t)"),
    ("torch.ops.aten.max_pool2d_with_indices_backward(g, x, i)", "torch.ops.aten.convolution_backward(g, x, w)"),
    ("torch._cummax_helper(x, v, i, 0)", "torch._scaled_mm(x, y), torch._foreach_add_(x, y), torch._check(n > 0)"),
    ("def use(o):\n    return o.adaptive_max_pool2d_backward\nuse(torch.ops.aten)", "ops = torch.ops.own\nops.f(x)"),
    ("torch.ops.quantized.conv2d", "hasattr(torch.ops, 'own')"),
]
"""Functions of torch that read and write beyond tensors, by the indices and sizes that they are given."""

TELLING = [
    ("text = '{0.' + n + '}'\ntext.format(f)", "text = '{:.2f} ' + '{x}'\ntext.format(t, x=x)"),
    ("def say(text):\n    return text.format(f)", "def say(text):\n    return text.format(n='a')"),
    ("('{0._' + '_globals__}').format(f)", "('{0.name}' + '{1[0]}').format(f, x)"),
    ("'{0.gi_frame}'.format(g)", "'{0.shape}'.format(x)"),
    ("str.format(text, f)", "'{}'.format(f)"),
    ("''.join(parts).format_map({'f': f})", "x.format"),
    (FORMATTER + "        return text.format(record)", FORMATTER + "        return super().format(record)"),
    (LOG + "log.warning('x', stacklevel=3)", LOG + "log.warning('x %d', 3)"),
    (LOG + "log.warning('x', stack_info=True)", LOG + "log.warning('x', exc_info=True)"),
    (LOG + "log.findCaller()", LOG + "log.isEnabledFor(10)"),
    (WARN + "with warnings.catch_warnings(record=True) as w: ...", WARN + "with warnings.catch_warnings(): ..."),
    (WARN + "warnings.formatwarning('x', UserWarning, 'w.py', 1)", WARN + "warnings.warn('x', stacklevel=2)"),
]
"""Ways to learn who calls, or what objects of others hold, from a text."""

WRITTEN = [
    ("license._Printer__filenames = ['w.py']", "license = 'Apache-2.0'\nprint(license)"),
    ("help('gc')", "def help(): ...\nhelp()"),
    ("input()", "def forward(input):\n    return input + 1"),
    (NUMPY + "import numpy.ma.mrecords as r\nr.fromtextfile('w.py')", NUMPY + "np.ma.masked_array([1])"),
    (NUMPY + "a.view(np.recarray)[0]", NUMPY + "a['rows'], np.dtype([('rows', 'i4')])"),
    (NUMPY + "np.test(extra_argv=['--doctest-modules', __file__])", NUMPY + "np.prod(x.shape)"),
    (NUMPY + "np.random.PCG64().cffi", NUMPY + "np.random.default_rng(0).random()"),
    ("from pathlib import Path\nPath('x').mkdir()", "from pathlib import Path\nPath('x').exists()"),
    ("from pathlib import Path\nPath('x').touch()", "from pathlib import Path\nPath(__file__).parent.name"),
    ("torch.jit.script(f).save('y')", "torch.jit.script(f)(x)"),
    ("torch.nn.utils.parametrize.register_parametrization(m, '__' + n, own)", "torch.nn.utils.weight_norm(m)"),
]
"""Functions of the interpreter, numpy and torch that read and write files, or make attributes of any name."""


@pytest.mark.parametrize(
    ("attempt", "honest"),
    [pytest.param(*pair, id=pair[0].splitlines()[-1][:50]) for pair in (*TRUSTED, *TELLING, *WRITTEN)],
)
def test_what_trusts_tells_or_writes_more_than_a_kernel_needs_is_refused(attempt: str, honest: str) -> None:
    assert of_kernel(attempt) != []
    assert of_kernel(honest) == []
