"""A client that sends anything: malformed, unordered, cancelled and oversized messages among random edits.

Each request must get exactly one answer, with the error that the specification names. After each sequence the server
must have the texts that the client has, character for character, and find every kernel in them at its exact place.
"""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_lsp.source.files import find_kernels
from tests.lsp.raw_client import frame, message, raw_server

SEQUENCE = 100
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOT_INITIALIZED, CANCELLED = -32002, -32800
REQUESTS = ("hover", "codeLens", "inlayHint", "codeAction", "diagnostic", "documentSymbol")
COMMANDS = ("trust", "untrust", "refine", "check", "compare", "cancel", "apply", "evidence", "no.such", "")
JUNK = (None, True, -1, 2**70, 0.5, "", "text", [], [1, [2]], {}, {"uri": 3}, {"jsonrpc": "2.0"}, {"id": {}})
BROKEN = (b"", b"{", b"nul", b"\xff\xfe", b'{"jsonrpc":"2.0","id":1,"method":"sh', b"[" * 3000, b'"\\ud800')
NO_REQUEST = (b"[]", b"3", b"null", b'"text"', b"{}", b'{"jsonrpc":"1.0"}', b'[{"jsonrpc":"2.0","method":"exit"}]')
PIECES = (
    "é",
    "🙂",
    "漢",
    "\u2028",
    "\f",
    "\x85",
    "\t",
    "\r\n",
    "\n",
    "\r",
    " ",
    "a",
    "/*",
    "*/",
    "//",
    '"',
    "{",
    "}",
    "\\",
)
# The server as it is, but for one request more: the texts that it has.
MIRRORED = """
from kernel_lsp.lsp import server
class Mirrored(server.Server):
    def __init__(self, *given):
        super().__init__(*given)
        self.client.feature("test/texts")(lambda _: {one.uri: one.text for one in self.documents})
server.Server = Mirrored
from kernel_lsp.cli.main import main
main()
"""


def initialize(encoding, folder):
    capabilities = {
        "general": {"positionEncodings": [encoding]},
        "workspace": {"configuration": True},
        "textDocument": {"documentSymbol": {"hierarchicalDocumentSymbolSupport": True}},
    }
    return {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities}


