"""A file of a package is imported as part of it, and the text under judgement is all that anybody sees of it."""

import copy
import inspect
import linecache
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path

import pytest
import torch

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import surroundings
from kernel_lsp.source.module_name import module_name
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.imports import announce
from kernel_lsp.workload.load import load_workload

KERNEL = """from .helpers import SCALE


def first(x):
    return x * SCALE


def second(x):
    return first(x) + 1
"""


@pytest.fixture(autouse=True)
def _leave_the_interpreter_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__path__", getattr(sys.modules[name], "__file__", ""))):
            del sys.modules[name]
    for name in [name for name in linecache.cache if name.startswith(str(tmp_path))]:
        del linecache.cache[name]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A package in a `src` layout whose name no other test has; its `__init__.py` imports the kernel."""
    name = f"library_{abs(hash(request.node.name))}"
    root = tmp_path / "src" / name
    written(tmp_path / "pyproject.toml", "")
    written(root / "__init__.py", f"from {name}.ops.kernel import second\n")
    written(root / "ops" / "__init__.py", "from .kernel import first\n")
    written(root / "ops" / "helpers.py", "SCALE = 3\n")
    written(root / "ops" / "kernel.py", KERNEL)
    return root


def test_a_name_follows_the_folders_with_an_init_file(package: Path):
    called = module_name(package / "ops" / "kernel.py", KERNEL)
    assert called.name == f"{package.name}.ops.kernel"
    assert (called.root, called.top) == (package.parent, package)
    assert called.needs_package
    assert not module_name(package / "ops" / "kernel.py", "import math\n").needs_package
    assert module_name(package / "ops" / "__init__.py", "").name == f"{package.name}.ops"
    assert module_name(package.parent / "alone.v2.py", "import math\n").name == "alone_v2"


def test_relative_imports_need_no_init_file(tmp_path: Path):
    written(tmp_path / "plain" / "shared" / "sizes.py", "SIZE = 64\n")
    path = tmp_path / "plain" / "kernels" / "softmax.py"
    text = "from ..shared.sizes import SIZE\n"
    assert module_name(path, text).name == "plain.kernels.softmax"
    assert load_module(text, path).SIZE == 64


def test_a_file_of_a_package_is_imported_as_part_of_it(package: Path):
    loaded = load_module(KERNEL, package / "ops" / "kernel.py")
    assert loaded.second(2) == 7
    assert loaded.__name__ == f"{package.name}.ops.kernel"
    assert loaded.__package__ == f"{package.name}.ops"


def test_whoever_imports_the_file_gets_the_text_under_judgement(package: Path):
    other = KERNEL.replace("x * SCALE", "x * SCALE * 10").split("def second")[0] + "def second(x):\n    return -1\n"
    module = load_module(f"import math\n\n\n{other}", package / "ops" / "kernel.py")
    top, ops = sys.modules[package.name], sys.modules[f"{package.name}.ops"]
    assert top.second is module.second
    assert ops.first is module.first
    assert ops.kernel is module
    assert inspect.getsource(module.first) == "def first(x):\n    return x * SCALE * 10\n"
    assert inspect.getsource(module.second) == "def second(x):\n    return -1\n"
    user = package.parent.parent / "test" / "second_workload.py"
    launch = f"from {package.name}.ops import first\nfrom {package.name}.ops.kernel import second\n"
    assert load_module(launch, user).first is module.first


def test_one_file_is_one_module_whatever_it_is_called(package: Path):
    kernel = load_module(KERNEL, package / "ops" / "kernel.py")
    again = load_module("import kernel\n", package / "ops" / "by_stem_workload.py")
    assert again.kernel is kernel


def test_a_file_is_executed_anew_each_time(package: Path):
    first = load_module(KERNEL, package / "ops" / "kernel.py")
    other = load_module(KERNEL.replace("+ 1", "+ 2"), package / "ops" / "kernel.py")
    assert (first.second(1), other.second(1)) == (4, 5)
    assert sys.modules[f"{package.name}.ops.kernel"] is other
    assert sys.modules[f"{package.name}.ops"].kernel is other


def test_a_module_by_another_path_to_the_file_gets_the_new_text(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "real" / "rate.py").write_text("RATE = 1\n")
    user = tmp_path / "rate_workload.py"
    assert load_module("from linked import rate\nSEEN = rate.RATE\n", user).SEEN == 1
    load_module("RATE = 2\n", tmp_path / "real" / "rate.py")
    assert load_module("from linked import rate\nSEEN = rate.RATE  # anew\n", user).SEEN == 2


def test_a_workload_that_is_loaded_first_gets_the_text_too(package: Path):
    path, text = package / "ops" / "kernel.py", KERNEL.replace("+ 1", "+ 2")
    announce(text, path)
    workload = load_module(f"from {package.name}.ops import first\n", package / "ops" / "kernel_workload.py")
    kernel = load_module(text, path)
    assert workload.first is kernel.first
    assert kernel.second(1) == 5


def test_a_workload_outside_of_the_package_imports_it_from_a_src_layout(package: Path):
    text = f"from {package.name}.ops.helpers import SCALE\n"
    assert load_module(text, package.parent.parent / "test" / "kernels" / "k_workload.py").SCALE == 3


def test_a_package_that_does_not_load_is_there_with_its_folder(package: Path):
    written(package / "__init__.py", "raise RuntimeError('no GPU was found')\n")
    path = package / "ops" / "kernel.py"
    assert load_module(KERNEL, path).second(2) == 7
    with pytest.raises(WorkloadError) as caught:
        load_module(f"from .helpers import SCALE\nfrom {package.name} import second\n", path)
    assert caught.value.line == 2
    assert f"{package / '__init__.py'} raised RuntimeError (no GPU was found)" in str(caught.value.fix)


def test_the_package_of_a_file_may_be_read(package: Path):
    (package.parent.parent / "pyproject.toml").unlink()
    assert package in surroundings(SourceFile(package / "ops" / "kernel.py", KERNEL))


def test_a_file_that_shares_its_name_with_a_library_is_itself(tmp_path: Path):
    written(tmp_path / "torch" / "__init__.py", "")
    loaded = load_module("import torch\nTENSOR = torch.Tensor\n", tmp_path / "torch" / "copy.py")
    assert loaded.TENSOR is torch.Tensor
    assert sys.modules["copy"] is copy


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        ("import no_such_module\n", 1, "Install `no_such_module`"),
        ("x = 1\n\n\ndef f():\n    assert x == 2\n\n\nf()\n", 5, "Line 8 runs when the file is imported"),
        ("for n in (1, 0):\n    print(n)\n    1 / n\n", 3, "Line 1 runs when the file is imported"),
        ("y = 1 / 0\nassert y\n", 1, "Line 1 runs when the file is imported"),
        ("import sys\nsys.exit(3)\n", 2, "It ends here without the arguments of a command line"),
        ("SIZE = 1 / 0\n\n\ndef f():\n    return SIZE\n", 1, None),
        ("def f(x=1 / 0):\n    return x\n", 1, None),
    ],
)
def test_what_runs_at_import_is_named_with_its_fix(tmp_path: Path, text: str, line: int, fix: str | None):
    with pytest.raises(WorkloadError) as caught:
        load_module(text, tmp_path / "script.py")
    assert (caught.value.path, caught.value.line) == (tmp_path / "script.py", line)
    assert caught.value.fix is None if fix is None else fix in str(caught.value.fix)


def test_options_of_a_command_line_are_at_their_defaults(tmp_path: Path):
    text = """
    import argparse, warnings
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8)
    ROWS = parser.parse_args().rows
    print("rows", ROWS)
    warnings.warn("slow")
    CASES = [dict(n=ROWS)]
    def inputs(n):
        return n
    def reference(n):
        return n
    """
    assert load_workload(textwrap.dedent(text), tmp_path / "script.py").cases == ({"n": 8},)
