"""What loading a file imports that is neither local nor Python's own, by its text."""

from pathlib import Path

import pytest

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.imports import foreign_imports

MAIN = """
import os, torch
import triton.language as tl
from typing import TYPE_CHECKING
from helpers.deep import ready
from . import beside

try:
    import peft
except ImportError:
    peft = None

if TYPE_CHECKING:
    import stubs
else:
    import runtime_only

class Holder:
    import within_a_class

def later():
    import within_a_function

async def still_later():
    import within_another

if __name__ == "__main__":
    import matplotlib.pyplot
"""


def written(folder: Path, **texts: str) -> SourceFile:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return SourceFile(folder / "main.py", texts["main"])


def test_what_local_files_import_counts_and_what_functions_import_does_not(tmp_path: Path) -> None:
    main = written(
        tmp_path, main=MAIN, helpers__deep="import scipy.sparse\nready = 1", beside="import torch\nimport numpy as np"
    )
    named = foreign_imports(main)
    assert named[:2] == ("torch", "triton.language")
    assert set(named) == {
        *("torch", "triton.language", "peft", "runtime_only", "within_a_class", "scipy.sparse", "numpy"),
    }


@pytest.mark.parametrize(("name", "text"), [("main.cu", "__global__ void k() {}"), ("main.py", "import torch\nif")])
def test_what_is_not_python_imports_nothing(name: str, text: str, tmp_path: Path) -> None:
    assert foreign_imports(SourceFile(tmp_path / name, text)) == ()
