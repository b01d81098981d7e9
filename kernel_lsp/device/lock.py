"""One timer at a time: an advisory lock per GPU, shared by every process of this user on the machine.

It lies in the user's runtime folder, so that all processes find it whatever their settings.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from kernel_lsp.errors import CannotJudgeError

_POLL_SECONDS = 0.02


@asynccontextmanager
async def gpu_lock(uuid: str, folder: Path) -> AsyncGenerator[None]:
    """Hold the lock of the GPU with `uuid`, waiting for its present holder. A dead holder's lock is free at once.

    Raises:
        CannotJudgeError: the lock's file cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f"{uuid}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        fix = "Make room there, or set XDG_RUNTIME_DIR to another folder of yours."
        raise CannotJudgeError(f"The GPU cannot be locked: {error.strerror}.", folder, fix=fix) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
