"""Python files that hold CUDA: a KernelBench problem, or a `ModelNew` with CUDA C++ for `load_inline`, if any.

The kernels are CUDA's, read through `device_view`, in which every byte has the offset that it has in the file.
"""

from pathlib import Path

from kernel_lsp.source.comments import Comment, cuda_comments, python_comments
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import SourcePart, source_part
from kernel_lsp.source.modules import device_view, is_torch_file


class _Torch:
    title = source_part(Language.CUDA).title
    suffixes: tuple[str, ...] = (".py",)
    editor_ids: tuple[str, ...] = ("python",)
    python = True
    fence = "python"
    highlighted_as = "python"
    comment = "#"
    signs: tuple[str, ...] = ("load_inline", "ModelNew", "get_init_inputs")
    packages: tuple[str, ...] = ("torch",)
    launches_itself = True
    computed = True

    def recognises(self, text: str, path: Path) -> bool:
        return is_torch_file(text)

    def find_kernels(self, text: str, path: Path) -> tuple[Kernel, ...]:
        if "load_inline" not in text:
            return ()
        return source_part(Language.CUDA).find_kernels(device_view(text), path)

    def line_comments(self, text: str) -> tuple[Comment, ...]:
        return tuple(sorted((*python_comments(text), *cuda_comments(text, device_view(text)))))

    def head(self, kernel: Kernel) -> str:
        return source_part(Language.CUDA).head(kernel)


PART: SourcePart = _Torch()
