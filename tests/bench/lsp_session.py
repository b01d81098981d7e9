"""One session of an editor with the language server, timed: `python -m tests.bench.lsp_session`.

Opens an example in a folder of its own, puts the cursor in a kernel, reads it for a while, refines it, asks for the
difference of the first variant that is confirmed, applies the best one when the search ends, checks the file as it then
stands, undoes that, and profiles the kernel on its lines. Prints every message of the session with the second
at which it passed, and with --record writes them to `results/lsp_session.json`. Options: --example PATH (default
cuda/rmsnorm.cu), --reading SECONDS (default 10), --budget SECONDS (default 60), --record. Needs a GPU, and no more
than the package itself installs.
"""

import argparse
import asyncio
import contextlib
import difflib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.record import record

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
_QUIET = {"window/logMessage", "client/registerCapability", "workspace/codeLens/refresh", "workspace/inlayHint/refresh"}
_LONG = 160  # characters of a message that the transcript shows


class Client:
    """The other end of the pipe: JSON-RPC, a transcript, and answers as an editor would give them."""

    def __init__(self, process: asyncio.subprocess.Process, text: str, uri: str) -> None:
        self._process, self.uri, self.text, self.version = process, uri, text, 1
        self._started = time.perf_counter()
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.transcript: list[dict[str, Any]] = []
        self.job: dict[str, Any] = {}
        self.first_variant: float | None = None  # second at which a search had one that was confirmed
        self.found, self.changed = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def now(self) -> float:
        return round(time.perf_counter() - self._started, 3)

    def note(self, who: str, what: str, said: object = "") -> None:
        shown = said if isinstance(said, str) else json.dumps(said)
        shown = shown if len(shown) <= _LONG else shown[: _LONG - 3] + "..."
        self.transcript.append({"second": self.now, "from": who, "message": what, "says": shown})
        print(f"{self.now:8.3f}  {who:6}  {what:34}  {shown}", flush=True)

    async def ask(self, method: str, params: object, said: object = "") -> Any:
        self._numbers += 1
        number, future = self._numbers, asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.note("client", method, said)
        self._send({"id": number, "method": method, "params": params})
        return await future

    def tell(self, method: str, params: object, said: object = "") -> None:
        self.note("client", method, said)
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        stream = self._process.stdout
        with contextlib.suppress(asyncio.IncompleteReadError):  # the server has ended
            while header := await stream.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ") for line in header.split(b"\r\n") if line)
                self._take(json.loads(await stream.readexactly(int(fields[b"content-length"]))))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"])
            if "error" in message:
                future.set_exception(RuntimeError(message["error"]["message"]))
            else:
                future.set_result(message["result"])
            return
        method: str = message["method"]
        params: Any = message.get("params")
        if "id" in message:
            answer: object = [None for _ in params["items"]] if method == "workspace/configuration" else None
            if method == "workspace/applyEdit":
                answer = {"applied": True}
                self.apply(params["edit"])
            self._send({"id": message["id"], "result": answer})
        if method == "kernelLsp/jobProgress":
            if params["text"] != self.job.get("text") or params["state"] != self.job.get("state"):
                self.note("server", method, f"{params['state']}: {params['text']}")
            best = (params["progress"] or {}).get("best")
            if self.first_variant is None and best is not None and best["confirmed"]:
                self.first_variant = self.now
                self.found.set()
            self.job = params
            self.changed.set()
        elif method not in _QUIET and method != "$/progress":
            self.note("server", method, params.get("message", params) if isinstance(params, dict) else "")

    def apply(self, edit: dict[str, Any]) -> None:
        """Make the edits of the open file; those of others go to disk, as an editor does with files not open."""
        for change in edit["documentChanges"]:
            uri = change["textDocument"]["uri"]
            path = Path(uri.removeprefix("file://"))
            text = self.text if uri == self.uri else path.read_text()
            lines = text.split("\n")
            spans = [
                (_offset(lines, one["range"]["start"]), _offset(lines, one["range"]["end"]), one["newText"])
                for one in change["edits"]
            ]
            for start, end, new in sorted(spans, reverse=True):
                text = text[:start] + new + text[end:]
            path.write_text(text)
            if uri == self.uri:
                self.change(text)

    def change(self, text: str) -> None:
        """Replace the open file's text."""
        self.text, self.version = text, self.version + 1
        changed = {"textDocument": {"uri": self.uri, "version": self.version}, "contentChanges": [{"text": text}]}
        self.tell("textDocument/didChange", changed, f"version {self.version}")

    async def until_ended(self) -> dict[str, Any]:
        """Wait until the job ends, and return its last state."""
        while self.job.get("state") not in ("done", "failed", "cancelled"):
            self.changed.clear()
            await self.changed.wait()
        return self.job


def _offset(lines: list[str], position: dict[str, int]) -> int:
    return sum(len(line) + 1 for line in lines[: position["line"]]) + position["character"]


def _capabilities() -> dict[str, Any]:
    action = {"dataSupport": True, "disabledSupport": True, "resolveSupport": {"properties": ["edit"]}}
    return {
        "general": {"positionEncodings": ["utf-32"]},
        "window": {"workDoneProgress": True},
        "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
        "textDocument": {"codeAction": action},
        "experimental": {"kernelLsp": {"jobProgress": True}},
    }


