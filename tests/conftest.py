"""What holds for all tests."""

import os
import shutil
import signal
import tempfile

import pytest

_runtime = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start hear an interrupt, and share nothing that runs with those of the user.

    A shell that runs tests in the background has interrupts ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # processes of xdist share the folder of the one that starts them
        config.stash[_runtime] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was left running for the next session: servers end without their sockets."""
    if _runtime in config.stash:
        shutil.rmtree(config.stash[_runtime], ignore_errors=True)
