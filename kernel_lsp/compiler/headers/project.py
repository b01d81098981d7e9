"""Guesses a project's include folders from the places of the headers that a file includes.

Public code is compiled by a build system that names its include folders; of a file alone they are unknown. A header
that is found nowhere is looked for in the folders around the file, nearest first.
"""

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_lsp.compiler.headers.user import includes_of, is_of_system, resolve
from kernel_lsp.source.candidate import SourceFile

_LEVELS = 6
_VENDORED = (
    *("third_party", "third-party", "3rdparty", "thirdparty", "external", "extern", "deps", "submodules"),
    *("csrc", "tools"),  # as FlashAttention has CUTLASS, and CUTLASS its own utilities
)
_PLACES = (
    *("", "include", "*", "*/include", "*/inc"),
    *(f"{folder}/*{inner}" for inner in ("", "/include") for folder in _VENDORED),
)
_ROOT = (".git",)  # of a project, whose parts may have licences of their own, as HeCBench's samples do
_TOP = ("LICENSE", "LICENSE.txt", "LICENSE.md")  # of a project, where no root is told
_PACKAGE = ("pyproject.toml", "setup.py")  # of a project too, or of one of its parts, as in FlashAttention's `hopper`
_HEADERS = (".h", ".cuh", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".cu", ".ipp", ".tpp")
_MOST_FILES = 50_000  # of a project, that are looked at
_SUBMODULES = ".gitmodules"
_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
# Headers of the toolkit, PyTorch and the system, which are no part of a project; those of C++ have no suffix.
_OF_OTHERS = re.compile(r"(?:cuda|cub|thrust|torch|ATen|c10|sys|bits)/.*|[^.]*")


def include_folders(files: Sequence[SourceFile], named: Sequence[Path], *, anywhere: bool = False) -> tuple[Path, ...]:
    """Return the include folders of the user's settings, then those guessed for the headers of `files`.

    A header that the including file, its folder and the named folders lack is looked for in up to six folders above
    the file, in their subfolders, their `include` folders and git's submodules. The folder nearest to the file
    counts. Where two are equally near and their texts differ, neither does.

    Args:
        files: source files, whose headers are followed.
        named: the include folders that the user has named.
        anywhere: whether a header that is in none of these is looked for in all folders of the project, for the facts
            of a file without a workload; the one that shares most of its path with the file counts.
    """
    folders = list(dict.fromkeys(named))
    for file in files:
        nearby = _Nearby(file, anywhere=anywhere)
        pending, seen = [(file.path.resolve().parent, file.text)], set[Path]()
        while pending:
            folder, text = pending.pop()
            for name, quoted in includes_of(text):
                path = resolve(name, file, folders, folder if quoted else None)
                if path is None and is_of_system(name, quoted=quoted):
                    continue
                if path is None and (guess := nearby.find(name)) is not None:
                    folders.append(guess)
                    path = (guess / name).resolve()
                if path is not None and path not in seen:
                    seen.add(path)
                    pending.append((path.parent, path.read_text(encoding="utf-8", errors="replace")))
    return tuple(folders)


def guessed_folders(file: SourceFile, named: Sequence[Path], *, anywhere: bool = False) -> tuple[Path, ...]:
    """Return the include folders that nobody has named and that headers of `file` were found in; see
    `include_folders`.
    """
    return tuple(folder for folder in include_folders((file,), named, anywhere=anywhere) if folder not in named)


def empty_submodules(file: Path) -> tuple[str, ...]:
    """Return the folders of a file's project, from its root, that git has submodules for and that are empty."""
    root = next((folder for folder in file.resolve().parents if (folder / _SUBMODULES).is_file()), None)
    return () if root is None else tuple(name for name in _submodules(root) if not any(root.joinpath(name).glob("*")))


