"""Requests of clients that show more than the protocol knows: kernels, variants, machine code, the state."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp import __version__
from kernel_lsp.compiler.opcodes import kind_of
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.documents import Document, Documents, uri_of
from kernel_lsp.lsp.features.commands import place_of
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.parameters import Parameters
from kernel_lsp.lsp.results import Results
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.workspace import Folders, Permission
from kernel_lsp.report.titles import speedup_title
from kernel_lsp.source.text import apply_edits

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.lsp.overview import Known
    from kernel_lsp.lsp.standing import Standing
    from kernel_lsp.refine.offers import Offer

Json = dict[str, Any]


class Views:
    """Answers from what is known; only machine code is compiled for it."""

    def __init__(
        self,
        documents: Documents,
        folders: Folders,
        settings: ClientSettings,
        permission: Permission,
        analysis: Analysis,
        results: Results,
        edits: Edits,
    ) -> None:
        self._documents, self._folders, self._settings = documents, folders, settings
        self._permission, self._analysis = permission, analysis
        self._results, self._edits = results, edits

    @property
    def requests(self) -> dict[str, Callable[[Any], Any]]:
        """The handlers by their methods."""
        return {
            "kernelLsp/status": self.status,
            "kernelLsp/kernels": self.kernels,
            "kernelLsp/variants": self.variants,
            "kernelLsp/variant": self.variant,
            "kernelLsp/machineCode": self.machine_code,
            "kernelLsp/opcodes": self.opcodes,
            "kernelLsp/evidence": self.evidence,
        }

    async def evidence(self, params: Any) -> Json:
        """`{verdict, textDocument?: {uri}}`: its `name`, `title`, `markdown`, whole `verdict` and `turns`."""
        given = Parameters(params)
        return await self._results.evidence(place_of(given.optional_uri()), given.text("verdict"))

    async def status(self, _: Any) -> Json:
        """The state of the server."""
        settings = self._settings.at(next(iter(self._folders.paths), Path.cwd()) / "untitled")
        gpu, model = await asyncio.to_thread(_find_gpu, settings), await asyncio.to_thread(_find_model, settings)
        return {"version": __version__, "gpu": gpu, "model": model, "proposers": settings.refine.proposers}

    async def kernels(self, _: Any) -> Json:
        """Nothing is given: `files` with kernels in the workspace, and what is known of each kernel."""
        from kernel_lsp.lsp import overview

        paths = await asyncio.to_thread(overview.kernel_paths, self._folders.paths)
        files: list[Json] = []
        for uri in dict.fromkeys([*map(uri_of, paths), *(d.uri for d in self._documents if d.on_disk)]):
            try:
                document = self._documents.read(uri)
                if not document.kernels:
                    continue
                standing = await self._results.of(document)
            except KernelLspError:  # it is gone, or is not text
                continue
            known = None
            if self._permission.covers(document):
                known = await asyncio.to_thread(overview.look_at, document, self._settings.at(document.path))
            files.append(_file(document, standing, known))
        return {"files": files, "complete": len(paths) < overview.MOST}

    async def variants(self, params: Any) -> Json:
        """`{textDocument: {uri}}`: its verified `variants`, best first; `fits` says which are for the text as it is."""
        document = self._documents.read(Parameters(params).uri())
        standing = await self._results.of(document)
        found = [(offer, True) for offer in standing.offers] + [(offer, False) for offer in standing.older]
        return {"variants": [_variant(offer) | {"fits": fits} for offer, fits in found]}

    async def variant(self, params: Any) -> Json:
        """A variant, and `files`, each `{uri, text}` as the variant would have them.

        `creates` says that its one file is not there yet.

        Raises:
            ConfigurationError: there is no such variant.
            SourceError: what was judged does not stand there any more.
        """
        document = self._documents.read(Parameters(params).uri())
        standing = await self._results.of(document)
        offer = standing.offer(Parameters(params).text("verdict"))
        if offer is None:
            raise ConfigurationError("There is no such variant of this text.", document.path, cure="Refine it first.")
        _, placed = await self._edits.edit_of(document, offer)
        files = [{"uri": uri_of(one.file.path), "text": apply_edits(one.file.text, one.edits)} for one in placed]
        return _variant(offer) | {"creates": offer.creates, "files": files}

    async def machine_code(self, params: Any) -> Json:
        """`{textDocument: {uri}}`: the `kernels` of the first architecture, see `kinds.analyse.Code`."""
        document = self._documents.read(Parameters(params).uri())
        return {"kernels": await self._analysis.code(document)}

    async def opcodes(self, params: Any) -> Json:
        """`{textDocument: {uri}, verdict}`: how many instructions of each kind the kernels of both sides have.

        The judged texts are compiled again for the GPU that the verdict is of, with the launches as they are now.
        """
        from kernel_lsp.check.places import base_name  # it brings much with it

        document = self._documents.read(Parameters(params).uri())
        found = await self._results.evidence(document.path, Parameters(params).text("verdict"))
        evidence = found["verdict"]["evidence"]
        arch = evidence["device"]["arch"] if evidence["device"] else None
        sides: dict[str, dict[str, Counter[str]]] = {}
        for side in ("baseline", "candidate"):
            text = evidence["sources"].get(side)
            if text is None:
                raise ConfigurationError("The verdict's texts were not kept.", document.path)
            for kernel in await self._analysis.code(Document(document.uri, document.path, text, 0, "utf-8"), arch):
                counted = sides.setdefault(base_name(kernel["name"]), {}).setdefault(side, Counter())
                counted.update(kind_of(one["opcode"]) for one in kernel["instructions"])
        return {"arch": arch, "kernels": [{"name": name} | counted for name, counted in sides.items()]}


def _file(document: Document, standing: "Standing", known: "Known | None") -> Json:
    last = standing.last
    rows: list[Json] = []
    for kernel in document.kernels:
        fact = known.facts.get(kernel.name) if known else None
        offers = standing.offers_for(kernel.name)
        rows.append(
            {
                "name": kernel.name,
                "line": document.range(kernel.name_span).start.line,
                "facts": fact.model_dump(mode="json", exclude={"cliffs"}) if fact else None,
                "drift": [*known.drift.get(kernel.name, ())] if known else [],
                "best": _variant(offers[0]) if offers else None,
                "variants": len(offers),
            }
        )
    return {
        "uri": document.uri,
        "language": document.kernels[0].language,
        "trusted": known is not None,
        "workload": standing.workload is not None,
        "problem": standing.problem,
        "measured": standing.measured,
        "last": {"verdict": last.id, "outcome": last.verdict, "label": last.label, "speedup": last.speedup}
        if last
        else None,
        "kernels": rows,
    }


def _variant(offer: "Offer") -> Json:
    verdict = offer.verdict
    return {
        "verdict": verdict.id,
        "label": verdict.evidence.candidate_label,
        "title": speedup_title(verdict),
        "speedup": verdict.speedup,
        "interval": verdict.interval,
        "kernels": [kernel.name for kernel in offer.kernels],
    }


def _find_model(settings: "Settings") -> str | None:
    from kernel_lsp.model.endpoint import find_endpoint

    try:
        return find_endpoint(settings).model
    except KernelLspError:  # none runs, or none may be asked
        return None


def _find_gpu(settings: "Settings") -> Json | None:
    from kernel_lsp.device.choice import choose_gpu

    try:
        gpu = choose_gpu(settings.gpu)
    except ConfigurationError:  # none is called so, which every job says
        return None
    return {"name": gpu.name, "arch": gpu.arch} if gpu else None
