"""The change that a variant makes to a file, as a unified diff that `patch` and `git apply` take."""

import difflib
from pathlib import Path

from rich.text import Text

_NO_NEWLINE = "\\ No newline at end of file\n"
_STYLES = {"+++": "bold", "---": "bold", "@@ ": "cyan", "+": "green", "-": "red"}


def unified_diff(path: Path, before: str | None, after: str) -> str:
    """The diff with three lines of context; empty where the texts are the same. None stands for no file."""
    old = "/dev/null" if before is None else f"a/{path}"
    lines = difflib.unified_diff(_lines(before or ""), _lines(after), old, f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def diff_view(diff: str) -> Text:
    """A unified diff in colour, for a terminal; print the text itself elsewhere, as rich makes spaces of tabs."""
    text = Text(no_wrap=True, overflow="ignore", end="")
    for line in diff.splitlines(keepends=True):
        text.append(line, next((style for start, style in _STYLES.items() if line.startswith(start)), ""))
    return text


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: only a line feed ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
