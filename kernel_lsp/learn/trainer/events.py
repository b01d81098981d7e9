"""Reports of a process that trains to its parent."""

import os

from kernel_lsp.learn.training import EVENTS, TrainingEvent


def report(event: TrainingEvent) -> None:
    """Write an event; the parent may be gone."""
    os.write(int(os.environ[EVENTS]), f"{event.model_dump_json()}\n".encode())
