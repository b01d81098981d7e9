"""How soon the language server answers while it works: `python -m tests.bench.lsp_responsiveness [--record]`.

Two jobs run, a search without end (scripted, on the CPU) and one check of an edited file after another, while 1,000
requests go to a file of 5,000 lines: hovers, lenses, actions and hints in turn, with an edit before every tenth, which
is parsed and compiled anew. Also measured: from the start of the process to the answer to `initialize`, which is given
before most is imported, and to the answer to a first request: the first time, when nothing is compiled to bytecode yet,
and then ten times; the server's resident memory; and what importing it takes. Needs no more than the package itself.
Options: --requests COUNT (default 1000), --starts COUNT (default 10), --record.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.record import record
from tests.lsp.raw_client import ROOT, SOFTMAX, Answers, message, raw_server

LINES = 5000
KINDS = ("hover", "codeLens", "codeAction", "inlayHint")
HINTS = ("register_hints", "sector_hints", "bank_hints")
LENSES = "textDocument/codeLens"
OVER = ("done", "failed", "cancelled")


def long_file() -> str:
    """The examples' CUDA kernels over and over, each in a namespace of its own; without those that define macros."""
    parts: list[str] = []
    texts = [path.read_text() for path in sorted((ROOT / "examples/cuda").glob("*.cu"))]
    texts = [text for text in texts if "#define" not in text]
    lines = 0
    for number, text in enumerate(itertools.cycle(texts)):
        includes = "".join(re.findall(r"^#include.*\n", text, re.MULTILINE))
        rest = re.sub(r"^#include.*\n", "", text, flags=re.MULTILINE).replace('extern "C" ', "")
        parts.append(f"{includes}namespace n{number} {{\n{rest}\n}}\n")
        lines += parts[-1].count("\n")
        if lines >= LINES:
            return "".join(parts)
    raise AssertionError("there are no examples")


class Session:
    """One client, whose folder is trusted and whose searches do not end by themselves."""

    def __init__(self, answers: Answers, folder: Path) -> None:
        self.answers, self.folder = answers, folder
        self._numbers = itertools.count(1)
        self._versions: dict[Path, int] = {}

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        number = next(self._numbers)
        self.answers.send(message(id=number, method=method, params=params))
        answer = await self.answers.to(number, 120)
        assert "result" in answer, answer
        return answer["result"]

    async def begin(self) -> None:
        """The handshake."""
        settings = {
            "refine": {"proposers": "scripted_proposers:endless", "untimed": True, "budget": 600},
            "editor": dict.fromkeys(HINTS, True),
        }
        options = {"trusted": True, **settings}
        root = self.folder.as_uri()
        await self.ask("initialize", processId=None, rootUri=root, capabilities={}, initializationOptions=options)
        self.answers.send(message(method="initialized", params={}))

    def write(self, path: Path, text: str, language: str) -> None:
        """Open a text, or change one that is open."""
        version = self._versions[path] = self._versions.get(path, 0) + 1
        if version == 1:
            document = {"uri": path.as_uri(), "languageId": language, "version": 1, "text": text}
            self.answers.send(message(method="textDocument/didOpen", params={"textDocument": document}))
            return
        name = {"uri": path.as_uri(), "version": version}
        change = {"textDocument": name, "contentChanges": [{"text": text}]}
        self.answers.send(message(method="textDocument/didChange", params=change))

    async def start(self, command: str, *arguments: str) -> str:
        """The id of the job that a command starts."""
        asked = {"command": f"kernel-lsp.{command}", "arguments": list(arguments)}
        return (await self.ask("workspace/executeCommand", **asked))["id"]

    async def jobs(self) -> dict[str, Any]:
        """The jobs that there are and were, by id."""
        return {job["id"]: job for job in (await self.ask("kernelLsp/jobs"))["jobs"]}

    async def until(self, title: str, path: Path) -> None:
        """Wait until one of a file's lenses says something."""
        name = {"uri": path.as_uri()}
        async with asyncio.timeout(120):
            while not any(title in one["command"]["title"] for one in await self.ask(LENSES, textDocument=name)):
                await asyncio.sleep(0.2)


async def start_ms(folder: Path) -> tuple[float, float]:
    """From the start of the process to the answer to `initialize`, and to the answer to a request right after it."""
    began = time.perf_counter()
    async with raw_server(folder) as answers:
        session = Session(answers, folder)
        await session.begin()
        initialized = time.perf_counter()
        await session.jobs()
        return 1000 * (initialized - began), 1000 * (time.perf_counter() - began)


