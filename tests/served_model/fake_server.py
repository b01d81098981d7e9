"""An OpenAI-compatible server on a Unix socket that fails in every way a test wants."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class FakeServer:
    """`answer` is what a chat request streams: events (dicts), seconds to wait, or one of the words below.

    `die` closes the connection, `hang` says nothing more. A `reply` makes the same of each request's body instead; a
    dict is the whole answer, which is not streamed. `adapters` has what was loaded, by name.
    """

    socket: Path
    key: str | None = "secret"
    answer: list = field(default_factory=list)
    reply: Callable[[dict], list | dict] | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    refusal: tuple[int, str] | None = None
    routes: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    body: dict = field(default_factory=dict)
    bodies: list[dict] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.routes = {
            "/v1/models": (200, json.dumps({"data": [{"id": "tiny"}, {"id": "other"}]})),
            "/is_sleeping": (200, '{"is_sleeping": false}'),
            "/tokenize": (200, '{"count": 7}'),
            "/health": (200, ""),
            "/pause": (200, ""),
            "/resume": (200, ""),
            "/sleep": (200, ""),
            "/wake_up": (200, ""),
            "/metrics": (200, 'vllm:num_requests_running{engine="0"} 0.0\n'),
        } | self.routes

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def close(self) -> None:
        self._server.close()
        self.socket.unlink(missing_ok=True)

    def commands(self) -> list[str]:
        """What it was told to do, in order."""
        told = [path.partition("?")[0] for path in self.asked]
        return [path for path in told if path in ("/pause", "/resume", "/sleep", "/wake_up")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                path = head.split(" ", 2)[1]
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append(path)
                if path == "/v1/chat/completions":
                    self.body = json.loads(body)
                    self.bodies.append(self.body)
                if path.startswith("/v1") and self.key and headers.get("authorization") != f"bearer {self.key}":
                    self._say(writer, 401, '{"error": "Unauthorized"}')
                elif path == "/v1/chat/completions" and self.refusal is None:
                    answer = self.reply(self.body) if self.reply else self.answer
                    if isinstance(answer, list):
                        await self._stream(reader, writer, answer)
                        break
                    self._say(writer, 200, json.dumps(answer))
                elif path == "/v1/chat/completions":
                    status, message = self.refusal or (500, "")
                    self._say(writer, status, json.dumps({"error": {"message": message}}))
                elif path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter") and path not in self.routes:
                    self._keep(json.loads(body))
                    self._say(writer, 200, "Success")
                else:
                    self._say(writer, *self.routes.get(path.partition("?")[0], (404, '{"detail": "Not Found"}')))
                await writer.drain()
        writer.close()

    def _keep(self, wanted: dict) -> None:
        """Load the adapter that a request names, or unload it, as vLLM does."""
        if "lora_path" in wanted:
            self.adapters[wanted["lora_name"]] = wanted["lora_path"]
        else:
            del self.adapters[wanted["lora_name"]]
        served = [{"id": name} for name in ("tiny", "other", *self.adapters)]
        self.routes["/v1/models"] = (200, json.dumps({"data": served}))

    def _say(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: list) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for step in answer:
            if step == "die":
                return
            if step == "hang":
                await reader.read()
                self.left.set()
                return
            if isinstance(step, int | float):
                await asyncio.sleep(step)
                continue
            data = f"data: {json.dumps(step) if isinstance(step, dict) else step}\n\n".encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")


def said(text: str = "", reasoning: str = "", finish: str | None = None, tokens: int | None = None) -> dict:
    """One event of a streamed answer."""
    delta = {"content": text} if text else {"reasoning": reasoning} if reasoning else {}
    event: dict = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return event | ({"usage": {"prompt_tokens": 3, "completion_tokens": tokens}} if tokens is not None else {})


def called(name: str, *, number: int = 0, **arguments: str) -> dict:
    """One event of a streamed answer that calls a tool; `number` is the call's, and its id ends in it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": number, "id": f"id-{number}", "type": "function", "function": function}]}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def drawn(text: str, tokens: int = 5, finish: str = "stop") -> dict:
    """A whole answer with its tokens, as vLLM gives it when it is asked for them."""
    logprobs = {"content": [{"token": "x", "logprob": -0.5}] * tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    choice |= {"logprobs": logprobs, "token_ids": list(range(tokens))}
    return {"choices": [choice], "prompt_token_ids": [1, 2, 3]}
