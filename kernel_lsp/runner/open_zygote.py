"""The parent's side of a zygote: has it fork workers, and ends it."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence

import msgspec

from kernel_lsp.errors import RunnerError
from kernel_lsp.runner import protocol
from kernel_lsp.runner.fork_server_client import ForkedZygote
from kernel_lsp.runner.zygote import SPOILED, ForkRequest

_FORK_SECONDS = 60.0  # packages that it imports first may take twenty on a slow disk
_LONGEST_ANSWER = 1024


class ZygoteGoneError(RunnerError):
    """A zygote ended without being told to, as where the system ran out of memory, or where an import spoiled it.

    Attributes:
        unwanted: modules that it was to import, which another zygote had better not.
    """

    def __init__(self, unwanted: Sequence[str] = ()) -> None:
        super().__init__("the process that starts workers is gone", fix="Start again.")
        self.unwanted = tuple(unwanted)


class OpenZygote:
    """A running zygote, as the process that started it sees it: a process that forks workers when it is asked to.

    Args:
        process: the zygote.
        control: our end of the socket that it is asked over.
    """

    def __init__(self, process: asyncio.subprocess.Process | ForkedZygote, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._turn = asyncio.Lock()
        self._told: set[str] = set()

    async def fork(self, request: ForkRequest, connection: socket.socket) -> int:
        """Return the process id of a new worker, which holds `connection`.

        Raises:
            ZygoteGoneError: the zygote does not answer any more.
        """
        # Read the answer even if the caller is cancelled: left unread, the next request would get it.
        async with self._turn:
            new = tuple(name for name in request.libraries if name not in self._told)  # it tries each but once
            request = msgspec.structs.replace(request, libraries=new)
            self._told.update(new)
            asking = asyncio.ensure_future(self._ask(request, connection))
            try:
                return await asyncio.shield(asking)
            except asyncio.CancelledError:
                with contextlib.suppress(RunnerError):
                    pid = await asking
                    os.kill(pid, signal.SIGKILL)
                raise

    async def _ask(self, request: ForkRequest, connection: socket.socket) -> int:
        try:
            await asyncio.to_thread(
                socket.send_fds, self._control, [msgspec.json.encode(request)], [connection.fileno()]
            )
            async with asyncio.timeout(_FORK_SECONDS):
                answer = await asyncio.get_running_loop().sock_recv(self._control, _LONGEST_ANSWER)
        except (OSError, TimeoutError) as error:
            raise ZygoteGoneError(request.libraries) from error
        if not answer:
            raise ZygoteGoneError(request.libraries)
        if answer.startswith(SPOILED.encode()):
            spoiler = answer.decode().removeprefix(SPOILED).strip()
            raise ZygoteGoneError(request.libraries[request.libraries.index(spoiler) :])
        return int(answer)

    async def close(self) -> list[str]:
        """End it and its workers; return the lines that it wrote to its standard error."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if isinstance(self.process, ForkedZygote):
            await self.process.wait()
            return []
        _, said = await self.process.communicate()
        return said.decode(errors="replace").strip().splitlines()


async def fork_worker(
    zygote: OpenZygote, request: ForkRequest, parameters: Mapping[str, object]
) -> tuple[int, socket.socket]:
    """Return a fresh process and our end of the socket to it; its folder is removed where there is none."""
    ours, theirs = socket.socketpair()
    try:
        pid = await zygote.fork(request, theirs)
        await asyncio.to_thread(ours.sendall, protocol.frame(parameters))
    except BaseException:
        ours.close()
        shutil.rmtree(request.scratch, ignore_errors=True)
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return pid, ours
