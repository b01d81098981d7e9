"""Lowering: a module in plain PyTorch becomes a `ModelNew` over kernels of its own, in a new file beside it.

A file that defines `Model`, `get_inputs` and `get_init_inputs` and no `ModelNew` is its own workload, and `Model` as
PyTorch runs it is the baseline. Nothing of that file is ever changed.
"""

from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import is_answer, is_problem
from kernel_lsp.source.python import is_python

LANGUAGES = {"cuda": Language.TORCH, "triton": Language.TRITON}
"""What a kernel for a module can be written in, by the values of the setting `refine.write`."""


def is_plain_module(file: SourceFile) -> bool:
    """Whether a file is a module to be lowered: a problem of KernelBench's form without an answer."""
    return is_python(file.path) and is_problem(file.text) and not is_answer(file.text)


def new_path(module: Path, language: Language) -> Path:
    """Where a kernel for a module is written: `STEM_cuda.py` or `STEM_triton.py` beside it."""
    style = next(name for name, one in LANGUAGES.items() if one is language)
    return module.with_name(f"{module.stem}_{style}.py")


def require_room(place: Path) -> None:
    """See that there is no file yet where a kernel for a module would be written.

    Raises:
        SourceError: there is one.
    """
    if place.exists():
        raise SourceError("There is such a file already.", place, cure="Refine it, or give it another name.")
