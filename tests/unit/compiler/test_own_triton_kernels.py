"""A `launch` that runs another copy of the kernels than the one it is given is told so, at its own line."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.compiler.cuda.planner import plan_cuda
from kernel_lsp.compiler.triton.own_kernels import require_own
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import load_workload

KERNEL = """import triton


@triton.jit
def scale(x):
    pass


@triton.jit
def shift(x):
    pass
"""
USING = "def launch(module, x):\n    return module.scale\n"
IGNORING = "import math\n\n\ndef launch(kernels, x):\n    return math.sqrt(4)\n"


@pytest.fixture
def source(tmp_path: Path) -> SourceFile:
    return SourceFile(tmp_path / "elementwise.py", KERNEL)


@pytest.fixture
def module(source: SourceFile) -> ModuleType:
    return load_module(source.text, source.path)


def bound(module: ModuleType, text: str) -> Callable[..., Any]:
    path = Path(str(module.__file__)).with_name("elementwise_workload.py")
    return partial(load_module(text, path).launch, module)


def of_a_library(tmp_path: Path, name: str) -> SimpleNamespace:
    """A kernel that another file defines."""
    text = f"import math\n\n\ndef {name}(x):\n    return x\n"
    return SimpleNamespace(fn=getattr(load_module(text, tmp_path / "library" / f"of_{name}.py"), name))


def test_own_kernels_and_those_that_the_file_imports_are_fine(source, module, tmp_path):
    helper = of_a_library(tmp_path, "row_sums")
    require_own([module.scale, helper], source, bound(module, USING))
    require_own([helper], source, bound(module, USING))
    require_own([module.scale], source, bound(module, IGNORING))
    require_own([module.scale, of_a_library(tmp_path, "scale")], source, bound(module, USING))


def test_another_copy_of_a_kernel_is_refused(source, module, tmp_path):
    with pytest.raises(WorkloadError) as caught:
        require_own([module.shift, of_a_library(tmp_path, "scale")], source, bound(module, USING))
    copy = tmp_path / "library" / "of_scale.py"
    assert caught.value.message == f"`launch` runs the kernel `scale` of {copy}, line 4, not the one of elementwise.py"
    assert (caught.value.path, caught.value.line) == (tmp_path / "elementwise_workload.py", 1)
    assert "`module.NAME(...)`" in str(caught.value.fix)


@pytest.mark.parametrize("names", [(), ("row_sums",)])
def test_a_launch_that_ignores_its_module_is_refused(source, module, tmp_path, names):
    with pytest.raises(WorkloadError) as caught:
        require_own([of_a_library(tmp_path, name) for name in names], source, bound(module, IGNORING))
    assert caught.value.message == "`launch` does not use `kernels`, and runs no kernel of elementwise.py"
    assert (caught.value.path, caught.value.line) == (tmp_path / "elementwise_workload.py", 4)


def test_a_launch_that_ignores_its_cuda_module_is_refused(tmp_path):
    path = tmp_path / "scale_workload.py"
    text = f"CASES = [dict(n=4)]\ndef inputs(n):\n    return n\ndef reference(x):\n    return x\n{IGNORING}"
    with pytest.raises(WorkloadError) as caught:
        plan_cuda(load_workload(text, path), ["scale"], device_named("sm_90"))
    assert (caught.value.path, caught.value.line) == (path, 9)
    assert "`module.NAME(...)`" in str(caught.value.fix)
