"""Requests beyond the protocol: kernels, variants, machine code, the server's state."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp import __version__
from kernel_lsp.compiler.machine_code.opcodes import kind_of
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.check_records import CheckedText
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.documents import LARGEST, TOO_LARGE, Document, Documents
from kernel_lsp.lsp.features.commands import place_of
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.requests import Nothing, OneText, OneVariant, OneVerdict
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.uris import path_of, uri_of
from kernel_lsp.lsp.wire import (
    EvidencePage,
    FileRow,
    FileText,
    GpuName,
    KernelFiles,
    KernelOpcodes,
    KernelRow,
    LastVerdict,
    ListedVariant,
    MachineCodeList,
    Opcodes,
    ServerStatus,
    Variant,
    VariantList,
    VariantTexts,
    extended,
)
from kernel_lsp.lsp.workspace import Folders, Permission
from kernel_lsp.report.titles import speedup_title
from kernel_lsp.source.kernel import Kernel, base_name
from kernel_lsp.source.text import apply_edits

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.lsp.document_status import DocumentStatus
    from kernel_lsp.lsp.evidence import Found
    from kernel_lsp.lsp.overview import KnownFacts
    from kernel_lsp.refine.offers import Offer


class Views:
    """Answers from known results; only machine code is compiled on request."""

    def __init__(
        self,
        documents: Documents,
        folders: Folders,
        settings: ClientSettings,
        permission: Permission,
        analysis: Analysis,
        checks: KnownChecks,
        results: StoredVerdicts,
        edits: Edits,
    ) -> None:
        self._documents, self._folders, self._settings = documents, folders, settings
        self._permission, self._analysis, self._checks = permission, analysis, checks
        self._results, self._edits = results, edits

    @property
    def requests(self) -> dict[str, Callable[[Any], Any]]:
        """Return the handlers by their methods."""
        return {
            "kernelLsp/status": self.status,
            "kernelLsp/kernels": self.kernels,
            "kernelLsp/checks": self.checks,
            "kernelLsp/variants": self.variants,
            "kernelLsp/variant": self.variant,
            "kernelLsp/machineCode": self.machine_code,
            "kernelLsp/opcodes": self.opcodes,
            "kernelLsp/evidence": self.evidence,
        }

    async def evidence(self, given: OneVerdict) -> EvidencePage:
        """Return the evidence of a verdict as a page, which offers the variant if it is for the text as it is."""
        uri = given.text_document and given.text_document.uri
        found = await self._results.evidence(place_of(uri), given.verdict)
        offers: tuple[Offer, ...] = ()
        if uri is not None:
            with suppress(KernelLspError):  # the file is gone, or is not text: then there is nothing to apply it to
                offers = tuple((await self._results.of(self._documents.read(uri))).offers)
        applies = any(offer.verdict.id == found.verdict.id and not offer.pending for offer in offers)
        return await asyncio.to_thread(_as_page, found, applies)

    async def status(self, _: Nothing) -> ServerStatus:
        """Return the state of the server."""
        settings = self._settings.at(next(iter(self._folders.paths), Path.cwd()) / "untitled")
        gpu, model = await asyncio.to_thread(_find_gpu, settings), await asyncio.to_thread(_find_model, settings)
        places = [*(folder / "untitled" for folder in self._folders.paths), *(d.path for d in self._documents)]
        searches = gpu is not None or any(self._settings.at(place).refine.untimed for place in places)
        proposers = tuple(settings.refine.proposers)
        return ServerStatus(__version__, gpu, model, proposers, searches, self._analysis.trouble)

    async def kernels(self, _: Nothing) -> KernelFiles:
        """Return the files with kernels or a plain module in the workspace, and the known facts on each kernel."""
        from kernel_lsp.lsp import overview

        paths = await asyncio.to_thread(overview.kernel_paths, self._folders.paths)
        listed = {uri_of(path): path for path in paths}
        files: list[FileRow] = []
        for uri in dict.fromkeys([*listed, *(d.uri for d in self._documents if d.on_disk)]):
            try:
                if uri in listed and self._is_too_large(uri, listed[uri]):
                    files.append(_unreadable(uri, TOO_LARGE))
                    continue
                document = self._documents.read(uri)
                if not document.kernels and document.module is None:
                    continue
                status = await self._results.of(document)
            except KernelLspError as error:  # the file is gone, or is not text
                if (path := path_of(uri)) is not None and path.is_file():
                    files.append(_unreadable(uri, error.said))
                continue
            known = None
            if document.kernels and self._permission.covers(document):
                known = await asyncio.to_thread(overview.look_at, document, self._settings.at(document.path))
            files.append(self._file(document, status, known))
        return KernelFiles(tuple(files), complete=len(paths) < overview.MOST)

    def _is_too_large(self, uri: str, path: Path) -> bool:
        """Return True if nothing is done with the text, which of a file that is not open is not even read."""
        if (document := self._documents.get(uri)) is not None:
            return document.is_too_large
        with suppress(OSError):  # the file is gone, which reading it says
            return path.stat().st_size > LARGEST
        return False

    def _file(self, document: Document, status: "DocumentStatus", known: "KnownFacts | None") -> FileRow:
        last = status.last
        return FileRow(
            uri=document.uri,
            language=document.kernels[0].language if document.kernels else "",
            trusted=self._permission.covers(document),
            workload=status.workload is not None,
            problem=status.problem,
            measured=status.measured,
            last=LastVerdict(last.id, last.verdict, last.label, last.speedup) if last else None,
            checked=self._checks.found(document),
            passed=self._checks.passed(document),
            module=document.range(document.module).start.line if document.module is not None else None,
            kernels=tuple(_kernel(document, kernel, status, known) for kernel in document.kernels),
        )

    async def checks(self, given: OneText) -> CheckedText:
        """Return the last check of a text, of this session or from the store."""
        document = self._documents.read(given.text_document.uri)
        await self._checks.recall(document)
        return self._checks.of(document)

    async def variants(self, given: OneText) -> VariantList:
        """Return the verified variants of a text."""
        status = await self._results.of(self._documents.read(given.text_document.uri))
        found = [(offer, True) for offer in status.offers] + [(offer, False) for offer in status.older]
        return VariantList(tuple(extended(ListedVariant, _variant(offer), fits=fits) for offer, fits in found))

    async def variant(self, given: OneVariant) -> VariantTexts:
        """Return a variant with the texts that it makes.

        Raises:
            ConfigurationError: there is no such variant.
            SourceError: what was judged does not stand there any more.
        """
        document = self._documents.read(given.text_document.uri)
        offer = await self._results.offer_of(document, given.verdict)
        _, placed = await self._edits.edit_of(document, offer)
        files = tuple(FileText(uri_of(one.file.path), apply_edits(one.file.text, one.edits)) for one in placed)
        return extended(VariantTexts, _variant(offer), creates=offer.creates, files=files)

    async def machine_code(self, given: OneText) -> MachineCodeList:
        """Return the machine code of a text's kernels."""
        return MachineCodeList(await self._analysis.code(self._documents.read(given.text_document.uri)))

    async def opcodes(self, given: OneVariant) -> Opcodes:
        """Return the number of instructions of each kind in the kernels of both sides.

        The judged texts are compiled again, for the GPU of the verdict and with the current launches.
        """

        document = self._documents.read(given.text_document.uri)
        evidence = (await self._results.evidence(document.path, given.verdict)).verdict.evidence
        arch = evidence.device.arch if evidence.device else None
        sides: dict[str, dict[str, Counter[str]]] = {}
        for side in ("baseline", "candidate"):
            text = evidence.sources.get(side)
            if text is None:
                raise ConfigurationError("The verdict's texts were not kept.", document.path)
            for kernel in await self._analysis.code(Document(document.uri, document.path, text, 0, "utf-8"), arch):
                both = sides.setdefault(base_name(kernel.name), {"baseline": Counter(), "candidate": Counter()})
                both[side].update(kind_of(one.opcode) for one in kernel.instructions)
        kernels = tuple(KernelOpcodes(name, **both) for name, both in sides.items())
        return Opcodes(arch, kernels, _instructions_html(kernels, arch))


