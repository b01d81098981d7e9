"""CUDA C++ in files of its own: sources, and headers with kernels."""

from pathlib import Path

from kernel_lsp.source.comments import Comment, cuda_comments
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import SourcePart

_HEADERS = (".h", ".hpp")  # of C++ and CUDA alike: those with kernels count


class _Cuda:
    title = "CUDA"
    suffixes: tuple[str, ...] = (".cu", ".cuh", *_HEADERS)
    editor_ids: tuple[str, ...] = ("cuda", "cuda-cpp")
    python = False
    fence = "cuda"
    highlighted_as = "cpp"
    comment = "//"
    signs: tuple[str, ...] = ("__global__", "__launch_bounds__", "CUTLASS_GLOBAL")
    packages: tuple[str, ...] = ()
    launches_itself = False
    computed = False

    def recognises(self, text: str, path: Path) -> bool:
        return path.suffix not in _HEADERS or "__global__" in text

    def find_kernels(self, text: str, path: Path) -> tuple[Kernel, ...]:
        return find_cuda_kernels(text, path)

    def line_comments(self, text: str) -> tuple[Comment, ...]:
        return cuda_comments(text)

    def head(self, kernel: Kernel) -> str:
        template = f"template <{', '.join(kernel.template_parameters)}>\n" if kernel.template_parameters else ""
        parameters = ", ".join(f"{p.type} {p.name}" for p in kernel.parameters)
        return f"{template}__global__ void {kernel.name}({parameters})"


PART: SourcePart = _Cuda()
