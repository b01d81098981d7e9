"""Finds the model servers on this machine: a folder for each, with the record needed to reach it and its GPUs.

The folder lies in the user's runtime folder, which is private to this user and machine. The process that keeps a server
holds a lock there as long as it lives, so a record that outlived its server is ignored.
"""

import fcntl
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_lsp.config.runtime_folder import private_folder, runtime_folder

_FOLDER = "models"


class ModelServer(BaseModel):
    """One running server.

    Attributes:
        name: name of its folder, and of the model that it serves.
        profile: profile of the model: its id or its file.
        models: names that it serves: the model's own first, then its adapters'.
        uds: socket that it listens on.
        url: address that it listens on, if not a socket.
        key: API key, made for this run.
        pid: its first process, leader of a session; None for one that somebody else started.
        keeper: process that watches over it.
        gpus: UUIDs of the GPUs it may use.
        pauses: True if it can be paused (it runs in vLLM's development mode).
        sleeps: True if it can sleep, which frees its GPU memory.
        choice: how it is served and why, one line.
        context: tokens of prompt and answer together.
        base: identity of the model (`kernel_lsp.model.adapters`); empty if it is not known.
        rank: highest rank of adapters that it loads while it runs; None if it loads none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    profile: str
    models: tuple[str, ...]
    uds: Path | None = None
    url: str | None = None
    key: str | None = Field(default=None, repr=False)
    pid: int | None = None
    keeper: int | None = None
    gpus: tuple[str, ...] = ()
    pauses: bool = False
    sleeps: bool = False
    choice: str = ""
    context: int | None = None
    base: str = ""
    rank: int | None = None
    folder: Path


def servers_folder() -> Path:
    """Return the folder of all servers, creating it if necessary.

    Raises:
        ConfigurationError: see `private_folder`.
    """
    return private_folder(_FOLDER)


def running() -> tuple[ModelServer, ...]:
    """Return the servers that run on this machine and are ready, by name."""
    root = runtime_folder(_FOLDER)
    if not root.is_dir():
        return ()
    found = (read_server(folder) for folder in sorted(servers_folder().iterdir()))
    return tuple(server for server in found if server is not None)


def read_server(folder: Path) -> ModelServer | None:
    """Return the server of a folder; None if it is not running or not yet ready."""
    if not is_kept(folder):
        return None
    try:
        return ModelServer.model_validate_json((folder / "server.json").read_text())
    except (OSError, ValidationError):
        return None


def write_server(server: ModelServer) -> None:
    """Write a ready server's record, so that others find it."""
    draft = server.folder / f"server.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(server.model_dump_json(indent=2))
    draft.replace(server.folder / "server.json")


def is_kept(folder: Path) -> bool:
    """Return True if a live process watches over the server of a folder."""
    try:
        descriptor = os.open(folder / "kept", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