class Text:
    """A text as an editor holds it: lines split and columns counted by itself."""

    def __init__(self, uri, encoding, text):
        self.uri, self.encoding, self.text, self.version = uri, encoding, text, 1

    def position(self, at):
        lines = self.text[:at].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        widths = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
        name = self.encoding if self.encoding == "utf-8" else f"{self.encoding}-le"
        return {"line": len(lines) - 1, "character": len(lines[-1].encode(name)) // widths[self.encoding]}

    def cut(self, rng):
        """A place between two characters, and not within a line break."""
        at = rng.randint(0, len(self.text))
        return at - 1 if self.text[at - 1 : at + 1] == "\r\n" else at

    def expected(self):
        """Where each kernel's name stands, by the text that the client has."""
        data = self.text.encode()
        for kernel in find_kernels(self.text, Path("/x.cu")):
            start, end = (len(data[:at].decode()) for at in (kernel.name_span.start, kernel.name_span.end))
            yield kernel.name, {"start": self.position(start), "end": self.position(end)}


class Fuzzer:
    """One client with its texts. `wanted` are the requests that must be answered, with the error they must get."""

    def __init__(self, answers, rng, encoding, folder):
        self.answers, self.rng, self.encoding, self.folder = answers, rng, encoding, folder
        self.texts = {}
        self.number = 0
        self.wanted = {}
        self.refused = 0
        self.sent = 0
        self.counts = Counter()

    def send(self, data):
        self.sent += 1
        self.answers.send(data)

    def request(self, method, params, code=None, **extra):
        self.number += 1
        number = self.number if self.rng.random() < 0.7 else f"id-{self.number}"
        self.wanted[number] = code
        self.send(message(id=number, method=method, params=params, **extra))
        return number

    def notify(self, method, params):
        self.send(message(method=method, params=params))

    def kernel(self):
        self.number += 1
        junk = "".join(self.rng.choices(("é", "🙂", "漢", "\u2028", "\f", "x", " "), k=self.rng.randint(0, 4)))
        return f"/*{junk}*/ __global__ void k{self.number}(int n) {{ }}" + self.rng.choice(("\n", "\r\n", "\r", " "))

    def piece(self):
        if self.rng.random() < 0.6:
            return self.kernel()
        return "".join(self.rng.choices(PIECES, k=self.rng.randint(0, 5)))

    def open(self):
        uri = (self.folder / f"t{self.rng.randint(0, 4)} é.cu").as_uri()
        text = Text(uri, self.encoding, "".join(self.piece() for _ in range(self.rng.randint(0, 6))))
        self.texts[uri] = text
        document = {"uri": uri, "languageId": "cuda-cpp", "version": 1, "text": text.text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def edit(self):
        if not self.texts:
            self.open()
        text = self.rng.choice(list(self.texts.values()))
        changes = []
        for _ in range(self.rng.randint(1, 3)):
            if self.rng.random() < 0.3 or len(text.text) > 3000:
                text.text = "".join(self.piece() for _ in range(self.rng.randint(0, 8)))
                changes.append({"text": text.text})
                continue
            start, end = sorted((text.cut(self.rng), text.cut(self.rng)))
            end = min(end, start + self.rng.choice((0, 0, 2, 40)))
            if text.text[end - 1 : end + 1] == "\r\n":
                end -= 1
            end = max(start, end)
            new = self.piece()
            extent = {"start": text.position(start), "end": text.position(end)}
            if text.text[end : end + 1] in ("", "\n", "\r") and self.rng.random() < 0.3:
                extent["end"]["character"] += self.rng.choice((1, 7, 2**31 - 1 - extent["end"]["character"]))
            changes.append({"range": extent, "text": new})
            text.text = text.text[:start] + new + text.text[end:]
        text.version += 1
        self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": text.uri, "version": text.version}, "contentChanges": changes},
        )

    def close(self):
        uri = self.rng.choice([*self.texts, "untitled:x", "file:///nowhere.cu"])
        self.texts.pop(uri, None)
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def ask(self):
        kind = self.rng.choice(REQUESTS)
        uri = self.rng.choice([*self.texts, "untitled:gone", "file:///nowhere.cu", "%%", ""])
        at = {"line": self.rng.choice((0, 1, 7, 2**31 - 1)), "character": self.rng.choice((0, 3, 2**31 - 1))}
        params = {"textDocument": {"uri": uri}, "position": at, "range": {"start": at, "end": at}}
        return self.request(f"textDocument/{kind}", params | {"context": {"diagnostics": []}})

    def ask_and_cancel(self):
        number = self.ask()
        self.notify("$/cancelRequest", {"id": number})
        self.notify("$/cancelRequest", {"id": self.rng.choice((number, 10**9, "no", None, 0.5))})

    def misfit(self):
        """A known method with parameters that are not its own; whatever the answer, there is one."""
        params = self.rng.choice(JUNK)
        self.request(f"textDocument/{self.rng.choice(REQUESTS)}", params)
        self.request("codeAction/resolve", {"title": "x", "data": self.rng.choice(JUNK)})
        self.notify(f"textDocument/{self.rng.choice(('didOpen', 'didChange', 'didClose', 'didSave'))}", params)
        self.notify("workspace/didChangeConfiguration", {"settings": params})
        self.notify("workspace/didChangeWatchedFiles", params)

    def command(self):
        arguments = self.rng.choices((*JUNK, *self.texts), k=self.rng.randint(0, 3))
        command = f"kernel-lsp.{self.rng.choice(COMMANDS)}"
        number = self.request("workspace/executeCommand", {"command": command, "arguments": arguments})
        if self.rng.random() < 0.3:
            self.notify("$/cancelRequest", {"id": number})

    def oversized(self):
        self.refused += 1
        self.send(b"Content-Length: %d\r\n\r\n" % (65 << 20) + b" " * (65 << 20))

    def unknown(self):
        self.request(self.rng.choice(("no/such", "", "$/x", "textDocument/rename")), self.rng.choice(JUNK), NO_METHOD)
        self.notify(self.rng.choice(("no/such", "$/x")), self.rng.choice(JUNK))

    def malformed(self):
        body, code = self.rng.choice([(b, PARSE_ERROR) for b in BROKEN] + [(b, INVALID_REQUEST) for b in NO_REQUEST])
        self.refused += 1
        self.send(frame(body))
        return code

    def bad_ids(self):
        for number in (None, 0.5, True, [], {}):
            self.refused += 1
            self.send(message(id=number, method="textDocument/hover", params={}))

    def out_of_order(self):
        self.request("initialize", initialize(self.encoding, self.folder), INVALID_REQUEST)
        self.notify("textDocument/hover", {})  # a request sent as a notification
        self.request("textDocument/didOpen", {}, INVALID_PARAMS)  # and the other way round
        self.send(message(id=self.rng.choice((1, "x", 10**6)), result=self.rng.choice(JUNK)))
        self.send(message(id="y", error={"code": 1, "message": "no"}))

    def odd_headers(self):
        self.number += 1
        self.wanted[self.number] = None
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": "no/such"}).encode()
        header = self.rng.choice(
            (b"content-length:%d", b"X-Y: z\r\nContent-Length:   %d", b"junk\r\n\r\nCONTENT-LENGTH: %d")
        )
        self.send(header % len(body) + b"\r\n\r\n" + body)

    def headers_without_length(self):
        self.send(self.rng.choice((b"\r\n\r\n", b"Content-Length: -3\r\n\r\n", b"Content-Length: x\r\n\r\n")))

    def answer(self, found):
        """What the client says when the server asks; now and then something else, or nothing."""
        wrong = self.rng.random()
        if wrong < 0.2:
            return None
        if wrong < 0.4:
            return message(id=found["id"], error={"code": -32601, "message": "no"})
        return message(id=found["id"], result=self.rng.choice(JUNK))

    def step(self):
        actions = {self.edit: 10, self.ask: 6, self.open: 2, self.close: 1, self.ask_and_cancel: 2, self.misfit: 1}
        rare = (self.command, self.unknown, self.malformed, self.bad_ids, self.out_of_order, self.odd_headers)
        actions |= dict.fromkeys((*rare, self.headers_without_length), 1) | {self.oversized: 0.01}
        action = self.rng.choices(list(actions), list(actions.values()))[0]
        self.counts[action.__name__] += 1
        action()

    async def settle(self):
        """Every request has one answer, with the code that the specification names, and texts are the client's."""
        await self.answers.flush()
        self.number += 1
        texts = (await self.answers.to(self.request("test/texts", None)))["result"]
        assert texts == {text.uri: text.text for text in self.texts.values()}
        self.counts["texts compared"] += len(texts)
        await self.answers.until(lambda: self.wanted.keys() <= self.answers.by_id.keys())
        for number, code in self.wanted.items():
            (answer,) = self.answers.by_id[number]
            self.counts["answers"] += 1
            self.counts["cancelled"] += answer.get("error", {}).get("code") == CANCELLED
            assert code is None or answer["error"]["code"] == code, answer
        assert len(self.answers.refused) == self.refused
        assert {e["code"] for e in self.answers.refused} <= {PARSE_ERROR, INVALID_REQUEST}
        assert not any(e.get("error", {}).get("code") == -32603 for a in self.answers.by_id.values() for e in a)
        self.wanted.clear()
        for text in self.texts.values():
            asked = self.request("textDocument/documentSymbol", {"textDocument": {"uri": text.uri}})
            found = (await self.answers.to(asked))["result"]
            expected = list(text.expected())
            assert [(one["name"], one["selectionRange"]) for one in found] == expected, text.text
            self.counts["kernels found"] += len(expected)


async def fuzz(encoding: str, folder: Path, messages: int, seed: object) -> dict[str, Any]:
    """One session of at least so many messages, from before `initialize` to after `shutdown`; what it was made of.

    Raises:
        AssertionError: the server answered otherwise than it must, has another text, or died.
    """
    async with raw_server(folder, MIRRORED) as answers:
        said = asyncio.create_task(answers.process.stderr.read())
        fuzzer = Fuzzer(answers, random.Random(f"{encoding} {seed}"), encoding, folder)
        answers.on_request = fuzzer.answer
        fuzzer.request("textDocument/hover", {}, NOT_INITIALIZED)
        fuzzer.request("shutdown", None, NOT_INITIALIZED)
        fuzzer.notify("textDocument/didOpen", {})
        first = fuzzer.request("initialize", initialize(encoding, folder))
        assert (await answers.to(first))["result"]["capabilities"]["positionEncoding"] == encoding
        fuzzer.notify("initialized", {})
        while fuzzer.sent < messages:
            for _ in range(SEQUENCE):
                fuzzer.step()
            await fuzzer.settle()
            fuzzer.counts["sequences"] += 1
        last = fuzzer.request("shutdown", None)
        assert (await answers.to(last))["result"] is None
        after = fuzzer.request("textDocument/hover", {}, INVALID_REQUEST)
        assert (await answers.to(after))["error"]["code"] == INVALID_REQUEST
        fuzzer.notify("exit", None)
        async with asyncio.timeout(10):
            assert await answers.process.wait() == 0
        log = (await said).decode()
        assert "Traceback" not in log, log[-4000:]
        return {"messages": fuzzer.sent, **dict(fuzzer.counts.most_common())}