def import_ms() -> dict[str, float]:
    """What the interpreter says that the server's slowest imports took, each with all that it imports itself."""
    program = "import kernel_lsp.cli.main, kernel_lsp.lsp.server"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], capture_output=True, text=True, check=True
    )
    rows = re.findall(r"^import time: +(\d+) \| +(\d+) \|( +)([\w.]+)$", done.stderr, re.MULTILINE)
    own = sorted(((int(self), name) for self, _, _, name in rows), reverse=True)
    return {"all": round(sum(us for us, _ in own) / 1000, 1)} | {name: round(us / 1000, 1) for us, name in own[:5]}


def memory_mib(pid: int, field: str) -> float:
    """`VmRSS`, what a process has resident, or `VmHWM`, the most that it had."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024, 1)


async def check_again_and_again(session: Session, path: Path) -> None:
    """One check after another, each of another text, so that each has its work to do."""
    for number in itertools.count():
        session.write(path, f"{SOFTMAX.read_text()}\n# {number}\n", "python")
        job = await session.start("check", path.as_uri())
        while (await session.jobs())[job]["state"] not in OVER:
            await asyncio.sleep(0.1)


async def measure(folder: Path, requests: int) -> dict[str, Any]:
    """Latencies in milliseconds by kind of request, with the jobs running all the while."""
    long, text = folder / "long.cu", long_file()
    lines = text.count("\n")
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    rng = random.Random(1)
    async with raw_server(folder) as answers:
        session = Session(answers, folder)
        await session.begin()
        refined, checked = (Path(shutil.copy(SOFTMAX, folder / f"softmax{number}.py")) for number in range(2))
        session.write(long, text, "cuda-cpp")
        await session.until("regs", long)
        session.write(refined, refined.read_text(), "python")
        search = await session.start("refine", refined.as_uri(), "softmax_kernel")
        checking = asyncio.create_task(check_again_and_again(session, checked))
        while not (await session.jobs())[search]["progress"]:
            await asyncio.sleep(0.1)
        began = time.perf_counter()
        for number in range(requests):
            if number % 10 == 9:
                text += "\n"
                session.write(long, text, "cuda-cpp")
            kind = KINDS[number % len(KINDS)]
            at = {"line": rng.randrange(lines), "character": rng.randrange(40)}
            extent = {"start": at, "end": {"line": at["line"] + 50, "character": 0}}
            asked = {"textDocument": {"uri": long.as_uri()}, "position": at, "range": extent}
            sent = time.perf_counter()
            await session.ask(f"textDocument/{kind}", **asked, context={"diagnostics": []})
            taken[kind].append(1000 * (time.perf_counter() - sent))
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began
        checking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await checking
        jobs = await session.jobs()
        assert jobs[search]["state"] == "running", jobs[search]
        figures = {
            "lines": lines,
            "requests": requests,
            "edits": requests // 10,
            "seconds": round(seconds, 1),
            "candidates_judged_meanwhile": jobs[search]["progress"]["proposed"],
            "checks_meanwhile": sum(job["work"] == "check" for job in jobs.values()),
            "resident_mib": memory_mib(answers.process.pid, "VmRSS"),
            "most_resident_mib": memory_mib(answers.process.pid, "VmHWM"),
        }
    every = [ms for one in taken.values() for ms in one]
    return figures | {"all": spread(every)} | {kind: spread(found) for kind, found in taken.items()}


def spread(found: list[float]) -> dict[str, float]:
    """Median, 99th percentile and largest, in milliseconds."""
    ranked = sorted(found)
    p99 = ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
    return {"p50_ms": round(statistics.median(ranked), 2), "p99_ms": round(p99, 2), "max_ms": round(ranked[-1], 2)}


async def main() -> None:
    """Measure, print a table and record it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the search is scripted, and is to be the same everywhere
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT / "tests/fixtures"), os.environ.get("PYTHONPATH")))
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        starts = [await start_ms(folder) for _ in range(given.starts + 1)]
        figures = await measure(folder, given.requests)
    for name, (first, *warm) in zip(("initialize_result", "first_request"), zip(*starts, strict=True), strict=True):
        spent = {"first": first, "median": statistics.median(warm), "best": min(warm), "worst": max(warm)}
        figures[f"start_to_{name}_ms"] = {which: round(ms) for which, ms in spent.items()}
    figures["imports_ms"] = import_ms()
    for kind in ("all", *KINDS):
        print(f"{kind:<11}", *(f"{name} {value:8.2f}" for name, value in figures[kind].items()))
    print(*(f"{name}: {value}" for name, value in figures.items() if name not in ("all", *KINDS)), sep="\n")
    if given.record:
        record("lsp_responsiveness", figures)


if __name__ == "__main__":
    asyncio.run(main())
