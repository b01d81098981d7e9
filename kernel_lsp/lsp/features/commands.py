"""Commands for every editor, declared in `catalog.COMMANDS`; a handler takes the texts that it is given.

Work that takes long is a job: its command returns the job at once.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Documents
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.texts import OpenTexts
from kernel_lsp.lsp.listing import as_listing
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.rule_pages import RulePages
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.trust import Trust
from kernel_lsp.lsp.uris import path_of, uri_of
from kernel_lsp.lsp.wire import EvidenceFile, FilePath, VerdictEvidence, extended
from kernel_lsp.lsp.workspace import Folders
from kernel_lsp.report.captured_calls import calls_page, of_kernel
from kernel_lsp.source.files import write_new
from kernel_lsp.workload.spec import workload_path

if TYPE_CHECKING:
    from kernel_lsp.lsp.evidence import Found


class ResultCommands:
    """The commands on results."""

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        settings: ClientSettings,
        results: StoredVerdicts,
        edits: Edits,
        analysis: Analysis,
        pages: RulePages,
    ) -> None:
        self._client, self._background, self._documents = client, background, documents
        self._settings, self._results, self._edits = settings, results, edits
        self._analysis, self._pages = analysis, pages

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the handlers by the names of their commands."""
        return {
            "apply": self.apply,
            "difference": self.difference,
            "evidence": self.evidence,
            "draft": self.draft,
            "adopt": self.adopt,
            "captures": self.captures,
            "explain": self.explain,
            "machineCode": self.machine_code,
        }

    async def apply(self, uri: str, verdict: str) -> bool:
        """Have the editor apply a verified variant; return True if it did.

        The user is asked about one whose final checks are under way.
        """
        document = self._documents.read(uri)
        offer = await self._results.offer_of(document, verdict)
        if offer.pending:
            if not await self._edits.may_apply_early(offer):
                return False
            document = self._documents.read(uri)
            offer = await self._results.offer_of(document, verdict)  # it may have been taken back meanwhile
        try:
            applied = await self._edits.apply(document, offer)
            if applied and offer.pending:
                self._results.applied_early(verdict)
            return applied
        except SourceError as error:
            kernel = offer.kernels[0].name if len(offer.kernels) == 1 else None
            self._background.start(self._edits.ask_to_judge_again(document, kernel, error))
            raise protocol.failed(error, told=True) from None

    async def evidence(self, verdict: str, uri: str | None) -> EvidenceFile:
        """Return a verdict's evidence, and show it as a page in the editor if possible."""
        path = place_of(uri)
        found = await asyncio.to_thread(_as_text, await self._results.evidence(path, verdict))
        page = self._settings.at(path).paths.cache / "evidence" / f"{found.name}.md"
        try:
            await asyncio.to_thread(_write, page, found.markdown)
        except OSError as error:
            fix = f"`kernel-lsp report {found.name}` shows it in a terminal."
            raise ConfigurationError(f"The page cannot be written: {error.strerror}.", page, fix=fix) from None
        self._show(page, f"{found.title}: {page}")
        return extended(EvidenceFile, found, path=str(page))

    async def difference(self, uri: str, verdict: str) -> EvidenceFile:
        """Return and show the evidence of a variant, with its difference from the text."""
        return await self.evidence(verdict, uri)

    async def draft(self, uri: str, kernel: str | None) -> FilePath:
        """Write a first workload beside a kernel file that has none, or show the one that is not usable yet."""
        from kernel_lsp.workload.draft import draft_for  # imported here: its patterns are slow to compile

        document = self._documents.read(uri)
        path = workload_path(document.path)
        if not document.on_disk:
            fix = "Save the text as a file first."
            raise SourceError("A workload is drafted beside its kernel, which is not saved.", document.path, fix=fix)
        status = await self._results.of(document)
        if (there := status.draft or status.broken) is not None:
            path = there
        else:
            write_new(path, draft_for(document.source, kernel))
        self._show(path, f"The workload is {path}.")
        return FilePath(str(path))

    async def adopt(self, uri: str, function: str) -> FilePath:
        """Write the capture of a function out as the draft of a workload beside its kernel, and show it."""
        document = self._documents.read(uri)
        captures = (await self._results.of(document)).captures
        capture = next((one for one in captures if one.function == function), None)
        if capture is None:
            fix = "Capture a run of a program that calls it."
            raise SourceError(f"There is no capture of `{function}`.", document.path, fix=fix)
        file = adopted_workload(capture, document.path.parent)
        write_new(file.path, file.text)
        self._show(file.path, f"The draft is {file.path}.")
        return FilePath(str(file.path))

    async def captures(self, uri: str, kernel: str | None) -> FilePath:
        """Return a page of the captured calls that launch a kernel, or any of a file's, and show it."""
        document = self._documents.read(uri)
        captures = (await self._results.of(document)).captures
        names = [one.name for one in document.kernels] if kernel is None else [kernel]
        found = {name: of_kernel(captures, name) for name in names}
        parts = [
            f"# {name}\n\n{calls_page(program, calls, document.text)}"
            for name, programs in found.items()
            for program, calls in programs.items()
        ]
        if not parts:
            fix = "Capture a run of a program that launches it."
            raise SourceError("There is no capture of this kernel.", document.path, fix=fix)
        page = self._settings.at(document.path).paths.cache / "captures" / f"{document.path.name}.md"
        try:
            await asyncio.to_thread(_write, page, "\n\n".join(parts) + "\n")
        except OSError as error:
            fix = "`kernel-lsp capture list` prints them."
            raise ConfigurationError(f"The page cannot be written: {error.strerror}.", page, fix=fix) from None
        self._show(page, f"The captured calls are in {page}.")
        return FilePath(str(page))

    async def explain(self, rule: str) -> FilePath:
        """Return the page of a rule, and show it."""
        page = await asyncio.to_thread(self._pages.write, place_of(None), rule)
        self._show(page, f"The rule is explained in {page}.")
        return FilePath(str(page))

    async def machine_code(self, uri: str, kernel: str | None) -> FilePath:
        """Return a file with the machine code of a text, and show it."""
        document = self._documents.read(uri)
        listing = as_listing(await self._analysis.code(document), kernel)
        page = self._settings.at(document.path).paths.cache / "machine-code" / f"{document.path.name}.nvsass"
        try:
            await asyncio.to_thread(_write, page, listing)
        except OSError as error:
            fix = f"`kernel-lsp facts --sass {document.path.name}` prints it."
            raise ConfigurationError(f"The listing cannot be written: {error.strerror}.", page, fix=fix) from None
        self._show(page, f"The machine code is in {page}.")
        return FilePath(str(page))

    def _show(self, path: Path, said: str) -> None:
        """Show a file in the editor; if that is impossible, show its path."""
        if self._client.shows_documents:
            self._background.start(self._open(path))
        else:
            self._client.show(said, types.MessageType.Info)

    async def _open(self, path: Path) -> None:
        await self._client.window_show_document_async(types.ShowDocumentParams(uri_of(path), take_focus=True))


