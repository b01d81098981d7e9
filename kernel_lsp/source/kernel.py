"""The record of one kernel as it stands in a file."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_lsp.source.text import Span

_PLAIN = re.compile(r"[^<\[(#]+")


class Language(StrEnum):
    """The languages of kernel files, in the order in which they are tried on a file.

    A line here registers a language; `kernel_lsp/languages/VALUE/` implements it.
    """

    CUDA = "cuda"
    TRITON = "triton"
    CUTE = "cute"  # CuTe DSL, of CUTLASS
    TORCH = "torch"  # a Python file that holds CUDA; its kernels are CUDA's


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; `type` is its text in CUDA (`const float* __restrict__`) or its annotation in Triton."""

    name: str
    type: str
    constexpr: bool = False  # Triton: annotated `tl.constexpr`


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a file: a `__global__` function of CUDA, or a Python function that `@triton.jit` or the like marks.

    Attributes:
        name: name with its namespaces (`ops::softmax`), as a launch would write it, without template arguments.
        language: its own; CUDA also where its text stands in a Python file.
        path: file it stands in.
        span: the whole definition, with template header, attributes and decorators.
        name_span: the identifier alone.
        body: the braces and what is between them (CUDA), or the function's block (Python); empty for a macro's kernel.
        parameters: in order.
        template_parameters: CUDA: texts such as `typename T` or `int BLOCK`; empty for a plain function.
        launch_bounds: CUDA: arguments of `__launch_bounds__` as written.
        extern_c: CUDA: True if it is declared with C linkage, so that its entry name is `name`.
        macro: CUDA: name of the macro whose expansion defines it, else None.
        autotuned: Triton: True under `@triton.autotune`.
    """

    name: str
    language: Language
    path: Path
    span: Span
    name_span: Span
    body: Span
    parameters: tuple[Parameter, ...]
    template_parameters: tuple[str, ...] = ()
    launch_bounds: tuple[str, ...] = ()
    extern_c: bool = False
    macro: str | None = None
    autotuned: bool = False


def base_name(name: str) -> str:
    """Return the kernel's name without template arguments: `ops::softmax` for `ops::softmax<float, 256>`."""
    plain = _PLAIN.match(name)
    return plain[0].strip() if plain else name
