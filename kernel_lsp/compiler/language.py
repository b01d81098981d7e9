"""The protocol by which a language compiles and loads its kernels."""

from functools import cache
from typing import Protocol

from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import part_of


class CompilerPart(Protocol):
    """How files in one language are compiled.

    Attributes:
        compiles_at_launch: True where the language's own compiler runs again when a version is launched, and keeps its
            output in a cache of its own; False where the build's own output is loaded.
        lays_out_threads: True where the compiler decides which thread accesses what, and the author does not.
        compiles_alone: True where a file without a workload is compiled without running any of the user's code.
        includes_headers: True where the user's headers and compiler options affect the build.
        packages: distributions whose versions affect the build, beside torch, Triton and CUDA's own.
        gpu_only: why its kernels cannot be launched without a GPU, as a clause; empty where the emulator runs them.
    """

    compiles_at_launch: bool
    lays_out_threads: bool
    compiles_alone: bool
    includes_headers: bool
    packages: tuple[str, ...]
    gpu_only: str

    def device_code(self, text: str) -> str:
        """Return what of a file's text decides on its GPU code; empty where the file is imported."""
        ...


@cache
def compiler_part(language: Language) -> CompilerPart:
    """Return how files in a language are compiled."""
    return part_of(language, "compiler")