def _submodules(root: Path) -> list[str]:
    """Return the folders of submodules below a folder, if it is the root of a project that has some."""
    named = root / _SUBMODULES
    return _PATH.findall(named.read_text(encoding="utf-8", errors="replace")) if named.is_file() else []


class _Nearby:
    """The folders around a file in which a header of its project may lie, listed once."""

    def __init__(self, file: SourceFile, *, anywhere: bool) -> None:
        self._file, self._anywhere = file, anywhere
        self._all: dict[str, list[str]] | None = None
        self._groups: list[list[str]] | None = None
        self._answers: dict[str, Path | None] = {}

    def find(self, name: str) -> Path | None:
        """Return the folder nearest to the file in which a header lies; None if there is none, or two that differ."""
        if name not in self._answers:
            self._answers[name] = self._nearest(name)
        return self._answers[name]

    def _nearest(self, name: str) -> Path | None:
        if _OF_OTHERS.fullmatch(name) or ".." in Path(name).parts or Path(name).is_absolute():
            return None
        if self._groups is None:
            self._groups = [*_groups(self._file.path)]
        for group in self._groups:
            # Names are tried in thousands, for which objects of `Path` would take most of the time.
            found = [folder for folder in group if os.path.isfile(f"{folder}/{name}")]  # noqa: PTH113
            if len({Path(folder, name).read_bytes() for folder in found}) == 1:
                return Path(found[0])
            if found:
                return None
        return self._farther(name) if self._anywhere else None

    def _farther(self, name: str) -> Path | None:
        """Return the folder in the file's project in which a header lies, the one nearest by its path; None if there is
        none, or two that are equally near and differ.
        """
        if self._all is None:
            self._all = _headers_below(root) if (root := _root(self._file.path)) is not None else {}
        file = self._file.path.resolve()
        named = [Path(place) for place in self._all.get(Path(name).name, ()) if place.endswith(f"/{name}")]
        found = [place for place in named if place.is_file()]  # which a link into an empty submodule is not
        shared = [len(os.path.commonpath([file, place])) for place in found]
        best = [place for place, length in zip(found, shared, strict=True) if length == max(shared)]
        if len({place.read_bytes() for place in best}) != 1:
            return None
        return Path(str(best[0]).removesuffix(f"/{name}"))


def _root(file: Path) -> Path | None:
    """Return the root of a file's project, if something tells it."""
    top = folders_around(file)[-1:]
    return next((one for one in top if any((one / name).exists() for name in (*_ROOT, *_TOP, *_PACKAGE))), None)


def _headers_below(root: Path) -> dict[str, list[str]]:
    """Return the paths of the headers below a folder by their names, without those in hidden folders."""
    found: dict[str, list[str]] = {}
    looked_at = 0
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in names:
            if name.endswith(_HEADERS):
                found.setdefault(name, []).append(f"{folder}/{name}")
        looked_at += len(names)
        if looked_at > _MOST_FILES:
            break
    return found


def _groups(file: Path) -> Iterator[list[str]]:
    """Yield the folders that are equally near to a file, nearest first."""
    for folder in folders_around(file):
        for place in _PLACES:
            yield [str(one) for one in sorted(folder.glob(place)) if one.is_dir()] if place else [str(folder)]
        yield [str(folder / name / inner) for name in _submodules(folder) for inner in ("", "include")]


def folders_around(file: Path) -> list[Path]:
    """Return the folder of a file and those above it, up to the root of its project, none that many projects share."""
    folder = file.resolve().parent
    shared = {Path("/"), Path.home(), Path(tempfile.gettempdir()).resolve()}
    shared |= {above for one in tuple(shared) for above in one.parents}
    own = [*itertools.takewhile(lambda above: above not in shared, (folder, *folder.parents)[:_LEVELS])]
    for marks in (_ROOT, _TOP, _PACKAGE):
        top = next((at for at, above in enumerate(own) if any((above / name).exists() for name in marks)), None)
        if top is not None:
            return own[: top + 1]
    return own
