"""Connects to a Ray cluster, or starts one of this machine: with a token, without a dashboard.

Ray gives whoever reaches its ports all rights of the user. Its own cluster listens on the loopback interface only, and
its token lives as long as the command. Ray is imported here and nowhere else, when a pool asks for it.
"""

import importlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Generator
from contextlib import chdir, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernel_lsp.config.runtime_folder import private_folder
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.pool.slurm import slurm_tasks

_REACH_SECONDS = 5.0
_LOOK_SECONDS = 0.5  # between looks for the first machine
_STORE_BYTES = 128 << 20  # lanes are sent texts and send records, none of them large
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # what it would print of lost lanes to standard output, where results go
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # seconds until a cluster that refuses this user's token is given up
}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's switch for systems whose firewall asks about servers: all of Ray's then listen on 127.0.0.1."""
_FIX = "See docs/pool.md on clusters and tokens."


@contextmanager
def connected(address: str) -> Generator[Any]:
    """Connect this process to a cluster; yields the module `ray`.

    Args:
        address: `ray://HOST:PORT` for the cluster whose head listens there; `ray` for the one that `RAY_ADDRESS` names,
            or else for one of this machine that ends with the block; `slurm:N` for one of so many tasks of SLURM's,
            once the first of them has joined it.

    Raises:
        ConfigurationError: Ray is not installed, nobody answers, the cluster does not accept this user's token, or Ray
            cannot start.
        CannotJudgeError: SLURM gives no tasks.
    """
    if address.startswith("slurm:"):
        os.environ.update({**_ENVIRONMENT, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        _imported()
        tasks = slurm_tasks(int(address.removeprefix("slurm:")))
        with tasks as (there, require_tasks), _joined(f"ray://{there}") as ray:
            while not any(node["Alive"] and {"GPU", "CPU"} & set(node["Resources"]) for node in ray.nodes()):
                require_tasks()
                time.sleep(_LOOK_SECONDS)
            yield ray
        return
    with _joined(address) as ray:
        yield ray


@contextmanager
def _joined(address: str) -> Generator[Any]:
    """Connect this process to a cluster that stands, or for `ray` perhaps to one of its own."""
    there = address.removeprefix("ray://") if address != "ray" else os.environ.get("RAY_ADDRESS", "")
    os.environ.update(_ENVIRONMENT if there else {**_ENVIRONMENT, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    if not there or _is_loopback(there):
        os.environ.update(_LOOPBACK)
    ray = _imported()
    with tempfile.TemporaryDirectory(prefix="", dir=private_folder("ray"), ignore_cleanup_errors=True) as folder:
        own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES, "_temp_dir": folder}
        try:
            # Ray's processes first look for modules in the folder where they were asked for, often one of the user's.
            with _understood(ray, there), chdir(folder), _quiet():
                ray.init(**({"address": there} if there else own), log_to_driver=False, logging_level="ERROR")
            yield ray
        finally:
            ray.shutdown()


def _is_loopback(address: str) -> bool:
    """Check that somebody listens at HOST:PORT, for Ray waits long, and return True if that is this machine alone.

    Raises:
        ConfigurationError: nobody does.
    """
    where = urlsplit(f"//{address}")
    try:
        with socket.create_connection((where.hostname or "", where.port or 0), _REACH_SECONDS) as connection:
            return ip_address(connection.getpeername()[0]).is_loopback
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"Nobody answers at {address}: {error}.", fix=_FIX) from error


@contextmanager
def _understood(ray: Any, there: str) -> Generator[None]:
    """Say what keeps Ray from starting or joining, with its fix."""
    try:
        yield
    except ray.exceptions.AuthenticationError as error:
        raise ConfigurationError(f"This user has no token for the pool at {there}.", fix=_FIX) from error
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        said = str(error).strip().partition("\n")[0]
        doing = f"The pool at {there} does not take this user's token, or is none" if there else "Ray does not start"
        raise ConfigurationError(f"{doing}: {said}", fix=_FIX) from error


@contextmanager
def _quiet() -> Generator[None]:
    """Keep to the end of the block what Ray's own threads write about a cluster that refuses them."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _imported() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        fix = "Install it with: pip install 'kernel-lsp[pool]'."
        raise ConfigurationError("A pool needs Ray, which is not installed here.", fix=fix) from error
