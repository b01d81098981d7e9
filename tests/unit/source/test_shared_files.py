"""A candidate may import from files that the baseline reads too, and nothing through them."""

from pathlib import Path

import pytest

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.imports import local_imports
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.static_check import check_python

WORKLOAD = """import os
import torch
from sizes import BLOCK

CASES = [dict(n=4)]
system = os.system
HALF = torch.float16


def ceil_div(a, b):
    return -(-a // b)


def reference(x):
    return x


def through(x):
    return reference(x)
"""
LAUNCH = "\n\ndef launch(module, x):\n    return module.k[1, 1](x)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "v1.cu").write_text("")
    (tmp_path / "v1_workload.py").write_text(WORKLOAD)
    (tmp_path / "sizes.py").write_text("BLOCK = 128\n")
    (tmp_path / "written.py").write_text("BLOCK = 128\n")
    return tmp_path


def whats(folder: Path, imports: str, name: str = "v2_workload.py") -> list[str]:
    kernel = SourceFile(folder / "v1.cu", "")
    workload = SourceFile(folder / "v1_workload.py", WORKLOAD)
    launch = SourceFile(folder / name, imports + LAUNCH)
    baseline = Candidate(Language.CUDA, kernel, workload, "baseline", "baseline")
    return [
        found.what
        for found in check_python(Candidate(Language.CUDA, kernel, launch, "", "user"), baseline, workload).violations
    ]


@pytest.mark.parametrize(
    "imports",
    ["from v1_workload import CASES, ceil_div, reference", "from sizes import BLOCK as B", "from .sizes import BLOCK"],
)
def test_files_that_the_baseline_reads_are_shared(folder, imports):
    assert whats(folder, imports) == []


@pytest.mark.parametrize(
    ("imports", "what"),
    [
        ("from written import BLOCK", "imports `written`"),
        ("from v1_workload import CASES, os", "imports `v1_workload`"),
        ("from v1_workload import system", "imports `v1_workload`"),
        ("from v1_workload import HALF", "imports `v1_workload`"),
        ("from v1_workload import *", "imports `v1_workload`"),
        ("import v1_workload", "imports `v1_workload`"),
        ("from . import v1_workload", "imports from `.`"),
        ("from .written import BLOCK", "imports from `.written`"),
        ("from no_such_file import BLOCK", "imports `no_such_file`"),
    ],
)
def test_nothing_else_is(folder, imports, what):
    assert what in whats(folder, imports)


@pytest.mark.parametrize(
    "imports",
    [
        "from v1_workload import reference\n\ndef softmax(x):\n    return reference(x)",
        "from v1_workload import reference as base\n\nanswer = base",
        "from v1_workload import through\n\ndef softmax(x):\n    return through(x)",
    ],
)
def test_the_right_answer_may_be_named_but_not_used(folder, imports):
    assert whats(folder, imports) == ["imports `v1_workload`"]


def test_a_file_of_the_same_name_beside_the_candidate_is_not_the_one_that_is_shared(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "v1_workload.py").write_text(WORKLOAD)
    assert whats(folder, "from v1_workload import CASES", "mine/v2_workload.py") == ["imports `v1_workload`"]


def test_what_a_relative_import_executes_counts_as_imported(tmp_path):
    package = tmp_path / "library"
    package.mkdir()
    for name, text in {"__init__.py": "", "kernel.py": "from .sizes import N\n", "sizes.py": "N = 1\n"}.items():
        (package / name).write_text(text)
    kernel = SourceFile(package / "kernel.py", "from .sizes import N\n")
    found = local_imports(kernel, [package], ())
    assert found is not None
    assert [file.path.name for file in found] == ["__init__.py", "sizes.py"]
