"""Places findings about a whole kernel: at the kernel's name."""

from collections.abc import Sequence

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, base_name
from kernel_lsp.source.text import Lines


def kernel_place(source: SourceFile, kernels: Sequence[Kernel], name: str) -> tuple[int, int, tuple[int, int]]:
    """Return line, column and end of the name of the kernel that `name` is an instance of; else of the file's first
    one.
    """
    wanted = base_name(name)
    exact = [kernel for kernel in kernels if kernel.name == wanted]
    short = [kernel for kernel in kernels if kernel.name.rpartition("::")[2] == wanted.rpartition("::")[2]]
    kernel = next(iter((*exact, *short, *kernels)), None)
    if kernel is None:
        return 1, 1, (1, 1)
    lines = Lines(source.text.encode())
    line, column = lines.position(kernel.name_span.start)
    return line, column, lines.position(kernel.name_span.end)


def line_place(text: str, line: int) -> tuple[int, int]:
    """Return the first column of the text on a line, and the column after its last character; both 1 if it is empty."""
    lines = Lines(text.encode())
    if not 1 <= line <= len(lines.starts):
        return 1, 1
    start, end = lines.offset(line), lines.offset(line, 1 << 30)
    content = lines.data[start:end]
    return len(content) - len(content.lstrip()) + 1, len(content.rstrip()) + 1
