"""Finds the macros that a project's build files define on the compiler's command line, `-DWIDTH=4`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.compiler.headers.project import folders_around
from kernel_lsp.device.architectures import arch_number

_FILES = (
    "Makefile",
    "makefile",
    "GNUmakefile",
    "*.mk",
    "CMakeLists.txt",
    "*.cmake",
    "cmake/*.cmake",
    "setup.py",
    "*extension*.py",
    "*builder*.py",
)
_FLAG = re.compile(r"(?<![\w-])-D[ \t]*(?P<name>[A-Za-z_]\w*)(?P<value>=[\w.+-]+(?![\w.+-]*[$({]))?(?![\w=])")
_TARGET = re.compile(r"\b(?:compute|sm)_(\d+)")
_COMMENT = re.compile(r"^\s*#")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Definition:
    """A macro of a build file.

    Attributes:
        name: of the macro.
        flag: as a compiler takes it, `-DWIDTH=4`.
        path: the file.
        line: from 1.
    """

    name: str
    flag: str
    path: Path
    line: int


def definitions(file: Path, texts: Sequence[str], arch: str) -> tuple[Definition, ...]:
    """Return the macros that texts mention and that build files around a file define with plain values.

    Of several definitions of a name the first counts, those of the nearest folder before others. Lines for other
    architectures are left out, and names that texts define themselves.

    Args:
        file: the kernel file; folders are searched up to its project's root.
        texts: its text and its headers'.
        arch: `sm_90` and the like.
    """
    known = {name for text in texts for name in re.findall(r"\b[A-Za-z_]\w*", text)}
    known -= {name for text in texts for name in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE)}
    found: dict[str, Definition] = {}
    for path in build_scripts(file):
        for number, line in enumerate(_read(path).splitlines(), start=1):
            targets = _TARGET.findall(line)
            if _COMMENT.match(line) or (targets and str(arch_number(arch)) not in targets):
                continue
            for flag in _FLAG.finditer(line):
                if flag["name"] in known:
                    written = f"-D{flag['name']}{flag['value'] or ''}"
                    found.setdefault(flag["name"], Definition(flag["name"], written, path, number))
    return tuple(found.values())


def _read(path: Path) -> str:
    """Return the text of a file, nothing of one that may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def build_scripts(file: Path) -> Iterator[Path]:
    """Yield the build files in the folders around a file, the nearest first, without very long ones."""
    for folder in folders_around(file):
        for path in dict.fromkeys(path for pattern in _FILES for path in sorted(folder.glob(pattern))):
            if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield path
