"""How soon the language server answers while it works: `python -m tests.bench.lsp_responsiveness [--record]`.

Two searches run (scripted, on the CPU) while 1,000 requests go to a file of 5,000 lines, one after the other: hovers,
lenses, actions and hints in turn. An edit before every tenth request makes the server parse anew. Also measured: from
the start of the process to the answer to `initialize`, best and median of ten, and the server's resident memory.
Options: --requests COUNT (default 1000), --jobs COUNT (default 2).
"""

import argparse
import asyncio
import itertools
import os
import random
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.record import record
from tests.lsp.job_session import ROOT, SOFTMAX
from tests.lsp.raw_client import Answers, message, raw_server

LINES = 5000
STARTS = 10
KINDS = ("hover", "codeLens", "codeAction", "inlayHint")


def long_file() -> str:
    """The examples' CUDA kernels over and over, each round in a namespace of its own."""
    parts: list[str] = []
    texts = [path.read_text() for path in sorted((ROOT / "examples/cuda").glob("*.cu"))]
    for number, text in enumerate(itertools.cycle(texts)):
        includes = "".join(re.findall(r"^#.*\n", text, re.MULTILINE))
        rest = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
        parts.append(f"{includes}namespace n{number} {{\n{rest}\n}}\n")
        if sum(part.count("\n") for part in parts) >= LINES:
            return "".join(parts)
    raise AssertionError("there are no examples")


def opened(path: Path, text: str, language: str) -> bytes:
    """The message that opens a text."""
    document = {"uri": path.as_uri(), "languageId": language, "version": 1, "text": text}
    return message(method="textDocument/didOpen", params={"textDocument": document})


async def begin(answers: Answers, folder: Path) -> None:
    """Initialize a session whose searches are scripted ones that do not end by themselves."""
    settings = {"refine": {"proposers": "scripted_proposers:endless", "untimed": True, "budget": 600}}
    params = {
        "processId": None,
        "rootUri": folder.as_uri(),
        "capabilities": {},
        "initializationOptions": {"trusted": True, **settings},
    }
    answers.send(message(id="initialize", method="initialize", params=params))
    await answers.to("initialize")
    answers.send(message(method="initialized", params={}))


async def start_seconds(folder: Path) -> float:
    """From the start of the process to its first answer."""
    began = time.perf_counter()
    async with raw_server(folder) as answers:
        await begin(answers, folder)
        return time.perf_counter() - began


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


async def measure(folder: Path, requests: int, jobs: int) -> dict[str, Any]:
    """Latencies in milliseconds by kind of request, with the jobs running all the while."""
    long, text = folder / "long.cu", long_file()
    lines = text.count("\n")
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    rng = random.Random(1)
    async with raw_server(folder) as answers:
        await begin(answers, folder)
        for number in range(jobs):
            path = Path(shutil.copy(SOFTMAX, folder / f"softmax{number}.py"))
            answers.send(opened(path, path.read_text(), "python"))
            command = {"command": "kernel-lsp.refine", "arguments": [path.as_uri(), "softmax_kernel"]}
            answers.send(message(id=f"job{number}", method="workspace/executeCommand", params=command))
            assert "result" in await answers.to(f"job{number}"), answers.by_id
        answers.send(opened(long, text, "cuda-cpp"))
        for number in range(requests):
            if number % 10 == 9:
                change = {"textDocument": {"uri": long.as_uri(), "version": number + 2}}
                text += "\n"
                answers.send(
                    message(method="textDocument/didChange", params=change | {"contentChanges": [{"text": text}]})
                )
            kind = KINDS[number % len(KINDS)]
            line = rng.randrange(lines)
            at = {"line": line, "character": rng.randrange(40)}
            extent = {"start": at, "end": {"line": line + 50, "character": 0}}
            params = {
                "textDocument": {"uri": long.as_uri()},
                "position": at,
                "range": extent,
                "context": {"diagnostics": []},
            }
            began = time.perf_counter()
            answers.send(message(id=number, method=f"textDocument/{kind}", params=params))
            assert "result" in await answers.to(number)
            taken[kind].append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.01)
        pid = answers.process.pid
        answers.send(message(id="list", method="kernelLsp/jobs"))
        listed = await answers.to("list")
        memory = memory_mib(pid)
    every = [ms for one in taken.values() for ms in one]
    return {
        "lines": lines,
        "requests": requests,
        "jobs": listed.get("result"),
        "memory_mib": round(memory, 1),
        "all": spread(every),
        **{kind: spread(found) for kind, found in taken.items()},
    }


def spread(found: list[float]) -> dict[str, float]:
    """Median, 99th percentile and largest, in milliseconds."""
    ranked = sorted(found)
    p99 = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return {"p50_ms": round(statistics.median(ranked), 2), "p99_ms": round(p99, 2), "max_ms": round(ranked[-1], 2)}


async def main() -> None:
    """Measure, print a table and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the searches are scripted, and are to be the same everywhere
    os.environ["PYTHONPATH"] = str(ROOT / "tests/fixtures")
    with tempfile.TemporaryDirectory() as folder:
        starts = [await start_seconds(Path(folder)) for _ in range(STARTS)]
        figures = await measure(Path(folder), given.requests, given.jobs)
    figures["start_ms"] = {"best": round(1000 * min(starts)), "median": round(1000 * statistics.median(starts))}
    for kind in ("all", *KINDS):
        print(f"{kind:<11}", *(f"{name} {value:8.2f}" for name, value in figures[kind].items()))
    print(
        f"start to InitializeResult {figures['start_ms']}, resident {figures['memory_mib']} MiB, jobs {figures['jobs']}"
    )
    if given.record:
        record("lsp_responsiveness", figures)


if __name__ == "__main__":
    asyncio.run(main())
