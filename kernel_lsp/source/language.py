"""The protocol of languages: each room declares its questions to a language, and the language's folder answers them.

`kernel_lsp/languages/LANGUAGE/ROOM.py` implements ROOM's protocol as `PART`. It is imported at first use, so it may use
all that ROOM may use, and a process imports no more than it needs. This module has the part that needs only text;
`docs/languages.md` lists them all.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kernel_lsp.source.comments import Comment
from kernel_lsp.source.kernel import Kernel, Language


class SourcePart(Protocol):
    """The questions about a language that the text of a file can answer.

    Attributes:
        title: name of the language, for people.
        suffixes: of its files, each with its dot.
        editor_ids: ids that editors have for the language of such files.
        python: True where the file is Python, which is imported; False where the file is compiled as it stands.
        fence: name of the language in a prompt's code blocks.
        highlighted_as: name of the language in code blocks for an editor.
        comment: what begins a comment that runs to the end of its line.
        signs: words of which each file with kernels of this language has at least one.
        packages: top-level modules that such a file imports the language from; empty where it imports none.
        launches_itself: True where host code of the file launches its kernels and a problem defines the right results;
            False where a workload's `launch` launches them.
        computed: True where kernels may stand in text that the file computes, so that finding none is no error.
    """

    title: str
    suffixes: tuple[str, ...]
    editor_ids: tuple[str, ...]
    python: bool
    fence: str
    highlighted_as: str
    comment: str
    signs: tuple[str, ...]
    packages: tuple[str, ...]
    launches_itself: bool
    computed: bool

    def recognises(self, text: str, path: Path) -> bool:
        """Return True if a text with one of the suffixes is a kernel file of this language; it need not be complete."""
        ...

    def find_kernels(self, text: str, path: Path) -> tuple[Kernel, ...]:
        """Return the kernels of a text, in order; `path` is put into the records."""
        ...

    def line_comments(self, text: str) -> tuple[Comment, ...]:
        """Return the comments that run to the end of a line, in order; the text need not be complete."""
        ...

    def head(self, kernel: Kernel) -> str:
        """Return a kernel's head as its author would write it, without attributes."""
        ...


def part_of(language: Language, room: str) -> Any:
    """Return a language's implementation of the protocol of `room`, which knows its type."""
    return import_module(f"kernel_lsp.languages.{language}.{room}").PART


@cache
def source_part(language: Language) -> SourcePart:
    """Return a language's `SourcePart`."""
    return part_of(language, "source")


@cache
def language_packages() -> tuple[str, ...]:
    """Return the top-level modules that files import their languages from, in order of the alphabet."""
    return tuple(sorted({name for language in Language for name in source_part(language).packages}))


@cache
def suffixes() -> tuple[str, ...]:
    """Return the suffixes of all kernel files."""
    return tuple(dict.fromkeys(suffix for language in Language for suffix in source_part(language).suffixes))


@cache
def compiled_suffixes() -> tuple[str, ...]:
    """Return the suffixes of kernel files that are compiled as they stand, and may include headers and each other."""
    parts = [part for part in map(source_part, Language) if not part.python]
    return tuple(dict.fromkeys(suffix for part in parts for suffix in part.suffixes))


@cache
def suffix_for_editor(language_id: str) -> str | None:
    """Return the first suffix of the files that editors call by a language id; None if they hold no kernels."""
    parts = [part for part in map(source_part, Language) if language_id in part.editor_ids]
    return parts[0].suffixes[0] if parts else None


@cache
def signs(suffix: str) -> tuple[str, ...]:
    """Return words of which each kernel file with this suffix has at least one."""
    parts = [part for part in map(source_part, Language) if suffix in part.suffixes]
    return tuple(dict.fromkeys(sign for part in parts for sign in part.signs))
