"""The workspace's folders, and changes to files that no editor tells of by itself.

Where the client offers to watch files it does so; elsewhere watchdog does, in threads of its own. The user's settings
and the list of trusted folders lie outside every workspace and are always watched here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types

from kernel_lsp.check.files import HEADERS
from kernel_lsp.lsp.documents import path_of
from kernel_lsp.source.language import suffixes

if TYPE_CHECKING:
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers.api import BaseObserver

    from kernel_lsp.lsp.server import Server

log = logging.getLogger("kernel-lsp")

_SETTLING = 0.1  # seconds in which changes are gathered: a checkout changes many files at once


class Folders:
    """The folders that the client has open, in its order."""

    def __init__(self) -> None:
        self._uris: dict[str, Path] = {}

    @property
    def paths(self) -> tuple[Path, ...]:
        """Their paths."""
        return tuple(self._uris.values())

    def begin(self, params: types.InitializeParams) -> None:
        """The folders at the start: of several ways to say them the newest."""
        if params.workspace_folders is not None:
            self.change(params.workspace_folders, ())
        elif params.root_uri is not None:
            self.change([types.WorkspaceFolder(params.root_uri, "")], ())
        elif params.root_path is not None:
            self._uris[params.root_path] = Path(params.root_path)

    def change(self, added: Iterable[types.WorkspaceFolder], removed: Iterable[types.WorkspaceFolder]) -> None:
        """Folders came and went."""
        for folder in removed:
            self._uris.pop(folder.uri, None)
        for folder in added:
            if (path := path_of(folder.uri)) is not None:
                self._uris[folder.uri] = path


class Watcher:
    """Watches folders with watchdog, and says in the event loop which files changed."""

    def __init__(self, changed: Callable[[list[Path]], None]) -> None:
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._gathered: set[Path] = set()
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, Any] = {}

    def watch(self, folders: Iterable[Path], *, recursive: bool = True) -> None:
        """Watch these folders too. Takes its time: call it in a thread."""
        from watchdog.observers import Observer

        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        for folder in folders:
            try:
                handler = cast("FileSystemEventHandler", _Events(self._event))
                self._watches[folder] = self._observer.schedule(handler, str(folder), recursive=recursive)
            except OSError as error:  # it is gone, or the system has no watches left
                log.warning("%s is not watched: %s", folder, error)

    def unwatch(self, folders: Iterable[Path]) -> None:
        """Watch these folders no more."""
        for folder in folders:
            if self._observer is not None and (watch := self._watches.pop(folder, None)) is not None:
                self._observer.unschedule(watch)

    async def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()
            await asyncio.to_thread(self._observer.join, 1.0)

    def _event(self, path: Path) -> None:
        """Runs in watchdog's thread."""
        if path.suffix in (*_of_code(), ".toml", ".json"):
            self._loop.call_soon_threadsafe(self._gather, path)

    def _gather(self, path: Path) -> None:
        if not self._gathered:
            self._loop.call_later(_SETTLING, self._tell)
        self._gathered.add(path)

    def _tell(self) -> None:
        paths, self._gathered = sorted(self._gathered), set()
        self._changed(paths)


class _Events:
    """What watchdog calls; it looks for nothing but `dispatch`."""

    def __init__(self, tell: Callable[[Path], None]) -> None:
        self._tell = tell

    def dispatch(self, event: Any) -> None:
        """One change; a move has two ends."""
        if event.is_directory or event.event_type in ("opened", "closed_no_write"):
            return
        for name in (event.src_path, getattr(event, "dest_path", "")):
            if name:
                self._tell(Path(name))


async def watch(ls: "Server") -> None:
    """Begin to watch what the client does not."""
    watcher = ls.watcher = Watcher(lambda paths: changed(ls, paths))
    ls.stopping.append(watcher.close)
    own = {folder for folder in (ls.trust.file.parent, ls.settings.user_file.parent) if folder.is_dir()}
    await asyncio.to_thread(watcher.watch, own, recursive=False)
    if ls.trust.changed():  # before it was watched
        ls.texts_changed_meaning()
    workspace = ls.client_capabilities.workspace
    offered = workspace.did_change_watched_files if workspace else None
    if offered is not None and offered.dynamic_registration:
        patterns = [types.FileSystemWatcher(pattern) for pattern in _watched()]
        options = types.DidChangeWatchedFilesRegistrationOptions(patterns)
        wanted = types.Registration("files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await ls.client_register_capability_async(types.RegistrationParams([wanted]))
    else:
        ls.watches_folders = True
        await asyncio.to_thread(watcher.watch, ls.folders.paths)


def changed(ls: "Server", paths: Iterable[Path]) -> None:
    """Files changed on disk: settings, trust, headers or workloads, which say what open texts mean."""
    names = set(paths)
    if any(path.name in ("pyproject.toml", ls.settings.user_file.name) for path in names):
        ls.settings.reload()
        ls.texts_changed_meaning()
        return
    if ls.trust.file in names:
        ls.texts_changed_meaning()
        return
    for document in ls.documents:
        if document.kernels and any(path.suffix in _of_code() and path != document.path for path in names):
            ls.analysis.request(document)


def did_change_watched_files(ls: "Server", params: types.DidChangeWatchedFilesParams) -> None:
    """The client saw changes on disk."""
    changed(ls, [path for event in params.changes if (path := path_of(event.uri)) is not None])


async def did_change_folders(ls: "Server", params: types.DidChangeWorkspaceFoldersParams) -> None:
    """Folders came or went."""
    before = set(ls.folders.paths)
    ls.folders.change(params.event.added, params.event.removed)
    now = set(ls.folders.paths)
    ls.vouch()
    if ls.watches_folders and ls.watcher is not None:
        ls.watcher.unwatch(before - now)
        await asyncio.to_thread(ls.watcher.watch, now - before)
    ls.texts_changed_meaning()


def _of_code() -> tuple[str, ...]:
    """The suffixes of kernel files and of headers that they may include."""
    return tuple(dict.fromkeys((*suffixes(), *HEADERS)))


def _watched() -> tuple[str, ...]:
    """Patterns of the files whose changes matter, as the client takes them."""
    return f"**/*.{{{','.join(suffix[1:] for suffix in _of_code())}}}", "**/pyproject.toml"
