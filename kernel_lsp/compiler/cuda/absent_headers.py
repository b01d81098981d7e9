"""Compiles around headers that are nowhere on this machine: generated ones, and those of libraries not installed.

A file that nobody has a workload for is compiled to show what its kernels cost. Where only host code needs a header,
the device code compiles without it; the header is reported as absent.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.headers.prelude import HOST_HEADERS
from kernel_lsp.compiler.headers.user import UserHeader, includes_of, resolve
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.slicing import is_cut

_ABSENT = re.compile(r"(?:could not|cannot) open source file|No such file or directory")
_LIBRARY = re.compile(r"\b(curand|cufft|cublas|cusparse|cusolver)\w*\.h")
_MARK = "kernel_lsp_absent_header"
_ASKED = re.compile(r'__has_include\s*\(\s*["<]([^">]+)[">]')


def is_absent(build: Build) -> bool:
    """Return True if a build failed first for lack of a header."""
    first = next((d for d in build.diagnostics if d.severity is Severity.ERROR), None)
    return build.binary is None and first is not None and _ABSENT.search(first.message) is not None


def substitutes(
    source: SourceFile, headers: Sequence[UserHeader], folders: Sequence[Path], known: Callable[[], Iterable[Path]]
) -> tuple[UserHeader, ...]:
    """Return an empty header for each that a file, or a header of the user's, includes and that is nowhere.

    Headers that the code itself looks for, by `__has_include`, have none: the code does without them.

    Args:
        source: the file.
        headers: those that it includes.
        folders: the user's include folders.
        known: returns the folders of CUDA's headers; it may wait, and is called only where that matters.
    """
    asked = {name for file in (source, *headers) for name in _ASKED.findall(file.text)}
    found: dict[str, UserHeader] = {}
    for file in (source, *headers):
        for name, quoted in includes_of(file.text):
            if name in asked or name in HOST_HEADERS or is_cut(name):
                continue
            there = resolve(name, source, folders, file.path.parent if quoted else None) is not None
            if not there and not any((folder / name).is_file() for folder in known()):
                found[name] = UserHeader(name, Path(name), f"#warning {_MARK}\n")
    return tuple(found.values())


def told(build: Build, source: SourceFile, headers: Sequence[UserHeader]) -> Build:
    """Return a build with a warning at the include of each header that it was made without.

    Of a build that failed for lack of a header only that is told: what the compiler says of the rest follows from it.
    """
    if build.binary is None:
        lacking = tuple(_advised(one) for one in build.diagnostics if _ABSENT.search(one.message))
        return replace(build, diagnostics=lacking or tuple(d for d in build.diagnostics if _MARK not in d.message))
    said = tuple(_at_include(one, source, headers) if _MARK in one.message else one for one in build.diagnostics)
    return replace(build, diagnostics=said)


def _advised(said: Diagnostic) -> Diagnostic:
    """Return a message about a missing header with how to get one of CUDA's libraries."""
    library = _LIBRARY.search(said.message)
    if library is None:
        return said
    advice = f"It comes with a CUDA toolkit, or by `pip install nvidia-{library[1]}`"
    return replace(said, message=f"{said.message}. {advice}")


def _at_include(said: Diagnostic, source: SourceFile, headers: Sequence[UserHeader]) -> Diagnostic:
    for file in (source, *headers):
        for number, line in enumerate(file.text.splitlines(), start=1):
            if any(name == said.path for name, _ in includes_of(line)):
                message = (
                    f"there is no header `{said.path}` here: the device code was compiled without it; "
                    "`build.include_dirs` can name its folder"
                )
                return Diagnostic(str(file.path), number, 1, number, len(line.encode()) + 1, Severity.WARNING, message)
    return said
