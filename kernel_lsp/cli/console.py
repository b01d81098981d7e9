"""What commands share: where they print, their settings, and the store."""

import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.target import Target
from kernel_lsp.store.store import Store, open_store
from kernel_lsp.workload.spec import find_workloads

_LOG_WIDTH = 400  # of what is no terminal, such as a log: paths and findings stay whole there


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _LOG_WIDTH
    return console


out = _console(stderr=False)
"""Results."""

err = _console(stderr=True)
"""Progress and notices, so that results can be piped."""


def settings_for(path: Path | None = None, **overrides: object) -> Settings:
    """The settings in force at a file; an override that is None says nothing.

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
    """Name the file's workloads that a target is not held to."""
    every = find_workloads(target.source, problems=settings.kernelbench.root, folders=settings.workloads)
    used = target.workload.source.path.resolve()
    others = [str(one.source.path) for one in every if one.source.path.resolve() != used]
    if others:
        say_note(f"judged by {target.workload.source.path}; --workload names another: {', '.join(others)}")


def say_note(note: str) -> None:
    """Say what whoever waits should know early."""
    err.print(Text.assemble(("note ", "bold yellow"), note))


def opened_store(settings: Settings) -> Store:
    """The store; what it has to say is said when it is closed by `say_notices`."""
    return open_store(settings.paths.data)


def say_notices(store: Store) -> None:
    """Tell the user what happened to the store."""
    for notice in store.notices:
        err.print(Text.assemble(("note ", "bold yellow"), notice))
