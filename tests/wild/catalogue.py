"""The public kernels of this folder, as records; README.md beside this file says how to add one."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "workloads"
_VERSION = re.compile(r"^VERSION = \d+$", re.MULTILINE)


@dataclass(frozen=True)
class PublicFile:
    """One file of a public repository, at a commit.

    Attributes:
        path: in its repository.
        place: where a run has it, below its project's folder.
        sha256: of the whole file, in hexadecimal.
        lines: first and last numbers of the lines that a run gets, counted from 1; all lines where there are none.
            Scripts that measure as soon as they are imported end before that.
    """

    path: str
    place: str
    sha256: str
    lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PublicFolder:
    """A folder of a public repository, with all that is below, which the files of a project include or import.

    Attributes:
        path: in its repository.
        place: where a run has it, below its project's folder.
        repository: owner and name, of another repository too.
        commit: 40 hexadecimal digits.
    """

    path: str
    place: str
    repository: str
    commit: str


@dataclass(frozen=True)
class Fault:
    """A change of a public file, in place of the first text that is like `old`: a mistake to plant, or a mend.

    Attributes:
        file: below the project's folder.
        old: a text of it.
        new: what stands there instead.
        code: the rule of the error that `check` must give; empty for a mend, after which all must be right.
        line: of `file`, where that error must be.
    """

    file: str
    old: str
    new: str
    code: str
    line: int


@dataclass(frozen=True)
class PublicKernel:
    """A workload of ours for a public file.

    Attributes:
        name: project and workload.
        places: the kernel file, below its project's folder; one for each version where they lie in files of their own.
        workload: our file.
        versions: which of the file's kernels, or ways to launch one, `launch` knows by the number in its line
            `VERSION = 1`; the first is the baseline of all. Empty where there is only one.
        bugs: line and text of planted bugs (`source.mutations`) that its workload must find, on the emulator too.
        faults: others that `check` must find on the emulator, each at its line.
        known: rule and line, as `KL060:378`, of errors that `check` gives of the file as it is.
    """

    name: str
    places: tuple[str, ...]
    workload: Path
    versions: tuple[int, ...]
    bugs: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    known: frozenset[str] = frozenset()

    def place(self, version: int) -> str:
        """The file of one version."""
        return self.places[self.versions.index(version)] if len(self.places) > 1 else self.places[0]

    def launch_text(self, version: int) -> str:
        """The workload's text with another version in its `launch`.

        Raises:
            ValueError: the workload has no line `VERSION = 1`.
        """
        text, count = _VERSION.subn(f"VERSION = {version}", self.workload.read_text())
        if count != 1:
            raise ValueError(f"{self.workload} has {count} lines of the form `VERSION = 1`; it needs one.")
        return text


@dataclass(frozen=True)
class Project:
    """A public repository: the files a run needs, and what is launched in them.

    Attributes:
        name: of its folder, here and in a run.
        repository: owner and name.
        commit: 40 hexadecimal digits.
        files: what is taken from it.
        folders: what is taken whole.
        own: files of ours beside its `project.toml` that a run needs, and where it has them.
        options: of the compiler.
        empty: files that a run needs and nobody reads, such as a package's `__init__.py`.
        kernels: what is judged.
    """

    name: str
    repository: str
    commit: str
    files: tuple[PublicFile, ...]
    folders: tuple[PublicFolder, ...]
    own: Mapping[str, str]
    options: tuple[str, ...]
    empty: tuple[str, ...]
    kernels: tuple[PublicKernel, ...]


def projects() -> tuple[Project, ...]:
    """All of them, by name."""
    return tuple(_project(manifest) for manifest in sorted(FOLDER.glob("*/project.toml")))


def kernels_in(folder: Path) -> Iterator[tuple[PublicKernel, list[Path]]]:
    """Give the kernels whose files `tests.wild.fetch` has put into a folder, each with the paths of its `places`."""
    for project in projects():
        for kernel in project.kernels:
            paths = [folder / project.name / place for place in kernel.places]
            if all(path.is_file() for path in paths):
                yield kernel, paths


def _project(manifest: Path) -> Project:
    content = tomllib.loads(manifest.read_text())
    folder = manifest.parent
    files = tuple(_file(path, entry) for path, entry in content.get("files", {}).items())
    source = content["repository"], content["commit"]
    folders = tuple(_folder(place, entry, *source) for place, entry in content.get("folders", {}).items())
    kernels = tuple(
        PublicKernel(
            f"{folder.name}/{name}",
            tuple(entry["files"]) if "files" in entry else (entry["file"],),
            folder / f"{name}_workload.py",
            tuple(entry.get("versions", ())),
            tuple(entry.get("bugs", ())),
            tuple(
                Fault(
                    one.get("file", entry.get("file")), one["old"], one["new"], one.get("code", ""), one.get("line", 0)
                )
                for one in entry.get("faults", ())
            ),
            frozenset(entry.get("known", ())),
        )
        for name, entry in content.get("kernels", {}).items()
    )
    return Project(
        folder.name,
        *source,
        files,
        folders,
        content.get("own", {}),
        tuple(content.get("options", ())),
        tuple(content.get("empty", ())),
        kernels,
    )


def _folder(place: str, entry: Mapping[str, Any], repository: str, commit: str) -> PublicFolder:
    named = entry.get("repository", repository), entry.get("commit", commit)
    return PublicFolder(entry.get("path", place), place, *named)


def _file(path: str, entry: Mapping[str, Any]) -> PublicFile:
    ranges = (part.split("-") for part in entry.get("lines", "").split(",") if part)
    lines = tuple((int(first), int(last)) for first, last in ranges)
    return PublicFile(path, entry.get("place", path), entry["sha256"], lines)