async def session(example: Path, reading: float, budget: float, folder: Path) -> dict[str, Any]:
    """The figures of one session and its transcript."""
    kernel = Path(shutil.copy(example, folder))
    workload = example.with_name(f"{example.stem}_workload.py")
    if workload.is_file():
        shutil.copy(workload, folder)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    environment |= {f"XDG_{kind}_HOME": str(folder / f".{kind.lower()}") for kind in ("CONFIG", "DATA", "CACHE")}
    environment["XDG_RUNTIME_DIR"] = str(folder)  # no model server that somebody else has started
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", "serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        limit=64 << 20,
    )
    client = Client(process, kernel.read_text(), kernel.as_uri())
    where = {"textDocument": {"uri": client.uri}}
    options = {"trusted": True, "refine": {"budget": budget}}
    folders = [{"uri": folder.as_uri(), "name": folder.name}]
    given = {"processId": os.getpid(), "capabilities": _capabilities(), "initializationOptions": options}
    await client.ask("initialize", given | {"rootUri": folder.as_uri(), "workspaceFolders": folders})
    figures: dict[str, Any] = {"start_to_initialized_s": round(time.perf_counter() - begun, 3)}
    client.tell("initialized", {})
    language = "python" if kernel.suffix == ".py" else "cuda"
    item = {"uri": client.uri, "languageId": language, "version": 1, "text": client.text}
    client.tell("textDocument/didOpen", {"textDocument": item}, kernel.name)
    line = next(n for n, text in enumerate(client.text.splitlines()) if "__global__" in text or "@triton.jit" in text)
    place = {"line": line + (language == "python"), "character": 0}
    at = where | {"range": {"start": place, "end": place}, "context": {"diagnostics": [], "only": ["refactor"]}}

    async def actions() -> dict[str, Any]:
        return {action["title"]: action for action in await client.ask("textDocument/codeAction", at)}

    offered = await actions()
    client.note("server", "(code actions)", list(offered))
    refine = next(action for title, action in offered.items() if title.startswith("Refine"))
    if "disabled" in refine:
        raise SystemExit(f"nothing can be refined here: {refine['disabled']['reason']}")
    await asyncio.sleep(reading)
    figures["refine_clicked_s"] = clicked = client.now
    await client.ask("workspace/executeCommand", refine["command"], refine["title"])
    searched = asyncio.create_task(client.until_ended())
    await asyncio.wait((searched, asyncio.create_task(client.found.wait())), return_when=asyncio.FIRST_COMPLETED)
    if (shown := await _difference(client)) is not None:
        figures |= {"first_difference_after_s": round(client.now - clicked, 1), "first_difference": shown}
    ended = await searched
    if client.first_variant is not None:
        figures["first_variant_after_s"] = round(client.first_variant - clicked, 1)
    figures |= {"refine_ended_s": client.now, "outcome": ended["reason"], "verdict": ended["verdict"]}
    offered = await actions()
    client.note("server", "(code actions)", list(offered))
    apply = next((action for title, action in offered.items() if title.startswith("Apply")), None)
    if apply is not None:
        asked = time.perf_counter()
        resolved = await client.ask("codeAction/resolve", apply, apply["title"])
        figures["resolve_ms"] = round(1000 * (time.perf_counter() - asked), 1)
        before = client.text
        client.apply(resolved["edit"])
        figures["applied_s"] = client.now
        changed = difflib.ndiff(before.splitlines(), client.text.splitlines())
        figures["lines_changed"] = sum(line.startswith(("+ ", "- ")) for line in changed)
        figures["checked"] = (await _job(client, "check"))["reason"]
        client.change(before)
        undone = time.perf_counter()
        while not any(title.startswith("Apply") for title in await actions()):
            await asyncio.sleep(0.05)
        figures["offered_again_after_undo_ms"] = round(1000 * (time.perf_counter() - undone), 1)
    asked = time.perf_counter()
    figures["profile"] = (await _job(client, "profile"))["reason"]
    figures["profile_s"] = round(time.perf_counter() - asked, 1)
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": client.text.count("\n"), "character": 0}}
    hints = await client.ask("textDocument/inlayHint", where | {"range": whole})
    figures["profiled_lines"] = [f"{hint['position']['line'] + 1}: {hint['label']}" for hint in hints or []]
    await client.ask("shutdown", None)
    client.tell("exit", None)
    async with asyncio.timeout(10):
        figures["exit_code"] = await process.wait()
    figures["example"] = str(example.relative_to(EXAMPLES))
    return figures | {"transcript": client.transcript}


async def _difference(client: Client) -> str | None:
    """The difference of the best variant so far, asked for as an editor does that shows it; None without one."""
    where = {"textDocument": {"uri": client.uri}}
    known = (await client.ask("kernelLsp/variants", where))["variants"]
    if not known:
        return None
    await client.ask("kernelLsp/variant", where | {"verdict": known[0]["verdict"]}, known[0]["title"])
    return str(known[0]["title"])


async def _job(client: Client, name: str) -> dict[str, Any]:
    """The last state of a job on the file, once it has ended."""
    client.job = {}
    wanted = {"command": f"kernel-lsp.{name}", "arguments": [client.uri]}
    await client.ask("workspace/executeCommand", wanted, name)
    return await client.until_ended()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", type=Path, default=Path("cuda/rmsnorm.cu"))
    parser.add_argument("--reading", type=float, default=10.0)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(session(EXAMPLES / given.example, given.reading, given.budget, Path(folder).resolve()))
    print(json.dumps({name: value for name, value in figures.items() if name != "transcript"}, indent=2))
    if given.record:
        print(record("lsp_session", figures))


if __name__ == "__main__":
    main()
