"""Reads kernel files, determines their language, and finds kernels by name."""

import contextlib
import difflib
import errno
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import SourcePart, source_part, suffixes
from kernel_lsp.source.module_name import ModuleName, module_name
from kernel_lsp.source.modules import device_view
from kernel_lsp.source.python import is_python

LARGEST_BYTES = 8 * 1024 * 1024
HEADERS = (".cuh", ".h", ".hpp", ".inl")
"""Suffixes of headers that kernel files include."""


def source_suffixes() -> tuple[str, ...]:
    """Return the suffixes of kernel files and of headers that they may include."""
    return tuple(dict.fromkeys((*suffixes(), *HEADERS)))


def language_of(path: Path, text: str) -> Language | None:
    """Return the first language that recognises a file by its name and text; None if none does."""
    return next((language for language, part in _parts(path) if part.recognises(text, path)), None)


def find_kernels(text: str, path: Path) -> tuple[Kernel, ...]:
    """Return the kernels of a file, in order; empty for a file of no supported language.

    Kernels in the CUDA text of a Python file have spans of that file.
    """
    return next((found for _, part in _parts(path) if (found := part.find_kernels(text, path))), ())


def cuda_part(source: SourceFile) -> SourceFile:
    """Return the file as a CUDA compiler gets it: of a Python file only its CUDA text, each line in its place."""
    return SourceFile(source.path, device_view(source.text)) if is_python(source.path) else source


def surroundings(*files: SourceFile) -> set[Path]:
    """Return the folders that code in these files may refer to: each file's project, else its folder, and its
    package.
    """
    found: set[Path] = set()
    for file in files:
        path = file.path.resolve()
        found.add(project_of(path) or path.parent)
        if is_python(path) and (called := module_name(path, file.text)).package:
            found.add(called.top)
    return found


def project_of(path: Path) -> Path | None:
    """Return the nearest folder above a file with a `.git` or `pyproject.toml`, below the user's home; else None."""
    outside = {Path.home(), *Path.home().parents}
    for folder in path.parents:
        if folder in outside:
            return None
        if (folder / ".git").exists() or (folder / "pyproject.toml").is_file():
            return folder
    return None


def import_folders(path: Path, called: ModuleName) -> tuple[Path, ...]:
    """Return the folders in which a Python file's imports are looked up besides Python's own, first match first.

    These are its own folder, the one that contains its package, and its project's `src` and root, where they exist.
    """
    project = project_of(path.resolve())
    of_project = (project / "src", project) if project else ()
    return tuple(dict.fromkeys((path.parent, called.root, *(folder for folder in of_project if folder.is_dir()))))


def read_source(path: Path) -> SourceFile:
    """Return the file at `path` with its text as it is, line ends included.

    C++ may have bytes of any encoding in its comments, as older files do: what is not UTF-8 is taken for Latin-1,
    unless its last character is cut off, as while it is written.

    Raises:
        SourceError: it does not exist, cannot be opened, is a directory, a pipe or a device, is no text, or has more
            than 8 MiB; its name, or a Python file, is not UTF-8.
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise SourceError("The path is not UTF-8.", path, fix="Rename the file or the folder it lies in.") from None
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise SourceError("This is a directory.", path, fix=f"Name a {_one_of(suffixes())} file in it.")
        if not stat.S_ISREG(about.st_mode):
            fix = f"Save its text to a {_one_of(suffixes())} file."
            raise SourceError("This is a pipe or a device.", path, fix=fix)
        if about.st_size > LARGEST_BYTES:
            size = f"{about.st_size / 2**20:.1f} MiB"
            fix = "Move the kernel to a file of its own."
            raise SourceError(f"The file has {size}; kernel files may have 8 MiB.", path, fix=fix)
        data = path.read_bytes()
    except FileNotFoundError:
        raise SourceError("There is no such file.", path, fix=_similar_file(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SourceError("This is a link that leads back to itself.", path, fix="Name the file itself.") from None
        fix = "Check its permissions."
        raise SourceError(f"The file cannot be read: {error.strerror}.", path, fix=fix) from error
    try:
        # Python accepts a byte order mark in a file, and not in a text.
        return SourceFile(path, data.decode("utf-8-sig" if is_python(path) else "utf-8"))
    except UnicodeDecodeError as error:
        half_written = error.end == len(data) and error.reason == "unexpected end of data"
        if not is_python(path) and b"\0" not in data and not half_written:
            return SourceFile(path, data.decode("latin-1"))
        line = data.count(b"\n", 0, error.start) + 1
        message = f"Byte 0x{data[error.start]:02x} is not UTF-8."
        raise SourceError(message, path, line, "Save the file in UTF-8.") from None


def encoded(text: str, before: bytes) -> bytes:
    """Return a text in the encoding that `read_source` found in the bytes of a file."""
    try:
        before.decode()
    except UnicodeDecodeError:
        with contextlib.suppress(UnicodeEncodeError):
            return text.encode("latin-1")
    return text.encode()


def write_new(path: Path, text: str) -> None:
    """Write a new file; never overwrite one.

    Raises:
        SourceError: there is one of that name, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError:
        fix = "Rename that file, or go on from it."
        raise SourceError("This file already exists, so it was left alone.", path, fix=fix) from None
    except OSError as error:
        fix = "Check its folder's rights."
        raise SourceError(f"The file cannot be written: {error.strerror}.", path, fix=fix) from None


def pick_kernel(kernels: Sequence[Kernel], name: str) -> Kernel:
    """Return the kernel called `name`, which may leave out namespaces where that is not ambiguous.

    Of several definitions with one name (branches of an `#if`, specialisations) it is the first.

    Raises:
        SourceError: no kernel has that name, or kernels of several namespaces have it.
    """
    exact = [kernel for kernel in kernels if kernel.name == name]
    if exact:
        return exact[0]
    short = [kernel for kernel in kernels if kernel.name.rsplit("::", 1)[-1] == name]
    names = list(dict.fromkeys(kernel.name for kernel in short or kernels))
    if len(short) > 0 and len(names) == 1:
        return short[0]
    path = kernels[0].path if kernels else None
    if not kernels:
        raise SourceError(f"There is no kernel {name}: the file defines none.", path, fix="Name another file.")
    if short:
        raise SourceError(f"Several kernels are called {name}.", path, fix=f"Write one of: {', '.join(names)}.")
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        name, [n.rsplit("::", 1)[-1] for n in names], n=1
    )
    guess = f"Did you mean {near[0]}? " if near else ""
    raise SourceError(f"There is no kernel {name}.", path, fix=f"{guess}The file defines: {', '.join(names)}.")


def _parts(path: Path) -> Iterator[tuple[Language, SourcePart]]:
    """Yield the languages that a file of this name may be in, in order of precedence."""
    for language in Language:
        if path.suffix in (part := source_part(language)).suffixes:
            yield language, part


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _similar_file(path: Path) -> str:
    """Return advice for a missing file: the nearest name in its folder, if one is similar."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"The folder {path.parent} does not exist or cannot be read."
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {path.with_name(near[0])}?" if near else "Check the name and the folder."
