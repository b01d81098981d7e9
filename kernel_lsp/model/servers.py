"""Which model servers run on this machine: a folder for each, with what one needs to talk to it and to its GPUs.

The folder lies in the user's runtime folder, which belongs to this user and this machine alone. The process that keeps
a server holds a lock there as long as it lives, so that a record which outlived its server is never believed.
"""

import fcntl
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_lsp.config.runtime_folder import private_folder, runtime_folder

_FOLDER = "models"


class Server(BaseModel):
    """One running server.

    Attributes:
        name: of its folder; also of the model that it serves.
        profile: of the model, by its id or its file.
        models: names that it serves: the model's own first, then its adapters'.
        uds: the socket that it listens on.
        url: where it listens, if not on a socket.
        key: made for this run.
        pid: its first process, leader of a session; None for one that somebody else started.
        keeper: process that watches over it.
        gpus: UUIDs of the GPUs it may use.
        pauses: whether it can be paused (it runs in vLLM's development mode).
        sleeps: whether it can give its memory away for a while.
        choice: how it is served and why, one line.
        context: tokens of prompt and answer together.
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
    folder: Path


def servers_folder() -> Path:
    """The folder of all servers, made if need be.

    Raises:
        ConfigurationError: see `private_folder`.
    """
    return private_folder(_FOLDER)


def running() -> tuple[Server, ...]:
    """The servers that run on this machine and are ready to answer, by name."""
    root = runtime_folder(_FOLDER)
    if not root.is_dir():
        return ()
    found = (read_server(folder) for folder in sorted(servers_folder().iterdir()))
    return tuple(server for server in found if server is not None)


def read_server(folder: Path) -> Server | None:
    """The server of a folder; None if it is not running or not yet ready."""
    if not is_kept(folder):
        return None
    try:
        return Server.model_validate_json((folder / "server.json").read_text())
    except (OSError, ValidationError):
        return None


def write_server(server: Server) -> None:
    """Let others find a server that is ready."""
    draft = server.folder / f"server.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(server.model_dump_json(indent=2))
    draft.replace(server.folder / "server.json")


def is_kept(folder: Path) -> bool:
    """Whether a live process watches over the server of a folder."""
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
