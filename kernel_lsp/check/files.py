"""Selects the files to check: kernel files among those named, and the kernel files of a named workload or header."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.errors import SourceError, WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import HEADERS, find_kernels, language_of, read_source
from kernel_lsp.source.language import compiled_suffixes, signs, suffixes
from kernel_lsp.source.modules import is_answer, is_problem
from kernel_lsp.source.python import is_python
from kernel_lsp.source.triton import is_broken_triton, kernels_elsewhere
from kernel_lsp.workload.spec import declared_kernel, find_workload

OnUnread = Callable[[SourceError], None]
"""Called for each file below a folder that may have kernels and cannot be read."""


def find_kernel_files(paths: Sequence[Path], on_unread: OnUnread = lambda _: None) -> tuple[SourceFile, ...]:
    """Return the kernel files among `paths` and below folders among them; Python files count if they have kernels.

    Raises:
        SourceError: a path does not exist or what is named cannot be read, or there is no kernel in any of them.
    """
    unread: list[SourceError] = []
    files = kernel_files_among(paths, on_unread=unread.append)
    for error in unread:
        on_unread(error)
    if not files and unread:
        raise unread[0]
    if not files:
        named = ", ".join(str(p) for p in paths)
        elsewhere = [why for path in paths if (why := _elsewhere(path))]
        fix = " ".join(elsewhere) or "Name CUDA files, .py files with Triton or inline CUDA, or their folder."
        raise SourceError(f"no kernel was found in {named}", fix=fix)
    return files


def kernel_files_among(
    paths: Sequence[Path], *, related: bool = False, on_unread: OnUnread = lambda _: None
) -> tuple[SourceFile, ...]:
    """Return kernel files as `find_kernel_files`, but possibly none.

    With `related`, a named workload or problem stands for its kernel file, and a header without kernels for the kernel
    files beside it that include it, as a list of changed files needs it.

    Raises:
        SourceError: a path does not exist or what is named cannot be read.
    """
    files: dict[Path, SourceFile] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else [path]:
            if file in files:
                continue
            try:
                source = read_source(file)
            except SourceError as error:
                if not path.is_dir():
                    raise
                if _may_have_kernels(file):
                    on_unread(error)
                continue
            if is_kernel_file(source):
                files[file] = source
            elif related:
                files |= {other.path: other for other in _kernels_of(source) if other.path not in files}
    return tuple(files.values())


def is_kernel_file(source: SourceFile) -> bool:
    """Return True if a file has a kernel, or a `ModelNew` that computes its CUDA text when it runs.

    A file that marks Triton's functions and that Python cannot parse counts: nobody knows what it has.
    """
    if language_of(source.path, source.text) is None:
        return False
    computed = "load_inline" in source.text and is_answer(source.text)
    return computed or bool(find_kernels(source.text, source.path)) or is_broken_triton(source.text)


def _may_have_kernels(unread: Path) -> bool:
    """Return True for a file whose bytes have a sign of kernels, and for any that cannot be opened."""
    try:
        data = unread.read_bytes()
    except OSError:
        return True
    return any(sign.encode() in data for sign in signs(unread.suffix))


def _below(folder: Path) -> list[Path]:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise SourceError("The folder cannot be read.", folder, fix="Check its permissions.")
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in suffixes()
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _kernels_of(source: SourceFile) -> Iterator[SourceFile]:
    """Yield the kernel files of a workload or header: the one that a workload names, else those beside it."""
    folder = source.path.parent
    named = declared_kernel(source) if source.path.stem.endswith("_workload") else None
    if named is not None:
        other = _read_quietly(folder / named)
        if other is not None and is_kernel_file(other):
            yield other
        return
    if source.path.suffix in HEADERS:
        for path in (path for suffix in compiled_suffixes() for path in sorted(folder.glob(f"*{suffix}"))):
            other = _read_quietly(path)
            if other is None or language_of(path, other.text) is None:
                continue
            if any(header.path == source.path.resolve() for header in user_headers(other)):
                yield other
    elif source.path.stem.endswith("_workload") or (is_python(source.path) and is_problem(source.text)):
        for path in sorted(path for suffix in suffixes() for path in folder.glob(f"*{suffix}")):
            other = _read_quietly(path) if path != source.path else None
            if other is not None and is_kernel_file(other):
                try:
                    workload = find_workload(other)
                except WorkloadError as error:
                    if error.path == source.path:
                        yield other
                    continue
                if workload is not None and workload.source.path == source.path:
                    yield other


def _elsewhere(path: Path) -> str | None:
    """Return, as a sentence, where the kernels of a file without any are; None if that is not known."""
    source = _read_quietly(path)
    if source is None or is_python(path):
        return kernels_elsewhere(source.text) if source else None
    headers = [header for header in user_headers(source) if is_kernel_file(SourceFile(header.path, header.text))]
    return f"Its kernels are in {', '.join(str(one.path) for one in headers)}: name that." if headers else None


def _read_quietly(path: Path) -> SourceFile | None:
    try:
        return read_source(path)
    except SourceError:
        return None
