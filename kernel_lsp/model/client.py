"""Light client of an OpenAI-compatible server: streams an answer, counts tokens, lists the served models.

It needs only httpx, and every failure has an error class of its own (`model.errors`).
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, NotRequired, Self, TypedDict

import httpx

from kernel_lsp.model import errors, gate
from kernel_lsp.model.answers import DrawnAnswer, Piece, decoded, drawn_answer_of, event_of, piece_of
from kernel_lsp.model.endpoint import ANY_NUMBER, Endpoint, transport

_BYTES_PER_TOKEN = 3  # of source code, seldom fewer
_POLL_SECONDS = 0.2
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 30.0  # of requests that generate nothing
_LOAD_SECONDS = 300.0  # of an adapter, from a slow disk


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens, for servers that do not count them; for source code never too low."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


class Message(TypedDict):
    """One turn of a conversation; `role` is system, user, assistant or tool.

    An assistant's message may have calls of tools, as its server gave them; a tool's names the call that it answers.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools that a model may call in its answer.

    Attributes:
        tools: as JSON schemas, in the form of OpenAI's `tools`.
        open: False if they are named only because earlier messages call them, and no further call is answered.
    """

    tools: Sequence[dict[str, Any]]
    open: bool = True


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is sampled. `max_tokens` counts reasoning and text together; None leaves a choice to the server."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds, and the limit of reasoning tokens.

    Attributes:
        first: until the first piece of an answer; the prompt is read and other requests may be served meanwhile.
        silence: between two pieces. Time for which the judge has paused the server does not count.
        total: for the whole answer.
        asleep: for a sleeping server to wake.
        reasoning_tokens: before the text begins; None is as many as `Sampling.max_tokens`.
    """

    first: float = 300.0
    silence: float = 60.0
    total: float = 3600.0
    asleep: float = 120.0
    reasoning_tokens: int | None = None


