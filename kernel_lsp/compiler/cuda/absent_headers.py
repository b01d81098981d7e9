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
from kernel_lsp.compiler.headers.project import empty_submodules
from kernel_lsp.compiler.headers.user import UserHeader, includes_of, is_of_system, resolve
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.outline import code_only, outline
from kernel_lsp.source.slicing import is_cut
from kernel_lsp.source.text import Lines

_ABSENT = re.compile(r"(?:could not|cannot) open source file|No such file or directory")
_LIBRARY = re.compile(r"\b(curand|cufft|cublas|cusparse|cusolver)\w*\.h")
# Of `curand_kernel.h`; not `curandGenerator_t` and `curandCreateGenerator`, which host code has of `curand.h`.
_RANDOM = re.compile(r"\bcurand(?:\d?\s*\(|\d?_(?!kernel\.h)\w+|(?:State|DirectionVectors|Discrete)\w*)")
RANDOM_HEADER = "curand_kernel.h"
"""Of device code alone: nothing can stand for it."""
LEFT_OUT = "it was not compiled:"
_ADVICE = "it comes with a CUDA toolkit, or by `pip install nvidia"
_MOST_NAMED = 3
_MARK = "kernel_lsp_absent_header"
_SYSTEM = (Path("/usr/include"), *Path("/usr/include").glob("*-linux-gnu"))
_ASKED = re.compile(r'__has_include\s*\(\s*["<]([^">]+)[">]')


def is_absent(build: Build) -> bool:
    """Return True if a build failed first for lack of a header."""
    first = next((d for d in build.diagnostics if d.severity is Severity.ERROR), None)
    return build.binary is None and first is not None and _ABSENT.search(first.message) is not None


def substitutes(
    source: SourceFile, headers: Sequence[UserHeader], folders: Sequence[Path], known: Callable[[], Iterable[Path]]
) -> tuple[UserHeader, ...]:
    """Return an empty header for each that a file, or a header of the user's, includes and that is nowhere: one with a
    warning, but for the system's.

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
                found[name] = UserHeader(name, Path(name), "" if _is_here(name) else f"#warning {_MARK}\n")
    return tuple(found.values())


def _is_here(name: str) -> bool:
    """Return True if a header is the system's, which its own compiler finds, and which is for host code alone."""
    return is_of_system(name) or any((folder / name).is_file() for folder in _SYSTEM)


def needs_random(texts: Iterable[str], known: Callable[[], Iterable[Path]]) -> bool:
    """Return True if device code uses cuRAND's device functions and their header is in none of the folders."""
    return any(map(_RANDOM.search, texts)) and not any((folder / RANDOM_HEADER).is_file() for folder in known())


def without_random(sliced: str, gone: frozenset[str] = frozenset()) -> tuple[str, frozenset[str]]:
    """Return device code without the functions and types that use cuRAND's, or one of the names `gone`; and the names
    of all that is gone.
    """
    data = bytearray(sliced.encode())
    names = set(gone)
    left = list(outline(bytes(data)).declarations)
    while True:
        uses = re.compile(rf"{_RANDOM.pattern}|\b(?:{'|'.join(map(re.escape, sorted(names))) or '(?!)'})\b")
        cut = [one for one in left if uses.search(code_only(bytes(data[one.span.start : one.span.end])).decode())]
        if not cut:
            return data.decode(), frozenset(names)
        for made in cut:
            left.remove(made)
            data[made.span.start : made.span.end] = blanked(bytes(data[made.span.start : made.span.end]))
            if made.declarator is not None:
                names.add(made.head[made.declarator[0]].text.decode())


def left_out(source: SourceFile, kernels: Iterable[Kernel], gone: frozenset[str]) -> tuple[Diagnostic, ...]:
    """Return a warning for each kernel that is not compiled, since it uses cuRAND's device functions."""
    lines = Lines(source.text.encode())
    return tuple(
        Diagnostic(
            str(source.path),
            *lines.position(kernel.name_span.start),
            *lines.position(kernel.name_span.end),
            Severity.WARNING,
            f"{LEFT_OUT} it uses device functions of cuRAND, and `{RANDOM_HEADER}` is not here; {_ADVICE}-curand`",
        )
        for kernel in kernels
        if kernel.name.rpartition("::")[2] in gone
    )


def told(build: Build, source: SourceFile, headers: Sequence[UserHeader], absent: Sequence[UserHeader]) -> Build:
    """Return a build with a warning at the include of each header that it was made without.

    Of a build that failed for lack of a header only that is told: what the compiler says of the rest follows from it.
    Where it failed otherwise, each of the `absent` is named, as it may be the cause.
    """
    if build.binary is None:
        if lacking := tuple(_advised(one, source) for one in build.diagnostics if _ABSENT.search(one.message)):
            return replace(build, diagnostics=lacking)
        causes = (
            _at_include(one.name, "its absence may be why this does not compile", source, headers)
            for one in absent
            if one.text
        )
        said = (*filter(None, causes), *(one for one in build.diagnostics if _MARK not in one.message))
    else:
        said = tuple(
            (_at_include(one.path, "the device code was compiled without it", source, headers) or one)
            if _MARK in one.message
            else one
            for one in build.diagnostics
        )
    return replace(build, diagnostics=said)


def _advised(said: Diagnostic, source: SourceFile) -> Diagnostic:
    """Return a message about a missing header with how to get a library of CUDA's or the project's submodules, or with
    the setting for its folder.
    """
    if library := _LIBRARY.search(said.message):
        advice = f"{_ADVICE[0].upper()}{_ADVICE[1:]}-{library[1]}`"
    elif folders := empty_submodules(source.path):
        named = ", ".join(f"`{name}`" for name in folders[:_MOST_NAMED])
        advice = f"Submodules of its project are empty, {named}: `git submodule update --init` gets them"
    else:
        advice = "`build.include_dirs` can name its folder"
    return replace(said, message=f"{said.message}. {advice}")


def _at_include(name: str, effect: str, source: SourceFile, headers: Sequence[UserHeader]) -> Diagnostic | None:
    """Return a warning at the include of a header that is nowhere; None if none is found."""
    for file in (source, *headers):
        for number, line in enumerate(file.text.splitlines(), start=1):
            if any(included == name for included, _ in includes_of(line)):
                message = f"there is no header `{name}` here: {effect}; `build.include_dirs` can name its folder"
                return Diagnostic(str(file.path), number, 1, number, len(line.encode()) + 1, Severity.WARNING, message)
    return None
