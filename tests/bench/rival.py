"""A process that keeps the GPU busy until its standard input closes: products of 4096 x 4096 matrices."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

_AHEAD = 8  # launches between two waits: what is queued is all that it can be behind


@asynccontextmanager
async def busy_gpu() -> AsyncGenerator[None]:
    """Within it another process computes on the first visible GPU all the time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.rival"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"busy\n", "the rival did not start"
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def main() -> None:
    """Compute until standard input closes."""
    import torch

    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = a @ b
    torch.cuda.synchronize()
    print("busy", flush=True)
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    while not closed.is_set():
        for _ in range(_AHEAD):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
