"""Violations to a candidate's host code are named, unless the user's own does the same."""

from pathlib import Path

import pytest

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.static_check import check_cpp, check_python

EXAMPLES = Path(__file__).parents[3] / "examples"
USUAL = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def version(text: str, launch: str | None = None, language: Language = Language.TRITON) -> Candidate:
    kernel = SourceFile(Path("kernel.py" if language is Language.TRITON else "kernel.cu"), text)
    return Candidate(language, kernel, SourceFile(Path("kernel_workload.py"), launch) if launch else None, "", "user")


def found(text: str, baseline: str = USUAL, workload: str = "") -> list[str]:
    own = SourceFile(Path("kernel_workload.py"), workload)
    return [violation.what for violation in check_python(version(text), version(baseline), own).violations]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import gc", "imports `gc`"),
        ("import torch.utils.cpp_extension", "uses `torch.utils.cpp_extension`"),
        ("from os import kill", "reaches for `os.kill`"),
        ("from . import other", "imports from `.`"),
        ("import torch\ntorch.cuda.synchronize = None", "changes `torch.cuda.synchronize`"),
        ("import torch as t\nt.cuda.Event.elapsed_time = None", "changes `torch.cuda.Event.elapsed_time`"),
        ("from torch import cuda\ncuda.synchronize = None", "changes `torch.cuda.synchronize`"),
        ("import torch\nx = torch\nx.cuda.synchronize = None", "changes `torch.cuda.synchronize`"),
        ("import torch\ndel torch.Tensor.add_", "changes `torch.Tensor.add_`"),
        ("import torch\nfor torch.empty in []: pass", "changes `torch.empty`"),
        ("import torch\ntorch._C", "hands round `torch._C`"),
        ("import torch\ntorch.nn.functional.sys", "reaches for `torch.nn.functional.sys`"),
        ("f = lambda: 0\nf.__globals__", "reaches for `__globals__`"),
        ("getattr(f, '__globals__')", "reaches for `__globals__`"),
        ("getattr(f, name)", "uses `getattr` with a name that is computed"),
        ("setattr(f, 'a', 1)", "uses `setattr`"),
        ("g = exec", "uses `exec`"),
        ("open('x')", "uses `open`"),
        ("__import__('os')", "uses `__import__`"),
        ("__builtins__", "uses `__builtins__`"),
        ("import torch\ntorch.load('x')", "reads or writes files with `torch.load`"),
        ("from torch import load", "reads or writes files with `torch.load`"),
        ("import torch\ntorch.set_default_dtype(torch.half)", "changes a setting of the whole process with"),
        ("import torch\ntorch.use_deterministic_algorithms(True)", "changes a setting of the whole process with"),
        ("import torch\ntorch.hub", "uses `torch.hub`"),
        ("import enum\nenum.bltns.exec('x')", "reaches for `enum.bltns`"),
        ("from enum import bltns", "reaches for `enum.bltns`"),
        ("import dataclasses\ndataclasses.types.CodeType", "reaches for `dataclasses.types`"),
        ("import torch\ntorch.nn.functional.warnings", "reaches for `torch.nn.functional.warnings`"),
        ("import torch\ntorch.nn.functional.torch.utils", "hands round `torch.utils`"),
        ("import triton\ntriton.runtime.build", "uses `triton.runtime.build`"),
        ("import torch\nt = torch\nt.utils.data", "uses `torch.utils.data`"),
        ("from torch import nn\nn = nn.functional\nn.torch.save", "reads or writes files with `torch.save`"),
        ("import torch\n[torch][0].save", "hands round `torch`"),
        ("import torch\nmatch torch:\n    case t: t.save", "hands round `torch`"),
        ("import torch\nself.f = torch.nn.functional", "hands round `torch.nn.functional`"),
        ("g = getattr\ng(print, '__se' + 'lf__')", "hands round `getattr`"),
        ("from functools import reduce\nreduce(getattr, names, print)", "hands round `getattr`"),
        ("from functools import singledispatch", "reaches for `singledispatch`"),
        ("import functools\nfunctools.update_wrapper(a, b, names)", "reaches for `update_wrapper`"),
        ("import torch\nself = torch.Tensor\nself.copy_ = None", "calls what is no object of its own `self`"),
        ("import torch\ndef f(cls=torch.Tensor):\n    cls.copy_ = None", "calls what is no object of its own `cls`"),
        ("import torch as ctx\nctx._C", "hands round `torch._C`"),
        ("class A:\n    def __torch_function__(self): ...", "defines `__torch_function__`"),
        ("class A:\n    __setattr__ = print", "defines `__setattr__`"),
        ("class A(B, metaclass=M): ...", "chooses a metaclass"),
        ("type('A', (), names)", "makes a class with `type`"),
        ("import threading\nthreading.Thread(target=f).start()", "reaches for `threading.Thread`"),
        ("import string\nclass A(string.Formatter): ...", "reaches for `string.Formatter`"),
        ("import platform\nplatform.os", "reaches for `platform.os`"),
        ("t = type\nt('A', (), names)", "hands round `type`"),
    ],
)
def test_named(text, what):
    assert any(said.startswith(what) for said in found(text)), found(text)


