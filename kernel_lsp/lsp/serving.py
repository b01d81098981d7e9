"""One session of the language server, from its first message to its end, over pipes or a socket.

The server is imported only after the client has its answer to `initialize`; see `lsp.initialize`. Meanwhile the process
that compiles starts, which imports as much.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.errors import ConfigurationError, RunnerError
from kernel_lsp.lsp.framing import LARGEST_LINE, framed, read_message
from kernel_lsp.lsp.initialize import answer_initialize
from kernel_lsp.lsp.process import Service

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server


def serve_stdio(commanded: Mapping[str, object]) -> int:
    """Serve the client at standard input and output; return the exit code that the protocol requires.

    The settings in `commanded` override those of the client.
    """
    return asyncio.run(_over_stdio(commanded))


def serve_socket(port: int, say: Callable[[int], None], commanded: Mapping[str, object]) -> int:
    """Wait on 127.0.0.1 for one client of this user and serve it; `say` gets the port, chosen by the system if 0.

    Raises:
        ConfigurationError: the port cannot be had.
    """
    return asyncio.run(_over_socket(port, say, commanded))


async def _over_stdio(commanded: Mapping[str, object]) -> int:
    loop = asyncio.get_running_loop()
    if not all(map(_is_pipe, (0, 1))):
        fix = "An editor starts it and talks to it; for a server that waits for a client, use --socket PORT."
        raise ConfigurationError("Standard input and output must be pipes.", fix=fix)
    # Printed text must not break the protocol: the client's pipe moves away from descriptor 1.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(LARGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, flow = await loop.connect_write_pipe(lambda: asyncio.streams.FlowControlMixin(loop), out)
    return await _session(reader, asyncio.StreamWriter(transport, flow, None, loop), commanded)


async def _over_socket(port: int, say: Callable[[int], None], commanded: Mapping[str, object]) -> int:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"Port {port} cannot be used: {error}.", fix="Name another one, or 0.") from None
    with listener:
        listener.setblocking(False)
        say(listener.getsockname()[1])
        while True:
            connection, peer = await asyncio.get_running_loop().sock_accept(listener)
            if _owner(peer[1], listener.getsockname()[1]) == os.getuid():
                break
            connection.close()  # another user of the machine: a client can run code here
    reader, writer = await asyncio.open_connection(sock=connection, limit=LARGEST_LINE)
    return await _session(reader, writer, commanded)


async def _session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, commanded: Mapping[str, object]) -> int:
    """Serve one client until `exit`, the end of its messages, or a signal."""
    first = await read_message(reader)
    compiler, answered = Service(), None
    if isinstance(first, bytes) and (answered := answer_initialize(first)) is not None:
        writer.write(framed(answered[1]))
        await _prepare(compiler, first, commanded)
    server = _make_server(commanded, compiler)
    protocol = server.client.protocol
    protocol.set_writer(_Writer(writer))  # pyright: ignore[reportArgumentType]
    reading = asyncio.ensure_future(protocol.run(reader, first, answered[0] if answered else None))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, reading.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    finally:
        await server.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.drain()
        if not writer.transport.is_closing():  # a pipe cannot be aborted after the client has gone
            writer.transport.abort() if hasattr(writer.transport, "abort") else writer.close()
    return 0 if protocol.was_shut_down else 1


async def _prepare(compiler: Service, initialize: bytes, commanded: Mapping[str, object]) -> None:
    """Start what compiles, where the client or the user trusts the client's folder; elsewhere no process is started."""
    from kernel_lsp.lsp.start import trusted_start  # not before the client is answered

    if (start := trusted_start(initialize)) is not None:
        folder, settings = start
        asked = {"part": "prepare", "folder": folder and str(folder), "settings": {**settings, **commanded}}
        with contextlib.suppress(RunnerError):  # which is said when a text is to be compiled
            await compiler.begin("analyse", asked)


def _make_server(commanded: Mapping[str, object], compiler: Service) -> "Server":
    # The protocol's types are 56,000 permanent objects; searching all of them for garbage takes 40 ms. Making
    # them leaves 9 MiB of garbage, which `freeze` would keep: a collection of the young ones finds it.
    usual = gc.get_threshold()
    gc.set_threshold(2000, 1000, 1000)
    from kernel_lsp.lsp.server import Server

    gc.freeze()
    gc.set_threshold(*usual)
    return Server(commanded, compiler)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Writer:
    """The writer for pygls: it never waits, so that a slow client delays nobody but itself."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


def _owner(port: int, to: int) -> int | None:
    """Return the user id behind a local TCP connection from `port`."""
    ends = (f"0100007F:{port:04X}", f"0100007F:{to:04X}")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == ends:
            return int(fields[7])
    return None
