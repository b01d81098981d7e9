"""Files that include a header of kernels and launch them: they tell instances of its templates, and blocks."""

from collections.abc import Sequence
from pathlib import Path

from kernel_lsp.compiler.headers import user_headers
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels

_HEADERS = (".cuh", ".h", ".hpp", ".hh")
_HOST = (".cu", ".cuh", ".cpp", ".cc")
_MOST, _MOST_BYTES = 200, 1 << 20


def launching_files(source: SourceFile, folders: Sequence[Path] = ()) -> tuple[SourceFile, ...]:
    """The files that launch templates of the header `source`, in order of their paths; none where it is no header.

    Looked for beside it and one folder further up, among the first 200 files.

    Args:
        source: the header.
        folders: the user's include folders.
    """
    if source.path.suffix not in _HEADERS:
        return ()
    names = [k.name.rpartition("::")[2] for k in find_cuda_kernels(source.text, source.path) if k.template_parameters]
    found: list[SourceFile] = []
    for path in _beside(source.path) if names else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        if "<<<" in text and any(name in text for name in names):
            file = SourceFile(path, text)
            included = {header.path for header in user_headers(file, folders)}
            found += [file] if source.path.resolve() in included else []
    return tuple(found)


def _beside(header: Path) -> list[Path]:
    """The files that may include a header, each of a size that can be read in no time."""
    folder = header.parent.resolve()
    files = [path for one in (folder, folder.parent) for path in sorted(one.glob("*")) if path.suffix in _HOST]
    return [p for p in files[:_MOST] if p.is_file() and p != header.resolve() and p.stat().st_size <= _MOST_BYTES]