@pytest.mark.parametrize(
    "text",
    [
        "import math\nimport functools\nfrom dataclasses import dataclass\nfrom __future__ import annotations",
        "import torch\nwith torch.cuda.stream(torch.cuda.Stream()): pass",
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice",
        "import torch\nn = torch.cuda.get_device_properties(0).multi_processor_count",
        "import triton\nn = triton.runtime.driver.active.utils.get_device_properties(0)",
        "class A:\n    def __init__(self):\n        self._x = 1\n    def f(self):\n        return self._x",
        "import torch\nx = torch.empty(3)\nx.data_ptr(), getattr(x, 'shape'), hasattr(x, 'stride')",
        "import torch\nmodel.eval()\nx.load()",
        "this is no Python",
        "import torch\nF = torch.nn.functional\nF.relu(x), type(x), isinstance(x, torch.Tensor)",
        "import triton.language as tl\ntl.math.exp(x), tl.random.rand(1, 2)",
        "class A(Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.n = x",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    n: int",
        "from typing import TypedDict\nclass A(TypedDict, total=False):\n    block: int\na: A = {'block': 1}",
        "import platform\nLINUX = platform.system() == 'Linux'",
        "import threading\nlock = threading.Lock()\nwith lock: pass",
        "from fractions import Fraction\nimport string\nn = Fraction(1, 3), string.digits",
    ],
)
def test_what_kernels_need_is_no_violation(text):
    assert found(text) == []


def test_the_users_own_text_may_do_what_it_does():
    assert found("import io\nimport gc", baseline="import io") == ["imports `gc`"]
    assert found("import io", workload="import io") == []


_MAKES_TENSOR_MAPS = "wgmma_gemm_workload"  # by `cuda.bindings`, which a candidate imports only beside such a baseline
_TEXTS = [path for path in EXAMPLES.glob("*/*.py") if path.stem != _MAKES_TENSOR_MAPS]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in _TEXTS])
def test_examples_give_no_cause(path):
    text = path.read_text()
    assert (of_answer(text) if "ModelNew" in text else found(text, baseline="")) == []


def test_a_launch_is_read_and_the_line_told():
    launch = "import torch\n\n\ndef launch(module, x):\n    return eval('x')\n"
    kernel = "__global__ void f() {}"
    base = version(kernel, "import torch\n", Language.CUDA)
    (violation,) = check_python(version(kernel, launch, Language.CUDA), base, SourceFile(Path("w.py"), "")).violations
    assert (violation.line, violation.what) == (5, "uses `eval`")


HOST = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n#include <vector>\nvoid f() { kernel<<<1, 1>>>(); }\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("void g() { dlopen(name, 2); }", "uses `dlopen`"),
        ("void g() { mprotect(0, 0, 7); }", "uses `mprotect`"),
        ("void g() { cudaDeviceSetLimit(cudaLimitStackSize, 1); }", "uses `cudaDeviceSetLimit`"),
        ("void g() { kernel_lsp::torch_attribute(name); }", "uses `kernel_lsp`"),
        ("void g() { py::module_::import(name); }", "uses `py::module_::import`"),
        ("void g() { PyImport_ImportModule(name); }", "uses `PyImport_ImportModule`"),
    ],
)
def test_host_code_of_an_extension(text, what):
    (violation,) = check_cpp([HOST + text], SourceFile(Path("a.cu"), HOST)).violations
    assert (violation.line, violation.what) == (5, what)
    assert check_cpp([HOST + text], SourceFile(Path("a.cu"), HOST + text)).violations == ()


