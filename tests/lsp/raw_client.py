"""A client without a library: it sends any bytes, and knows only what the specification says.

It needs nothing but the package itself, for programs that measure where nothing else is installed.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOFTMAX = ROOT / "examples/triton/softmax.py"
SERVE = "from kernel_lsp.cli.main import main; main()"


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def message(**fields: Any) -> bytes:
    return frame(json.dumps({"jsonrpc": "2.0", **fields}).encode())


class Answers:
    """What the server has sent: answers by id, and how often it answered what has no id."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.by_id: dict[Any, list[dict[str, Any]]] = {}
        self.refused: list[dict[str, Any]] = []
        self.on_request: Callable[[dict[str, Any]], bytes | None] = lambda _: None
        self._arrived = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    def send(self, data: bytes) -> None:
        self.process.stdin.write(data)

    async def flush(self) -> None:
        await self.process.stdin.drain()

    async def to(self, number: Any, seconds: float = 30.0) -> dict[str, Any]:
        """The first answer to a request."""
        await self.until(lambda: number in self.by_id, seconds)
        return self.by_id[number][0]

    async def until(self, what: Callable[[], Any], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():
                if self._reading.done():
                    raise AssertionError(f"the server ended: {await self.process.stderr.read()}")
                self._arrived.clear()
                await self._arrived.wait()

    async def _read(self) -> None:
        stream = self.process.stdout
        while (header := await stream.readline()) and header.lower().startswith(b"content-length: "):
            while (await stream.readline()).strip():
                pass
            self._take(json.loads(await stream.readexactly(int(header[16:]))))
            self._arrived.set()
        self._arrived.set()

    def _take(self, found: dict[str, Any]) -> None:
        assert found["jsonrpc"] == "2.0"
        if "method" in found:
            if "id" in found and (answer := self.on_request(found)) is not None:
                self.send(answer)
        elif found["id"] is None:
            self.refused.append(found["error"])
        else:
            assert ("result" in found) is not ("error" in found)
            self.by_id.setdefault(found["id"], []).append(found)


@asynccontextmanager
async def raw_server(home: Path, serve: str = SERVE) -> AsyncGenerator[Answers]:
    """A server process whose settings and data lie in `home`; it is ended if the test has not ended it.

    `serve` is the program: that of the command line.
    """
    variables = {f"XDG_{kind.upper()}_HOME": str(home / kind) for kind in ("config", "data", "cache")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", serve, "serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | variables | {"PYTHONPATH": path},
        limit=1 << 26,
    )
    answers = Answers(process)
    try:
        yield answers
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
