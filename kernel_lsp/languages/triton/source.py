"""Triton's functions in Python files."""

from pathlib import Path

from kernel_lsp.source.comments import Comment, python_comments
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import SourcePart
from kernel_lsp.source.python import signature
from kernel_lsp.source.triton import find_triton_kernels, is_broken_triton


class _Triton:
    title = "Triton"
    suffixes: tuple[str, ...] = (".py",)
    editor_ids: tuple[str, ...] = ("python",)
    python = True
    fence = "python"
    highlighted_as = "python"
    comment = "#"
    signs: tuple[str, ...] = ("triton",)
    packages: tuple[str, ...] = ("triton",)
    launches_itself = False
    computed = False

    def recognises(self, text: str, path: Path) -> bool:
        return bool(find_triton_kernels(text, path)) or is_broken_triton(text)

    def find_kernels(self, text: str, path: Path) -> tuple[Kernel, ...]:
        return find_triton_kernels(text, path)

    def line_comments(self, text: str) -> tuple[Comment, ...]:
        return python_comments(text)

    def head(self, kernel: Kernel) -> str:
        return f"@triton.jit\n{signature(kernel)}"


PART: SourcePart = _Triton()
