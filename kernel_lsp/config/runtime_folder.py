"""Folders for state of running processes on this machine: sockets, and records of servers."""

import os
import stat
import warnings
from pathlib import Path

import platformdirs

from kernel_lsp.config.settings import APP
from kernel_lsp.errors import ConfigurationError


def runtime_folder(name: str) -> Path:
    """Return the folder of this name, which may not exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a login without a runtime folder; /tmp serves as well
        return platformdirs.user_runtime_path(APP) / name


def private_folder(name: str) -> Path:
    """Return the folder of this name, created if necessary, owned by the user with mode 0700.

    Raises:
        ConfigurationError: it cannot be made, or belongs to somebody else.
    """
    folder = runtime_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError as error:
        fix = "Set XDG_RUNTIME_DIR to a folder of yours."
        raise ConfigurationError(f"Nothing that runs can be kept here: {error.strerror}.", folder, fix=fix) from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        fix = "Set XDG_RUNTIME_DIR to a folder of yours, with mode 0700."
        raise ConfigurationError("Others may look into this folder.", folder, fix=fix)
    return folder
