"""The store's knowledge of a text: verified variants to apply, the last verdict, and their workload.

The event loop never waits for the disk: results are read in a thread, and kept while neither the text nor the store has
changed.
"""

import asyncio
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.settings import ClientSettings

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.lsp.document_status import DocumentStatus
    from kernel_lsp.lsp.evidence import Found
    from kernel_lsp.refine.offers import KnownOffers, Offer
    from kernel_lsp.source.kernel import Kernel
    from kernel_lsp.store.store import Store

_FRESH = 1.0  # seconds for which a workload on disk is assumed not to change


@dataclass(frozen=True, slots=True)
class _Read:
    """A cached result, and the texts that it was read for."""

    opened: tuple[Document, ...]
    changes: int
    at: float
    status: "DocumentStatus"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A verdict on a confirmed gain whose final checks a job makes, and the folder of the store it would be in."""

    folder: Path
    document: dict[str, Any]
    job: str


class StoredVerdicts:
    """The stores that this session reads, and the verdicts that are not in them.

    These are the ones that could not be written, and gains whose final checks are under way.
    """

    def __init__(
        self, client: EditorConnection, background: Background, documents: Documents, settings: ClientSettings
    ) -> None:
        self._client, self._background, self._documents, self._settings = client, background, documents, settings
        self._stores: dict[Path, Store] = {}
        self._opening = asyncio.Lock()
        self._reading: set[str] = set()
        self._known: dict[Path, KnownOffers] = {}
        self._read: dict[str, _Read] = {}
        self._unsaved: dict[str, tuple[Path, dict[str, Any]]] = {}
        self._pending: dict[str, _Pending] = {}
        self._early: set[str] = set()
        self._said: set[str] = set()

    def take(self, settings: "Settings", document: dict[str, Any]) -> None:
        """Note a verdict that a job has stored; if the disk refused, it is kept here and stored later."""
        if (pending := self._pending.pop(str(document["id"]), None)) is not None and document["verdict"] != "FASTER":
            self._taken_back(pending, document["reason"])
        self._unsaved[str(document["id"])] = settings.paths.data, document
        self.read_anew()
        self._background.start(self.settle())

    def confirm(self, settings: "Settings", document: dict[str, Any], job: str) -> None:
        """Note the verdict on a confirmed gain whose final checks a job still makes; it is in no store."""
        self._pending[str(document["id"])] = _Pending(settings.paths.data, document, job)
        self.read_anew()

    def withdraw(self, job: str) -> None:
        """Take back the gains whose final checks an ended job has not finished."""
        for name, pending in tuple(self._pending.items()):
            if pending.job == job:
                del self._pending[name]
                self._taken_back(pending, "the work ended before its final checks did; judge it again")
                self.read_anew()

    def applied_early(self, verdict: str) -> None:
        """Note that the user has applied a variant before its final checks were over."""
        self._early.add(verdict)

    def _taken_back(self, pending: "_Pending", why: str) -> None:
        evidence = pending.document["evidence"]
        undo = " You have applied it: undo that." if pending.document["id"] in self._early else ""
        self._client.show(f"{evidence['candidate_label']} is taken back: {why}.{undo}")

    def read_anew(self) -> None:
        """Have all standings read again; they are shown as they were until then."""
        self._read = {uri: replace(read, at=-math.inf) for uri, read in self._read.items()}

    def notice(self, text: str) -> None:
        """Tell the user about a problem of a store, once."""
        if text not in self._said:
            self._said.add(text)
            self._client.show(text)

    async def settle(self) -> None:
        """Check that the verdicts reported by jobs are in the store, and save those that are not."""
        for name, (folder, document) in tuple(self._unsaved.items()):
            store = await self._lasting(folder)
            if await asyncio.to_thread(store.find_verdict, name) is None:
                await asyncio.to_thread(store.save_verdict, document)
            if store.lasting and await asyncio.to_thread(store.find_verdict, name) is not None:
                self._unsaved.pop(name, None)
            for notice in store.notices:
                self.notice(notice)

    async def _lasting(self, folder: Path) -> "Store":
        """Return the store; opened again if the disk refused before and may have room now."""
        store = await self._store(folder)
        if not store.lasting:
            again = await asyncio.to_thread(_open_store, folder)
            kept, other = (again, store) if again.lasting else (store, again)
            self._stores[folder] = store = kept
            other.close()
        return store

    def latest(self, document: Document) -> "DocumentStatus | None":
        """Return the last known status of a text, maybe an older one; newer data is read, and lenses refreshed."""
        read = self._read.get(document.uri)
        if document.uri not in self._reading and (read is None or not self._is_fresh(read, document)):
            self._reading.add(document.uri)
            self._background.start(self._refresh(document, read))
        return read.status if read is not None else None

    async def _refresh(self, document: Document, before: "_Read | None") -> None:
        try:
            found = await self.of(document)
        finally:
            self._reading.discard(document.uri)
        if before is None or found != before.status:
            self._client.refresh()

    async def of(self, document: Document) -> "DocumentStatus":
        """Return the status of a text as it is."""
        settings = self._settings.at(document.path)
        store = await self._store(settings.paths.data)
        opened = tuple(self._documents)
        read = self._read.get(document.uri)
        if read is not None and read.changes == store.changes() and self._is_fresh(read, document):
            return read.status
        texts = {d.path: d.text for d in opened if d.on_disk}
        unsaved = [verdict for folder, verdict in self._unsaved.values() if folder == settings.paths.data]
        unsaved += [one.document for one in self._pending.values() if one.folder == settings.paths.data]
        known = self._known.setdefault(settings.paths.data, {})
        found = await asyncio.to_thread(_look, store, known, unsaved, document, texts, settings)
        voiceless: dict[str, str] = {}
        if document.module is not None:
            voiceless = await asyncio.to_thread(_find_voiceless, document, settings)
        status = replace(
            found, untimed=settings.refine.untimed, program=settings.capture.command.strip(), voiceless=voiceless
        )
        self._read[document.uri] = _Read((document, *opened), store.changes(), time.monotonic(), status)
        return status

    async def offer_of(self, document: Document, verdict: str) -> "Offer":
        """Return the variant of a text that has this verdict.

        Raises:
            ConfigurationError: there is no such variant.
        """
        offer = (await self.of(document)).offer(verdict)
        if offer is None:
            raise ConfigurationError("There is no such variant of this text.", document.path, fix="Refine it first.")
        return offer

    async def fixes(self, document: Document, kernel: "Kernel", rule: str) -> list[str]:
        """Return labels of the rewrites that may fix a rule's finding and that apply to a kernel as it is."""
        workload = (await self.of(document)).workload
        if workload is None:
            return []
        settings = self._settings.at(document.path)
        return await asyncio.to_thread(_rewrites_that_fix, document, kernel, workload, rule, settings)

    async def evidence(self, path: Path, verdict: str) -> "Found":
        """Return the evidence of a verdict; the settings at `path` name the store."""
        folder = self._settings.at(path).paths.data
        unsaved = {name: document for name, (_, document) in self._unsaved.items()}
        unsaved |= {name: pending.document for name, pending in self._pending.items()}
        return await asyncio.to_thread(_find_evidence, await self._store(folder), unsaved, verdict)

    def forget(self, uri: str) -> None:
        """Forget a closed text."""
        self._read.pop(uri, None)

    async def close(self) -> None:
        """Close the stores; unsaved verdicts are saved before, if possible."""
        await self.settle()
        for store in self._stores.values():
            store.close()

    def _is_fresh(self, read: "_Read", document: Document) -> bool:
        same = read.opened == (document, *self._documents)
        return same and time.monotonic() - read.at < _FRESH

    async def _store(self, folder: Path) -> "Store":
        async with self._opening:
            if folder not in self._stores:
                self._stores[folder] = await asyncio.to_thread(_open_store, folder)
            return self._stores[folder]


# Their imports take longer than an editor should wait for its server, so they come at the first call.


def _open_store(folder: Path) -> "Store":
    from kernel_lsp.store.store import open_store

    return open_store(folder)


def _look(*given: Any) -> "DocumentStatus":
    from kernel_lsp.lsp.document_status import look

    return look(*given)


def _find_voiceless(*given: Any) -> dict[str, str]:
    from kernel_lsp.lsp.document_status import find_voiceless

    return find_voiceless(*given)


def _rewrites_that_fix(*given: Any) -> list[str]:
    from kernel_lsp.lsp.document_status import rewrites_that_fix

    return rewrites_that_fix(*given)


def _find_evidence(*given: Any) -> "Found":
    from kernel_lsp.lsp.evidence import find_evidence

    return find_evidence(*given)
