"""Files on disk: react when they are saved or change, and when folders are added or removed.

The client watches files if it can; else the server does. The user's settings and the list of trusted folders lie
outside every workspace and are always watched here.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.catalog import CHECK
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.features.texts import OpenTexts
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.uris import path_of
from kernel_lsp.lsp.watcher import Watcher
from kernel_lsp.lsp.workspace import Folders, Permission
from kernel_lsp.source.files import source_suffixes


class Files:
    """Watches files."""

    def __init__(
        self,
        client: EditorConnection,
        documents: Documents,
        folders: Folders,
        settings: ClientSettings,
        permission: Permission,
        analysis: Analysis,
        results: StoredVerdicts,
        jobs: Jobs,
        texts: OpenTexts,
    ) -> None:
        self._client, self._documents, self._folders = client, documents, folders
        self._settings, self._permission, self._analysis = settings, permission, analysis
        self._results, self._jobs, self._texts = results, jobs, texts
        self._watcher: Watcher | None = None
        self._watches_folders = False

    async def watch(self) -> None:
        """Start to watch what the client does not."""
        watcher = self._watcher = Watcher(self.changed)
        trust = self._permission.trust
        own = {trust.file.parent, self._settings.user_file.parent}
        for folder in own:  # what is not there yet cannot be watched, and a newcomer has neither
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(watcher.watch, own, recursive=False)
        if trust.changed():  # before the watch began
            self._texts.reconsider()
        workspace = self._client.client_capabilities.workspace
        offered = workspace.did_change_watched_files if workspace else None
        if offered is not None and offered.dynamic_registration:
            sources = ",".join(suffix.removeprefix(".") for suffix in source_suffixes())
            watched = (f"**/*.{{{sources}}}", "**/pyproject.toml")
            patterns = [types.FileSystemWatcher(pattern) for pattern in watched]
            options = types.DidChangeWatchedFilesRegistrationOptions(patterns)
            wanted = types.Registration("files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            await self._client.client_register_capability_async(types.RegistrationParams([wanted]))
        else:
            self._watches_folders = True
            await asyncio.to_thread(watcher.watch, self._folders.paths)
        self._look_again(self._documents)  # a header may have changed before the watch began

    async def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            await self._watcher.close()

    def changed(self, paths: Iterable[Path]) -> None:
        """React to files changed on disk: settings, trust, headers or workloads change the meaning of open texts."""
        names = set(paths)
        if any(path.name in ("pyproject.toml", self._settings.user_file.name) for path in names):
            self._settings.reload()
            self._texts.reconsider()
            return
        if self._permission.trust.file in names:
            self._texts.reconsider()
            return
        sources = {path for path in names if path.suffix in source_suffixes()}
        self._look_again(document for document in self._documents if sources - {document.path})

    def _look_again(self, documents: Iterable[Document]) -> None:
        """Ask for the results of texts anew: they are known unless something that they depend on has changed."""
        for document in documents:
            if document.kernels:
                self._analysis.request(document)

    async def did_save(self, params: types.DidSaveTextDocumentParams) -> None:
        """Check a saved text, if the settings ask for that."""
        document = self._documents.get(params.text_document.uri)
        if document is None or not document.on_disk:
            return
        self._analysis.saved(document)
        self._client.refresh()
        self.changed([document.path])
        wanted = self._settings.at(document.path).editor.check_on_save and document.kernels
        if not wanted or not self._permission.covers(document):
            return
        if (await self._results.of(document)).workload is not None:
            self._jobs.start(JobRequest(CHECK, document, unasked=True))

    def did_change_watched(self, params: types.DidChangeWatchedFilesParams) -> None:
        """React to changes on disk that the client reported."""
        self.changed([path for event in params.changes if (path := path_of(event.uri)) is not None])

    async def did_change_folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        """React to folders added or removed."""
        before = set(self._folders.paths)
        self._folders.change(params.event.added, params.event.removed)
        now = set(self._folders.paths)
        self._permission.vouch(self._settings.vouched)
        for document in self._documents:  # one of a folder that was removed is open still
            self._permission.opened(document)
        if self._watches_folders and self._watcher is not None:
            self._watcher.unwatch(before - now)
            await asyncio.to_thread(self._watcher.watch, now - before)
        self._texts.reconsider()
