"""Folders for what is made once for all tests of a session, in whichever of its processes they run."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def shared_folder(name: str) -> Iterator[Path]:
    """The folder of this name; no other process uses it during the block, so that none finds it half filled."""
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
