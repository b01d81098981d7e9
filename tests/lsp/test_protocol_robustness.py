"""Whatever a client sends, the server answers or ignores it as the specification says, and never dies.

A fuzzer sends malformed, unordered, cancelled and oversized messages among random edits in every encoding. Each request
must get exactly one answer, and after each sequence the server must see the text as the client does: hovers on every
kernel must name it and give its exact place. `FUZZ_MESSAGES=10000` sets how many messages each encoding gets.
"""

import json
import os
import random
from pathlib import Path

import pytest

from kernel_lsp.source.files import find_kernels
from tests.lsp.raw_client import frame, message, raw_server

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "3400"))
SEQUENCE = 100
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NOT_INITIALIZED, CANCELLED = -32002, -32800
REQUESTS = ("hover", "codeLens", "inlayHint", "codeAction", "diagnostic")
COMMANDS = ("kernel-lsp.untrust", "kernel-lsp.refine", "kernel-lsp.check", "kernel-lsp.cancel", "no.such", "")
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

pytestmark = pytest.mark.asyncio


def initialize(encoding, folder):
    capabilities = {"general": {"positionEncodings": [encoding]}, "workspace": {"configuration": True}}
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
        self.seen = 0

    def request(self, method, params, code=None, **extra):
        self.number += 1
        number = self.number if self.rng.random() < 0.7 else f"id-{self.number}"
        self.wanted[number] = code
        self.answers.send(message(id=number, method=method, params=params, **extra))
        return number

    def notify(self, method, params):
        self.answers.send(message(method=method, params=params))

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
        arguments = self.rng.choices(JUNK, k=self.rng.randint(0, 3))
        self.request("workspace/executeCommand", {"command": self.rng.choice(COMMANDS), "arguments": arguments})

    def unknown(self):
        self.request(self.rng.choice(("no/such", "", "$/x", "textDocument/rename")), self.rng.choice(JUNK), NO_METHOD)
        self.notify(self.rng.choice(("no/such", "$/x")), self.rng.choice(JUNK))

    def malformed(self):
        body, code = self.rng.choice([(b, PARSE_ERROR) for b in BROKEN] + [(b, INVALID_REQUEST) for b in NO_REQUEST])
        self.refused += 1
        self.answers.send(frame(body))
        return code

    def bad_ids(self):
        for number in (None, 0.5, True, [], {}):
            self.refused += 1
            self.answers.send(message(id=number, method="textDocument/hover", params={}))

    def out_of_order(self):
        self.request("initialize", initialize(self.encoding, self.folder), INVALID_REQUEST)
        self.notify("textDocument/hover", {})  # a request sent as a notification
        self.request("textDocument/didOpen", {}, INVALID_PARAMS)  # and the other way round
        self.answers.send(message(id=self.rng.choice((1, "x", 10**6)), result=self.rng.choice(JUNK)))
        self.answers.send(message(id="y", error={"code": 1, "message": "no"}))

    def odd_headers(self):
        self.number += 1
        self.wanted[self.number] = None
        body = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": "no/such"}).encode()
        header = self.rng.choice(
            (b"content-length:%d", b"X-Y: z\r\nContent-Length:   %d", b"junk\r\n\r\nCONTENT-LENGTH: %d")
        )
        self.answers.send(header % len(body) + b"\r\n\r\n" + body)

    def headers_without_length(self):
        self.answers.send(self.rng.choice((b"\r\n\r\n", b"Content-Length: -3\r\n\r\n", b"Content-Length: x\r\n\r\n")))

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
        actions |= dict.fromkeys((*rare, self.headers_without_length), 1)
        self.rng.choices(list(actions), list(actions.values()))[0]()

    async def settle(self):
        """Every request has one answer, with the code that the specification names, and texts are the client's."""
        await self.answers.flush()
        self.number += 1
        last = self.request("no/such", None)
        await self.answers.to(last)
        await self.answers.until(lambda: self.wanted.keys() <= self.answers.by_id.keys())
        for number, code in self.wanted.items():
            (answer,) = self.answers.by_id[number]
            assert code is None or answer["error"]["code"] == code, answer
        assert len(self.answers.refused) == self.refused
        assert {e["code"] for e in self.answers.refused} <= {PARSE_ERROR, INVALID_REQUEST}
        assert not any(e.get("error", {}).get("code") == -32603 for a in self.answers.by_id.values() for e in a)
        self.wanted.clear()
        for text in self.texts.values():
            for name, extent in text.expected():
                for end in ("start", "end"):
                    where = {"textDocument": {"uri": text.uri}, "position": extent[end]}
                    found = (await self.answers.to(self.request("textDocument/hover", where)))["result"]
                    assert found, (name, extent, text.text)
                    assert found["range"] == extent, text.text
                    assert f"void {name}(" in found["contents"]["value"]
                    self.seen += 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.timeout(120 + MESSAGES // 50)
async def test_any_messages_leave_the_server_alive_and_the_text_the_clients(encoding, tmp_path):
    rng = random.Random(f"{encoding} {os.environ.get('FUZZ_SEED', 0)}")
    async with raw_server(tmp_path) as answers:
        fuzzer = Fuzzer(answers, rng, encoding, tmp_path)
        answers.on_request = fuzzer.answer
        fuzzer.request("textDocument/hover", {}, NOT_INITIALIZED)
        fuzzer.request("shutdown", None, NOT_INITIALIZED)
        fuzzer.notify("textDocument/didOpen", {})
        first = fuzzer.request("initialize", initialize(encoding, tmp_path))
        assert (await answers.to(first))["result"]["capabilities"]["positionEncoding"] == encoding
        fuzzer.notify("initialized", {})
        for _ in range(MESSAGES // SEQUENCE):
            for _ in range(SEQUENCE):
                fuzzer.step()
            await fuzzer.settle()
        assert fuzzer.seen >= MESSAGES // SEQUENCE
        last = fuzzer.request("shutdown", None)
        assert (await answers.to(last))["result"] is None
        after = fuzzer.request("textDocument/hover", {}, INVALID_REQUEST)
        assert (await answers.to(after))["error"]["code"] == INVALID_REQUEST
        fuzzer.notify("exit", None)
        assert await answers.process.wait() == 0
        assert b"Traceback" not in (said := await answers.process.stderr.read()), said.decode()[-4000:]


async def test_a_message_too_large_is_refused_and_the_next_one_answered(tmp_path):
    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        answers.send(b"Content-Length: %d\r\n\r\n" % (65 << 20))
        for _ in range(65):
            answers.send(b" " * (1 << 20))
            await answers.flush()
        answers.send(message(id=2, method="no/such"))
        assert (await answers.to(2))["error"]["code"] == NO_METHOD
        assert [error["code"] for error in answers.refused] == [INVALID_REQUEST]


async def test_a_stream_that_ends_within_a_message_ends_the_server(tmp_path):
    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        answers.send(b"Content-Length: 100\r\n\r\n{")
        await answers.to(1)
        answers.process.stdin.close()
        assert await answers.process.wait() == 1
        assert await answers.process.stderr.read() == b""


async def test_a_very_large_text_is_taken(tmp_path):
    """Four megabytes of kernels: the server may be slow on it, and must stay right."""
    text = Text(
        (tmp_path / "large.cu").as_uri(), "utf-16", "/*🙂*/ __global__ void k(int n) { }\n" * 20 + "// é\n" * 800_000
    )
    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        document = {"uri": text.uri, "languageId": "cuda", "version": 1, "text": text.text}
        answers.send(message(method="textDocument/didOpen", params={"textDocument": document}))
        where = {"textDocument": {"uri": text.uri}, "position": {"line": 19, "character": 23}}
        answers.send(message(id=2, method="textDocument/hover", params=where))
        extent = {"start": {"line": 19, "character": 23}, "end": {"line": 19, "character": 24}}
        assert (await answers.to(2))["result"]["range"] == extent
