"""Kernel generation: a module in plain PyTorch becomes a `ModelNew` with its own kernels, in a new file beside it.

A file that defines `Model`, `get_inputs` and `get_init_inputs` and no `ModelNew` is its own workload, and `Model` as
PyTorch runs it is the baseline. That file is never changed.
"""

from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import is_answer, is_problem
from kernel_lsp.source.python import is_python

LANGUAGES = {"cuda": Language.TORCH, "triton": Language.TRITON}
"""The languages that a kernel can be generated in, by the values of the setting `refine.write`."""

MODULE_SIGN = "get_init_inputs"
"""A word that each plain module has."""


def is_plain_module(file: SourceFile) -> bool:
    """Return True if a file is a problem of KernelBench's form without an answer, to generate a kernel for."""
    return is_python(file.path) and is_problem(file.text) and not is_answer(file.text)


def new_path(module: Path, language: Language) -> Path:
    """Return the path of a module's new kernel: `STEM_cuda.py` or `STEM_triton.py` beside it."""
    style = next(name for name, one in LANGUAGES.items() if one is language)
    return module.with_name(f"{module.stem}_{style}.py")


def require_room(place: Path) -> None:
    """Raise an error if the file for a module's new kernel already exists.

    Raises:
        SourceError: there is one.
    """
    if place.exists():
        raise SourceError("This file already exists.", place, fix="Refine it, or give it another name.")
