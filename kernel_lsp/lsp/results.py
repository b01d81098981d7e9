"""What the store knows of a text: verified variants to apply, the last verdict, and the workload they rest on.

The event loop never waits for the disk: what is asked for is read in a thread, and kept while neither the text nor the
store has changed.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError, WorkloadError
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.documents import Document
from kernel_lsp.refine.offers import Known, Offer, find_offers
from kernel_lsp.refine.rewrites import CURES, find_rewrites
from kernel_lsp.source.files import language_of
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.store.store import Store, VerdictRow, open_store
from kernel_lsp.workload.spec import WorkloadFile, find_workload

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server

_FRESH = 1.0  # seconds for which a workload on disk is taken to be what it was


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one text.

    Attributes:
        workload: its workload, if it has one that can be used.
        problem: why it has none that can be used; None also where there is simply none.
        offers: variants found faster that are for this text as it is, best first.
        older: variants that were found faster than another version of it, best first.
        last: the latest verdict on a version of it.
        untimed: whether the settings allow a search where there is no GPU.
    """

    workload: WorkloadFile | None = None
    problem: str | None = None
    offers: tuple[Offer, ...] = ()
    older: tuple[Offer, ...] = ()
    last: VerdictRow | None = None
    untimed: bool = False

    def offers_for(self, kernel: str | None) -> list[Offer]:
        """Those that change a kernel."""
        return [o for o in self.offers if kernel is None or any(k.name == kernel for k in o.kernels)]


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read, and for which texts."""

    opened: tuple[Document, ...]
    changes: int
    at: float
    standing: Standing


class Results:
    """The stores that this session reads, and what could not be written to them."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._stores: dict[Path, Store] = {}
        self._opening = asyncio.Lock()
        self._known: dict[Path, Known] = {}
        self._read: dict[str, _Read] = {}
        self._unsaved: dict[str, tuple[Path, dict[str, Any]]] = {}
        self._said: set[str] = set()

    def take(self, settings: Settings, document: dict[str, Any]) -> None:
        """A job has come to a verdict and has stored it; where the disk refused, it is kept here and tried again."""
        self._unsaved[str(document["id"])] = settings.paths.data, document
        self._read.clear()
        self._server.start(self._settle())

    async def _settle(self) -> None:
        """Look whether the verdicts that jobs told of are in the store, and save those that are not."""
        for name, (folder, document) in tuple(self._unsaved.items()):
            store = await self._store(folder)
            if await asyncio.to_thread(store.find_verdict, name) is None:
                await asyncio.to_thread(store.save_verdict, document)
            if await asyncio.to_thread(store.find_verdict, name) is not None:
                self._unsaved.pop(name, None)
            for notice in store.notices:
                if notice not in self._said:
                    self._said.add(notice)
                    self._server.show(notice)

    async def of(self, document: Document) -> Standing:
        """What is known of a text as it is."""
        settings = await self._server.settings.at(document.path)
        store = await self._store(settings.paths.data)
        opened = tuple(self._server.documents)
        read = self._read.get(document.uri)
        if (
            read is not None
            and read.opened == (document, *opened)
            and read.changes == store.changes()
            and time.monotonic() - read.at < _FRESH
        ):
            return read.standing
        texts = {d.path: d.text for d in opened if d.on_disk}
        unsaved = [verdict for folder, verdict in self._unsaved.values() if folder == settings.paths.data]
        known = self._known.setdefault(settings.paths.data, {})
        found = await asyncio.to_thread(_look, store, known, unsaved, document, texts)
        standing = replace(found, untimed=settings.refine.untimed)
        self._read[document.uri] = _Read((document, *opened), store.changes(), time.monotonic(), standing)
        return standing

    async def cures(self, document: Document, kernel: Kernel, rule: str) -> list[str]:
        """Labels of the rewrites that may cure a rule's finding and that apply to a kernel as it is."""
        workload = (await self.of(document)).workload
        language = language_of(document.path, document.text)
        if rule not in CURES or workload is None or language is None:
            return []
        baseline = Target(language, document.source, document.kernels, kernel, workload).baseline
        found = await asyncio.to_thread(lambda: list(find_rewrites(baseline, kernel)))
        return [c.label for c in found if c.origin.removeprefix("rewrite:") in CURES[rule]]

    async def verdict(self, path: Path | None, verdict_id: str) -> tuple[Verdict, str]:
        """A verdict by its id or the beginning of it, and the short name of it.

        Raises:
            ConfigurationError: there is none, or there are several.
        """
        settings = await self._server.settings.at(path or Path.cwd())
        folder = settings.paths.data
        if verdict_id in self._unsaved:
            return Verdict.model_validate(self._unsaved[verdict_id][1]), verdict_id[:8]
        store = await self._store(folder)
        found = store.resolve(verdict_id)
        document = store.find_verdict(found)
        if document is None:
            raise ConfigurationError("The verdict is not in the store any more.")
        return Verdict.model_validate(document), store.short_id(found)

    def forget(self, uri: str) -> None:
        """The text was closed."""
        self._read.pop(uri, None)

    async def close(self) -> None:
        """Let go of the stores."""
        for store in self._stores.values():
            store.close()

    async def _store(self, folder: Path) -> Store:
        async with self._opening:
            if folder not in self._stores:
                self._stores[folder] = await asyncio.to_thread(open_store, folder)
            return self._stores[folder]


def _look(
    store: Store, known: Known, unsaved: list[dict[str, Any]], document: Document, texts: dict[Path, str]
) -> Standing:
    """What is known of a text; runs in a thread."""
    language = language_of(document.path, document.text)
    if language is None:
        return Standing()
    last = next(iter(store.list_verdicts(str(document.path), limit=1)), None)
    try:
        workload = find_workload(document.source, texts=texts)
    except WorkloadError as error:
        return Standing(problem=str(error), last=last)
    if workload is None:
        return Standing(last=last)
    baseline = Target(language, document.source, document.kernels, None, workload).baseline
    verdicts = [v for v in map(Verdict.model_validate, unsaved) if v.evidence.kernel_path == str(document.path)]
    found = find_offers(store, baseline, known, verdicts)
    fitting = tuple(offer for offer in found if offer.may_fit(document.text))
    older = tuple(o for o in found if o not in fitting and not o.is_applied(document.text))
    return Standing(workload, None, fitting, older, last)
