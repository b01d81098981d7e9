"""Shared by commands: the consoles they print to, their settings, and the store."""

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import RefineSettings, Settings
from kernel_lsp.judge.target import Target
from kernel_lsp.store.store import Store, open_store
from kernel_lsp.workload.spec import find_workloads

_PADDING = re.compile(r"[ ]+$", re.MULTILINE)
_LOG_WIDTH = 400  # for output that is no terminal, such as a log: paths and findings are not wrapped there


class _PlainConsole(Console):
    """A console whose lines end where their text does, unless it is a terminal: a log needs no padding."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `Console.print` does."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_PADDING.sub("", captured.get()))
        self.file.flush()

    @property
    def is_watched(self) -> bool:
        """Return True if somebody may watch what is drawn over; FORCE_COLOR makes a log pass for a terminal."""
        return self.is_terminal and self.file.isatty()

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Return what shows the state of work where it is watched, and nothing elsewhere."""
        return super().status(status, **options) if self.is_watched else _NOWHERE.status(status, **options)


_NOWHERE = Console(file=io.StringIO(), force_terminal=False)


def _console(*, stderr: bool) -> _PlainConsole:
    console = _PlainConsole(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _LOG_WIDTH
    return console


out = _console(stderr=False)
"""Results."""

err = _console(stderr=True)
"""Progress and notices, so that results can be piped."""


def choices(name: str) -> tuple[str, ...]:
    """Return the values that a setting of `refine` can have."""
    kind = RefineSettings.model_fields[name].annotation
    found = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
    return tuple(value for one in found for value in get_args(one))


def settings_for(path: Path | None = None, **overrides: object) -> Settings:
    """Return the settings in force at a file; an override that is None is ignored.

    Args:
        path: where `pyproject.toml` is looked for from.
        overrides: dotted names with `__` for the dot (`refine__budget="90s"`).

    Raises:
        ConfigurationError: one of them is wrong.
    """
    said: Mapping[str, object] = {
        name.replace("__", "."): value for name, value in overrides.items() if value is not None
    }
    return load_settings(path, overrides=said)[0]


def say_other_workloads(target: Target, settings: Settings) -> None:
    """Tell the user about workloads of the file that are not used here."""
    every = find_workloads(target.source, problems=settings.kernelbench.root, folders=settings.workloads)
    used = target.workload.source.path.resolve()
    others = [str(one.source.path) for one in every if one.source.path.resolve() != used]
    if others:
        say_note(f"judged by {target.workload.source.path}; --workload names another: {', '.join(others)}")


def say_note(note: str) -> None:
    """Tell the user early about something that matters for the wait."""
    err.print(Text.assemble(("note ", "bold yellow"), note))


def opened_store(settings: Settings) -> Store:
    """Return the store; `say_notices` shows its notices when it is closed."""
    return open_store(settings.paths.data)


def say_notices(store: Store) -> None:
    """Show the store's notices to the user."""
    for notice in store.notices:
        err.print(Text.assemble(("note ", "bold yellow"), notice))
