"""Finds files that include a file with kernels, for its template instances and the text that precedes it."""

import re
from collections.abc import Sequence
from pathlib import Path

from kernel_lsp.compiler.headers.user import INCLUDE, resolve, user_headers
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.language import compiled_suffixes

_HEADERS = (".cuh", ".h", ".hpp", ".hh")
_HOST = (".cpp", ".cc")
_BRANCH = re.compile(r"^[ \t]*#[ \t]*(if|endif)", re.MULTILINE)
_FOLDERS_UP, _MOST_READ, _MOST_BYTES, _MOST = 3, 100, 1 << 20, 4


def including_files(source: SourceFile, folders: Sequence[Path] = ()) -> tuple[SourceFile, ...]:
    """Return up to four files that include `source`; those that launch its kernels first.

    The first 100 files beside it and up to two folders above are searched. A header may be included indirectly; a `.cu`
    file that is a part of another is named there. Empty if `source` has no kernels.

    Args:
        source: the header, or a part of a program.
        folders: the user's include folders.
    """
    if source.path.suffix not in (*_HEADERS, *compiled_suffixes()):
        return ()
    named = "" if source.path.suffix in _HEADERS else f'{source.path.name}"'
    names = [re.escape(k.name.rpartition("::")[2]) for k in find_cuda_kernels(source.text, source.path)]
    launch = re.compile(rf"\b(?:{'|'.join(names)})\s*<")
    found: list[tuple[bool, SourceFile]] = []
    for path in _around(source.path.resolve()) if names else ():
        file = SourceFile(path, path.read_text(encoding="utf-8", errors="replace"))
        if named in file.text and source.path.resolve() in {header.path for header in user_headers(file, folders)}:
            found.append((launch.search(file.text) is None, file))
    return tuple(file for _, file in sorted(found, key=lambda one: one[0])[:_MOST])


def text_before(source: SourceFile, includer: SourceFile) -> SourceFile:
    """Return the text of `includer` above its include of `source`, and of headers in between if it is included by one.

    It is without includes of other headers whose kernels would be compiled too. Conditions that are open there, as an
    include guard is, are closed at its end.
    """
    text = includer.text.encode()
    for match in INCLUDE.finditer(includer.text):
        headers = user_headers(SourceFile(includer.path, match[0]))
        start, end = (len(includer.text[:at].encode()) for at in match.span())
        if source.path.resolve() in {header.path for header in headers}:
            above = text[:start].decode()
            still_open = sum(1 if mark == "if" else -1 for mark in _BRANCH.findall(above))
            return SourceFile(includer.path, above + "\n#endif" * still_open + _between(source, includer, match))
        if any(not kernel.template_parameters for one in headers for kernel in find_cuda_kernels(one.text, one.path)):
            text = text[:start] + blanked(text[start:end]) + text[end:]
    return SourceFile(includer.path, "")


def _between(source: SourceFile, includer: SourceFile, include: re.Match[str]) -> str:
    """Return the text above `source` in the header that an include means; empty if it is `source` itself."""
    header = resolve(include[1] or include[2], includer, (), None)
    if header is None or header == source.path.resolve():
        return ""
    found = text_before(source, SourceFile(header, header.read_text(encoding="utf-8", errors="replace"))).text

    def whole(inner: re.Match[str]) -> str:
        path = header.parent / (inner[1] or inner[2])
        return f'#include "{path.resolve()}"' if path.is_file() else inner[0]

    return "\n" + INCLUDE.sub(whole, found)


def _around(header: Path) -> list[Path]:
    """Return the files near a header that may include it, without large ones."""
    files = [path for folder in header.parents[:_FOLDERS_UP] for path in sorted(folder.glob("*")) if path != header]
    found = (path for path in files if path.suffix in (*compiled_suffixes(), *_HOST) and path.is_file())
    return [path for path in found if path.stat().st_size <= _MOST_BYTES][:_MOST_READ]