def _as_page(found: "Found", applies: bool) -> EvidencePage:
    from kernel_lsp.lsp.evidence import as_page  # it brings much with it

    return as_page(found, applies=applies)


def _instructions_html(kernels: tuple[KernelOpcodes, ...], arch: str | None) -> str:
    from kernel_lsp.lsp.evidence import instructions_html  # it brings much with it

    return instructions_html(kernels, arch)


def _unreadable(uri: str, why: str) -> FileRow:
    return FileRow(uri, "", True, False, why, None, None, None, None, None, ())


def _kernel(document: Document, kernel: Kernel, status: "DocumentStatus", known: "KnownFacts | None") -> KernelRow:
    fact = known.facts.get(kernel.name) if known else None
    offers = status.offers_for(kernel.name)
    return KernelRow(
        name=kernel.name,
        line=document.range(kernel.name_span).start.line,
        facts=fact.model_copy(update={"cliffs": ()}) if fact else None,
        drift=tuple(known.drift.get(kernel.name, ())) if known else (),
        best=_variant(offers[0]) if offers else None,
        variants=len(offers),
    )


def _variant(offer: "Offer") -> Variant:
    verdict = offer.verdict
    assert verdict.speedup is not None, "what is offered was timed"
    assert verdict.interval is not None, "what was timed has an interval"
    return Variant(
        verdict=verdict.id,
        label=verdict.evidence.candidate_label,
        title=speedup_title(verdict),
        speedup=verdict.speedup,
        interval=verdict.interval,
        kernels=tuple(kernel.name for kernel in offer.kernels),
        pending=offer.pending,
    )


def _find_model(settings: "Settings") -> str | None:
    from kernel_lsp.model.endpoint import find_endpoint

    try:
        return find_endpoint(settings).model
    except KernelLspError:  # no model runs, or none may be used
        return None


def _find_gpu(settings: "Settings") -> GpuName | None:
    from kernel_lsp.device.choice import choose_gpu

    try:
        gpu = choose_gpu(settings.gpu)
    except ConfigurationError:  # the setting `gpu` names none, which every job reports
        return None
    return GpuName(gpu.name, gpu.arch) if gpu else None
