"""Compiler messages and facts of open texts, from a service process that stays warm.

A newer edit replaces a waiting one; a text is compiled when its author pauses; a result is kept only while its text is
still on the screen. A text in an untrusted folder is never sent.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.errors import ConfigurationError, KernelLspError, RunnerError
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.compiled import CompiledKernel, CompiledText, MachineLine
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.process import Service, ServiceFailure, ServiceGoneError
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.wire import KernelCode, from_json
from kernel_lsp.lsp.workspace import Permission

log = logging.getLogger("kernel-lsp")


_SHOWN = tuple(field.name for field in fields(CompiledKernel))


class Analysis:
    """The latest results, and the pending requests for newer ones.

    Attributes:
        trouble: why the text that came last was not compiled, where that is not its fault; else None.
    """

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        settings: ClientSettings,
        permission: Permission,
        board: Board,
        compiler: Service,
    ) -> None:
        self._client, self._background, self._board = client, background, board
        self._documents, self._settings, self._permission = documents, settings, permission
        self._service = compiler
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, tuple[str, tuple[CompiledText, ...]]] = {}
        self._facts: dict[str, tuple[CompiledText, ...]] = {}
        self._saved: dict[str, tuple[str, tuple[CompiledText, ...]]] = {}
        self._lines: dict[str, tuple[str, dict[int, list[MachineLine]]]] = {}
        self._counters: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self._excused: set[str] = set()
        self.trouble: str | None = None
        self._movement = asyncio.Event()

    def of(self, document: Document) -> tuple[CompiledText, ...]:
        """Return the results for a text as it stands, by architecture; empty if it was not compiled yet."""
        text, found = self._results.get(document.uri, (None, ()))
        return found if text == document.text else ()

    def latest(self, uri: str) -> tuple[CompiledText, ...] | None:
        """Return what is known of a text: of each kernel the facts of the last state in which it compiled.

        None if none has yet.
        """
        return self._facts.get(uri)

    def saved(self, document: Document) -> None:
        """Note that a text is on the disk as it stands: what later edits cost is told against it."""
        self._saved[document.uri] = document.text, self.of(document)

    def of_saved(self, uri: str) -> tuple[CompiledText, ...]:
        """Return the results of the text as it was saved; empty if it did not compile, or was not compiled."""
        return self._saved.get(uri, ("", ()))[1]

    def is_compiled(self, document: Document) -> bool:
        """Return True if the text as it stands was compiled, with or without success."""
        return self._results.get(document.uri, (None, ()))[0] == document.text

    def lines(self, document: Document) -> dict[int, list[MachineLine]]:
        """Return the machine code of each line of a text as it stands; empty if unknown."""
        text, found = self._lines.get(document.uri, (None, {}))
        return found if text == document.text else {}

    def counters(self, document: Document) -> list[dict[str, Any]]:
        """Return the counters of the last emulated run of a text as it stands, see `judge.emulation.LineCounters`."""
        text, found = self._counters.get(document.uri, (None, []))
        return found if text == document.text else []

    def counted(self, document: Document, counters: list[dict[str, Any]]) -> None:
        """Store the counters that a check got for a text by running it on the emulator."""
        self._counters[document.uri] = document.text, counters
        self._client.refresh()

    def request(self, document: Document, *, at_once: bool = False) -> None:
        """Have a text compiled once its author pauses; an older waiting request for the same text is dropped."""
        if (waiting := self._pending.pop(document.uri, None)) is not None:
            waiting.cancel()
        if document.kernels and self._permission.covers(document):
            self._pending[document.uri] = self._background.start(self._soon(document, at_once))
        else:
            self._board.compiled(document, ())
            self._results.pop(document.uri, None)
            self._facts.pop(document.uri, None)
            self._client.refresh()
        self._moved()

    async def settled(self, document: Document) -> None:
        """Wait until a text is compiled as it stands, changed, or closed."""
        while self._documents.get(document.uri) is document and not self._is_settled(document):
            await self._movement.wait()

    async def has_facts(self, document: Document) -> None:
        """Wait until there are facts of a text, be it of an earlier state; or it is compiled, changed, or closed."""
        while self._documents.get(document.uri) is document and not self._is_settled(document):
            if document.uri in self._facts:
                return
            await self._movement.wait()

    def forget(self, uri: str) -> None:
        """Forget a closed text."""
        self._results.pop(uri, None)
        for kept in (self._facts, self._lines, self._counters, self._saved):
            kept.pop(uri, None)
        self._moved()
        if (waiting := self._pending.pop(uri, None)) is not None:
            waiting.cancel()

    async def close(self) -> None:
        """End the service process."""
        await self._service.close()

    async def code(self, document: Document, arch: str | None = None) -> tuple[KernelCode, ...]:
        """Return the machine code of a text's kernels, for `arch`, else for the first target architecture.

        Raises:
            ConfigurationError: the text is not trusted.
            KernelLspError: it cannot be compiled, or there is no nvdisasm.
        """
        if not self._permission.covers(document):
            raise ConfigurationError("Nothing is compiled in a folder that you do not trust.", document.path)
        try:
            return from_json(await self._ask(document, "code", arch), tuple[KernelCode, ...])
        except ServiceFailure as failure:
            raise RunnerError(str(failure), document.path) from None

    async def recall(self, document: Document, texts: dict[str, str]) -> dict[str, Any] | None:
        """Return the result of an earlier check of a text as it stands; None if the store has none."""
        settings = self._settings.at(document.path).model_dump(mode="json")
        return await self._service.ask("recall", {"path": str(document.path), "texts": texts, "settings": settings})

    async def _soon(self, document: Document, at_once: bool) -> None:
        settings = self._settings.at(document.path)
        if not at_once:
            await asyncio.sleep(settings.editor.delay_ms / 1000)
        if (running := self._running.get(document.uri)) is not None:
            await asyncio.wait([running])
        self._pending.pop(document.uri, None)  # later edits now wait for this compilation
        task = self._running[document.uri] = self._background.start(self._compile(document))
        task.add_done_callback(lambda done: self._compiled(document.uri, done))

    async def _compile(self, document: Document) -> None:
        trouble = None
        try:
            answer = await self._ask(document, "facts", on_event=lambda event: self._hear(document, event))
        except (ServiceFailure, RunnerError) as failure:  # nothing that the text could be blamed for
            trouble, answer = str(failure), []
        except KernelLspError as error:
            answer = [_complaint(document, error)]
        self._note_trouble(trouble)
        self._take(document, tuple(map(_compiled, answer)))
        if self.of(document) and all(one.ok for one in self.of(document)):
            self._background.start(self._disassemble(document))

    def _note_trouble(self, why: str | None) -> None:
        """Log why a text was not compiled; a client that shows the server's state shows it, others a message, once."""
        if why is not None:
            log.warning("not compiled: %s", why)
            if why not in self._excused and not self._client.wants_status:
                self._excused.add(why)
                self._client.show(f"Kernel LSP could not compile: {why}")
        if why != self.trouble:
            self.trouble = why
            self._client.tell_status()

    def _hear(self, document: Document, event: dict[str, Any]) -> None:
        """Show the facts that come before those of the workload's launches, if nothing better is known."""
        if document.uri not in self._facts and not self.is_compiled(document):
            self._facts[document.uri] = tuple(map(_compiled, event["facts"]))
            self._client.refresh()
            self._moved()

    async def _disassemble(self, document: Document) -> None:
        """Fetch machine code after the facts, so that no hover has to wait."""
        try:
            answer = await self._ask(document, "lines")
        except (ServiceFailure, KernelLspError) as failure:
            log.warning("no machine code of %s: %s", document.path, failure)
            return
        if self._documents.get(document.uri) is document:
            found: dict[int, list[MachineLine]] = {}
            for line in answer:
                found.setdefault(line["line"], []).append(MachineLine(**line | {"code": tuple(line["code"])}))
            self._lines[document.uri] = document.text, found
            if self._settings.at(document.path).editor.register_hints:
                self._client.refresh()

    async def _ask(
        self,
        document: Document,
        part: str,
        arch: str | None = None,
        on_event: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> Any:
        settings = self._settings.at(document.path).model_dump(mode="json")
        settings |= {"arch": [arch]} if arch else {}
        params = {"path": str(document.path), "text": document.text, "settings": settings, "part": part}
        try:
            return await self._service.ask("analyse", params, on_event)
        except ServiceGoneError:  # somebody killed it; a text that ends its process does so again
            return await self._service.ask("analyse", params, on_event)

    def _compiled(self, uri: str, task: "asyncio.Task[None]") -> None:
        if self._running.get(uri) is task:
            del self._running[uri]
        self._moved()

    def _take(self, document: Document, found: tuple[CompiledText, ...]) -> None:
        now = self._documents.get(document.uri)
        if now is None or now.text != document.text:
            return
        before = self._results.get(document.uri)
        self._results[document.uri] = document.text, found
        if found and all(one.ok for one in found):
            self._facts[document.uri] = _with_earlier(found, self._facts.get(document.uri, ()))
        if self._saved.get(document.uri, (None,))[0] == document.text:
            self._saved[document.uri] = document.text, found
        self._board.compiled(now, found)
        if before is None or before[1] != found:
            self._client.refresh()

    def _is_settled(self, document: Document) -> bool:
        """Return True if the text's result exists and no newer one is under way."""
        under_way = document.uri in self._pending or document.uri in self._running
        return not under_way and self.is_compiled(document)

    def _moved(self) -> None:
        """Wake the tasks that wait for a text to settle."""
        self._movement.set()
        self._movement = asyncio.Event()


def _with_earlier(found: tuple[CompiledText, ...], known: tuple[CompiledText, ...]) -> tuple[CompiledText, ...]:
    """Return results, those with errors with the earlier facts of kernels that did not compile."""
    earlier = {one.arch: one for one in known}
    return tuple(one.with_kernels_of(earlier.get(one.arch, one)) if one.has_errors else one for one in found)


def _complaint(document: Document, error: KernelLspError) -> dict[str, Any]:
    """Return an answer that holds nothing but the reason why it has no facts."""
    line = error.line or 1
    place = {"path": str(error.path or document.path), "line": line, "column": 1, "end_line": line, "end_column": 1}
    said = place | {"message": error.said, "severity": "error"}
    return {"arch": "", "ok": False, "diagnostics": [said], "kernels": []}


def _compiled(answer: dict[str, Any]) -> CompiledText:
    return CompiledText(
        arch=answer["arch"],
        ok=answer["ok"],
        diagnostics=tuple(Diagnostic(**d | {"severity": Severity(d["severity"])}) for d in answer["diagnostics"]),
        kernels=tuple(CompiledKernel(**{name: kernel[name] for name in _SHOWN}) for kernel in answer["kernels"]),
    )