class TrustCommands:
    """The commands on trusted folders."""

    def __init__(self, folders: Folders, trust: Trust, texts: OpenTexts) -> None:
        self._folders, self._trust, self._texts = folders, trust, texts

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the handlers by the names of their commands."""
        return {"trust": self.trust, "untrust": self.untrust}

    async def trust(self, *names: str) -> list[str]:
        """Trust the folders named by URI or path, else the workspace's; return the folders."""
        folders = self._named(names)
        for folder in folders:
            self._trust.add(folder)
        self._texts.reconsider()
        return [str(folder) for folder in folders]

    async def untrust(self, *names: str) -> list[str]:
        """Withdraw the trust from the folders named, else from the workspace's; return the folders."""
        folders = self._named(names)
        try:
            for folder in folders:
                self._trust.remove(folder)
        finally:
            self._texts.reconsider()
        return [str(folder) for folder in folders]

    def _named(self, names: tuple[str, ...]) -> list[Path]:
        named = [path for name in names if (path := path_of(name) or Path(name)).is_absolute()]
        if len(named) < len(names):
            raise ConfigurationError("A folder is named by its URI or its full path.")
        if found := named or list(self._folders.paths):
            return found
        raise ConfigurationError("No folder is open.", fix="Name the folder to trust.")


def place_of(uri: str | None) -> Path:
    """Return the file whose settings name the store."""
    return (path_of(uri) if uri else None) or Path.cwd() / "untitled"


def _as_text(found: "Found") -> VerdictEvidence:
    from kernel_lsp.lsp.evidence import as_text  # it brings much with it

    return as_text(found)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