class ModelClient:
    """Client of one server, an async context manager. Several answers may be streamed at once."""

    def __init__(self, endpoint: Endpoint, limits: Limits = Limits()) -> None:
        self.endpoint, self.limits = endpoint, limits
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._http = httpx.AsyncClient(
            base_url=endpoint.url,
            headers=headers,
            transport=transport(endpoint),
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=ANY_NUMBER,
            trust_env=not endpoint.local,
        )
        self._can_sleep, self._loaded = True, endpoint.adapter is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def models(self) -> tuple[str, ...]:
        """Return the names of the served models and adapters.

        Raises:
            ModelError: the server cannot be reached or does not say.
        """
        said = await self._ask("GET", "/v1/models")
        return tuple(str(entry["id"]) for entry in said["data"])

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Have the server load an adapter under a name, unless it has one of that name.

        Raises:
            NotServedError: the server loads none while it runs.
            ModelError: the server cannot be reached, or cannot load this one.
        """
        if name in await self.models():
            return
        try:
            await self._ask(
                "POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, _LOAD_SECONDS
            )
        except errors.NotServedError:
            fix = "Start it with `kernel-lsp model serve FOLDER --adapters`."
            message = f"The model server at {self.endpoint} does not load the adapter in {folder} while it runs."
            raise errors.NotServedError(message, fix=fix) from None
        except errors.ServerSaidError:
            if name not in await self.models():  # another process may have been as quick
                raise

    async def unload_adapter(self, name: str) -> None:
        """Have the server forget an adapter, if it has it.

        Raises:
            ModelError: the server cannot be reached or refuses.
        """
        if name in await self.models():
            await self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def count_tokens(self, prompt: str | Sequence[Message]) -> int:
        """Return the tokens of a text, or of a conversation including the model's chat template.

        A server without `/tokenize`, which is not vLLM, gets an estimate: one token for each three bytes.

        Raises:
            ModelError: the server cannot be reached or refuses.
        """
        await self._load()
        part = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt)}
        try:
            said = await self._ask("POST", "/tokenize", {"model": self.endpoint.model, **part})
        except errors.NotServedError:
            if self.endpoint.model in await self.models():
                return estimate_tokens(json.dumps(prompt, ensure_ascii=False))
            raise
        return int(said["count"])

    async def stream(
        self, messages: Sequence[Message], sampling: Sampling, offer: ToolOffer | None = None
    ) -> AsyncGenerator[Piece]:
        """Yield the answer piece by piece; leaving the loop ends the request, and the server stops generating.

        Raises:
            CutOffError, EndlessReasoningError: after the last piece that arrived.
            AnswerTimedOutError, ServerCrashedError, AsleepError: as they say.
            ModelError: the server cannot be reached or refuses.
        """
        async with gate.generating(self.endpoint.folder):
            await self._awake()
            await self._load()
            lines: asyncio.Queue[str | Exception | None] = asyncio.Queue()
            body = _body(self.endpoint.model, messages, sampling) | _offered(offer)
            reading = asyncio.create_task(self._read(body, lines))
            try:
                async for piece in self._pieces(lines, sampling):
                    yield piece
            finally:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    async def draw(self, messages: Sequence[Message], sampling: Sampling) -> DrawnAnswer:
        """Return one answer with its tokens, as reinforcement learning needs it; vLLM alone tells them.

        Raises:
            ServerSaidError: the server does not tell tokens.
            ModelError: it cannot be reached or refuses.
        """
        async with gate.generating(self.endpoint.folder):
            await self._awake()
            await self._load()
            wanted = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}
            body = _body(self.endpoint.model, messages, sampling) | wanted
            del body["stream"], body["stream_options"]
            said = await self._ask("POST", "/v1/chat/completions", body, self.limits.total)
        try:
            return drawn_answer_of(said)
        except (KeyError, TypeError, ValueError):
            fix = "Serve the model with `kernel-lsp model serve`."
            message = f"The model server at {self.endpoint} does not tell the tokens of its answers."
            raise errors.ServerSaidError(message, fix=fix) from None

    async def _pieces(self, lines: asyncio.Queue[str | Exception | None], sampling: Sampling) -> AsyncGenerator[Piece]:
        begun, patience = time.monotonic(), self.limits.first
        reasoned, written, tokens = 0, False, 0
        finish: str | None = None
        while (line := await self._next(lines, begun, patience)) is not None:
            patience = self.limits.silence
            if (event := event_of(line)) is None:
                continue
            if "error" in event:
                raise self._said(500, event)
            piece = piece_of(event)
            tokens = piece.usage.completion if piece.usage else tokens + 1
            finish = finish or piece.finish
            written = written or bool(piece.text.strip() or piece.calls)
            reasoned = reasoned if written else tokens
            yield piece
            limit = self.limits.reasoning_tokens
            if limit is not None and not written and finish is None and reasoned > limit:
                raise self._endless(reasoned)
        if finish is None:
            raise self._crashed()
        if finish == "length" and not written:
            raise self._endless(reasoned)
        if finish == "length":
            limit = f" at {sampling.max_tokens:,} tokens" if sampling.max_tokens else ""
            fix = "Allow longer answers, or ask for less."
            raise errors.CutOffError(f"The answer was cut off{limit} before it ended.", fix=fix)
        if finish == "abort":
            raise errors.ServerSaidError("The server gave the answer up.", fix="Ask again.")

    async def _next(self, lines: asyncio.Queue[str | Exception | None], begun: float, patience: float) -> str | None:
        """Return the next line of the stream; None at its end."""
        while True:
            left = self.limits.total - (time.monotonic() - begun)
            try:
                async with asyncio.timeout(max(0.0, min(patience, left))):
                    line = await lines.get()
            except TimeoutError:
                if left > patience and gate.is_held(self.endpoint.folder):
                    continue  # it is silent because the judge is timing a kernel
                waited, what = (patience, "said nothing") if left > patience else (self.limits.total, "was not done")
                message = f"The model server at {self.endpoint} {what} for {waited:g} s."
                raise errors.AnswerTimedOutError(message, fix=self._where_to_look()) from None
            if isinstance(line, Exception):
                raise line
            return line

    async def _read(self, body: dict[str, Any], lines: asyncio.Queue[str | Exception | None]) -> None:
        """Put every line of the server's answer into `lines`, then None or the error that ended it."""
        answering = False
        try:
            async with self._http.stream(
                "POST", "/v1/chat/completions", json=body, timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS)
            ) as response:
                if response.is_error:
                    raise self._said(response.status_code, decoded(await response.aread()))
                answering = True
                async for line in response.aiter_lines():
                    lines.put_nowait(line)
            lines.put_nowait(None)
        except errors.ModelError as error:
            lines.put_nowait(error)
        except httpx.TransportError as error:
            lines.put_nowait(self._crashed() if answering else self._unreachable(error))

    async def _awake(self) -> None:
        """Wait until a sleeping server wakes; while asleep it answers no request, though it reports itself healthy."""
        until = time.monotonic() + self.limits.asleep
        while self._can_sleep:
            try:
                response = await self._http.get("/is_sleeping")
            except httpx.TransportError as error:
                raise self._unreachable(error) from error
            if response.status_code != HTTPStatus.OK:
                self._can_sleep = False  # sleeping is not enabled
            elif not decoded(response.content).get("is_sleeping"):
                return
            elif not await gate.revive(self.endpoint.folder) and time.monotonic() > until:
                message = f"The model server at {self.endpoint} sleeps: its GPU memory is needed."
                fix = "Serve with a shorter context or a larger `model.reserve`, so that both fit."
                raise errors.AsleepError(message, fix=fix)
            else:
                await asyncio.sleep(_POLL_SECONDS)

    async def _load(self) -> None:
        """Have the endpoint's adapter loaded before it is asked for the first time."""
        if not self._loaded and self.endpoint.adapter is not None:
            await self.load_adapter(self.endpoint.model, self.endpoint.adapter)
            self._loaded = True

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = _ANSWER_SECONDS
    ) -> dict[str, Any]:
        limit = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        try:
            response = await self._http.request(method, path, json=body, timeout=limit)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise self._said(response.status_code, decoded(response.content))
        return decoded(response.content)

    def _said(self, status: int, body: dict[str, Any]) -> errors.ModelError:
        """Return the error class for the server's refusal."""
        error = body.get("error", body)
        said = str(error.get("message", error) if isinstance(error, dict) else error).strip().rstrip(".")[:500]
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            fix = "Set `model.key_variable` to the name of the environment variable that holds its key."
            return errors.WrongKeyError(f"The model server at {self.endpoint} does not accept the key.", fix=fix)
        if status == HTTPStatus.NOT_FOUND:
            message = f"The model server at {self.endpoint} does not serve `{self.endpoint.model}`: {said}."
            return errors.NotServedError(message, fix="`kernel-lsp model status` lists what is served.")
        if "context length" in said or "max_model_len" in said or "maximum context" in said:
            fix = "Serve it with a longer context, or give the model less history."
            return errors.PromptTooLongError(f"Prompt and answer do not fit the model: {said}.", fix=fix)
        if "EngineDead" in said or "EngineCore" in said:
            return self._crashed()
        return errors.ServerSaidError(f"The model server at {self.endpoint} answered with an error: {said}.")

    def _unreachable(self, error: httpx.TransportError) -> errors.ModelError:
        if isinstance(error, httpx.ReadError | httpx.RemoteProtocolError | httpx.WriteError):
            return self._crashed()
        if isinstance(error, httpx.TimeoutException):
            message = f"The model server at {self.endpoint} did not answer in time."
            return errors.AnswerTimedOutError(message, fix=self._where_to_look())
        fix = "Start one with `kernel-lsp model serve`, or fix `model.endpoint`."
        return errors.RefusedConnectionError(f"No model server listens at {self.endpoint}.", fix=fix)

    def _crashed(self) -> errors.ModelError:
        message = f"The model server at {self.endpoint} went away in the middle of an answer."
        return errors.ServerCrashedError(message, fix=self._where_to_look())

    def _endless(self, tokens: int) -> errors.ModelError:
        fix = "Ask again; or allow more with the profile's limits."
        return errors.EndlessReasoningError(f"The model was still reasoning after {tokens:,} tokens.", fix=fix)

    def _where_to_look(self) -> str:
        if self.endpoint.folder is None:
            return "Look at the server's own log."
        return f"`kernel-lsp model status` says whether it lives; its log is {self.endpoint.folder / 'log'}."


def _offered(offer: ToolOffer | None) -> dict[str, Any]:
    """Return the part of a request's body that offers tools."""
    if offer is None:
        return {}
    return {"tools": list(offer.tools), "tool_choice": "auto" if offer.open else "none"}


def _body(model: str, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
    said = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"model": model, "messages": list(messages), "stream": True, "stream_options": options}
    return body | {name: value for name, value in said.items() if value is not None}
