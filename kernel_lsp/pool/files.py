"""The files that a lane on another machine needs: they travel as text, and are written where they are missing."""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.source.files import read_source

MOST_BYTES = 64 << 20


class PackedFile(msgspec.Struct, frozen=True):
    """A file of the driver's machine: its path as requests name it, its whole path, its text."""

    name: str
    path: str
    text: str


def packed(files: Iterable[Path]) -> list[PackedFile]:
    """Return files, with the modules beside them that they import.

    Raises:
        SourceError: one cannot be read.
        ConfigurationError: they have more than `MOST_BYTES`.
    """
    found: dict[Path, PackedFile] = {}
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path not in found:
            text = read_source(path).text
            found[path] = PackedFile(str(path), str(path.absolute()), text)
            waiting += _modules_beside(path, text)
    if sum(len(file.text) for file in found.values()) > MOST_BYTES:
        largest = max(found, key=lambda path: len(found[path].text))
        fix = f"A lane is sent at most {MOST_BYTES >> 20} MiB; this file is the largest of {len(found)}."
        raise ConfigurationError("These files are too large to be sent to another machine.", largest, fix=fix)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class UnpackedFiles:
    """Where files lie on this machine.

    Attributes:
        folder: below which they were written, under their whole paths; None if they were here.
        places: their paths here, by the names that requests use.
    """

    folder: Path | None
    places: Mapping[str, str]

    def request(self, text: str) -> str:
        """Return a request in JSON with the paths of this machine."""
        for name, place in self.places.items():
            text = text.replace(json.dumps(name), json.dumps(place))
        return text

    def answer(self, text: str) -> str:
        """Return text of this machine, such as an answer in JSON, with the paths of the driver's."""
        for name, place in self.places.items():
            text = text.replace(json.dumps(place)[1:-1], json.dumps(name)[1:-1])
        return text.replace(str(self.folder), "") if self.folder else text


def unpacked(files: Sequence[PackedFile], folder: Path) -> UnpackedFiles:
    """Return the places of files on this machine.

    They are written to `folder` if one of them is missing here or has another text, as on a machine that shares no
    disk with the driver's.
    """
    if all(_has(Path(file.path), file.text) for file in files):
        return UnpackedFiles(None, {file.name: file.path for file in files})
    places = {file.name: folder / file.path.lstrip("/") for file in files}
    for file in files:
        places[file.name].parent.mkdir(parents=True, exist_ok=True)
        places[file.name].write_bytes(file.text.encode())
    return UnpackedFiles(folder, {name: str(place) for name, place in places.items()})


def _has(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _modules_beside(path: Path, text: str) -> list[Path]:
    try:
        tree = ast.parse(text) if path.suffix == ".py" else ast.Module([], [])
    except (SyntaxError, ValueError):  # it is reported when it is judged
        return []
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) if node.module]
    beside = (path.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names)
    return [module for module in beside if module.is_file()]