@pytest.mark.parametrize(
    "text",
    [
        "// mprotect(0);",
        "/* system(x) */",
        'const char* s = "exit(0)";',
        "int exit_code = 0;",
        "at::Tensor f(at::Tensor x) { return x.clone(); }",
        "at::Tensor f(at::Tensor* x) { return at::clone(x->clone()); }",
    ],
)
def test_comments_strings_and_other_names_are_no_host_code(text):
    assert check_cpp([HOST + text], SourceFile(Path("a.cu"), HOST)).violations == ()


PROBLEM = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def of_answer(text: str) -> list[str]:
    candidate = Candidate(Language.TORCH, SourceFile(Path("answer.py"), text), None, "", "user")
    problem = SourceFile(Path("problem.py"), PROBLEM)
    return [
        o.what
        for o in check_python(candidate, Candidate(Language.TORCH, problem, None, "", "baseline"), problem).violations
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from torch.utils.cpp_extension import load_inline",
        "from torch.utils.cpp_extension import load, load_inline as build\nbuild(name='x')",
        "from torch.utils import cpp_extension\ncpp_extension.load_inline(name='x')",
        "import torch.utils.cpp_extension\ntorch.utils.cpp_extension.load(name='x', sources=[])",
        "import torch.nn as nn\nimport torch.nn.functional as F\nnn.Linear(1, 2), F.relu",
        "import torch, os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nos.environ.setdefault('MAX_JOBS', '4')",
        "import textwrap\ntextwrap.dedent('x')",
    ],
)
def test_an_answer_may_build_extensions(text):
    assert of_answer(text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import torch.utils.cpp_extension as e\ne.os", "reaches for `torch.utils.cpp_extension.os`"),
        ("import torch\ntorch.utils.data", "uses `torch.utils.data`"),
        ("from torch.utils.cpp_extension import load_inline, os", "reaches for `torch.utils.cpp_extension.os`"),
        ("from torch.utils import cpp_extension, data", "uses `torch.utils.data`"),
        ("import ctypes", "imports `ctypes`"),
        ("import torch\ntorch.matmul = None", "changes `torch.matmul`"),
        ("import os\nos.environ['LD_PRELOAD'] = 'x'", "changes the environment of the whole process"),
        ("import os\nos.environ['MAX_JOBS'] = '4'\nos.kill", "reaches for `os.kill`"),
        ("import os\nos.environ['MAX_JOBS'] = '4'\ndef f(o=os): pass", "hands round `os`"),
        ("import os\nos.environ['MAX_JOBS'] = '4'\nimport torch\ntorch.os", "reaches for `torch.os`"),
        ("import os as o\no.system", "reaches for `os.system`"),
        ("import os, gc\nos.environ['MAX_JOBS'] = '4'", "imports `gc`"),
    ],
)
def test_an_answer_may_do_nothing_else(text, what):
    assert any(said == what for said in of_answer(text)), of_answer(text)


@pytest.mark.parametrize("header", ["float.h", "cstring", "iostream", "sstream", "curand_kernel.h", "cstdlib"])
def test_host_code_may_include_what_gives_it_nothing_more(header):
    text = f"load_inline(name='x', cpp_sources='#include <{header}>')"
    assert of_answer(f"from torch.utils.cpp_extension import load_inline\n{text}") == []


def test_cpp_given_to_load_inline_is_read_in_its_place():
    body = 'int f() {\n  return dlclose(dlopen("ls", 2));\n}\n'
    call = f'load_inline(name="x", cpp_sources="""\n{body}""")\n'
    text = f"from torch.utils.cpp_extension import load_inline\n{call}"
    candidate = Candidate(Language.TORCH, SourceFile(Path("answer.py"), text), None, "", "user")
    problem = SourceFile(Path("problem.py"), PROBLEM)
    seen = check_python(candidate, Candidate(Language.TORCH, problem, None, "", "baseline"), problem).violations
    assert [(o.line, o.what) for o in seen] == [(4, "uses `dlopen`")]
