"""The workspace's folders, and the permission to compile and run their texts."""

import os
from collections.abc import Iterable
from pathlib import Path

from lsprotocol import types

from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.trust import Trust
from kernel_lsp.lsp.uris import path_of


class Folders:
    """The folders that the client has open, in its order."""

    def __init__(self) -> None:
        self._uris: dict[str, Path] = {}

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return their paths."""
        return tuple(self._uris.values())

    def begin(self, params: types.InitializeParams) -> None:
        """Read the folders at the start, from the newest of the protocol's fields."""
        if params.workspace_folders is not None:
            self.change(params.workspace_folders, ())
        elif params.root_uri is not None:
            self.change([types.WorkspaceFolder(params.root_uri, "")], ())
        elif params.root_path is not None:
            self._uris[params.root_path] = Path(params.root_path)

    def change(self, added: Iterable[types.WorkspaceFolder], removed: Iterable[types.WorkspaceFolder]) -> None:
        """Handle folders added and removed."""
        for folder in removed:
            self._uris.pop(folder.uri, None)
        for folder in added:
            if (path := path_of(folder.uri)) is not None:
                self._uris[folder.uri] = path


class Permission:
    """Decides for each text if it may be compiled and run.

    Attributes:
        trust: the folders that the user trusts.
        is_the_clients: True if the client has a notion of trust of its own, and shows it to its user.
    """

    def __init__(self, folders: Folders, trust: Trust) -> None:
        self._folders, self.trust = folders, trust
        self._vouches, self._opened = False, frozenset[Path]()
        self.is_the_clients = False

    def covers(self, document: Document) -> bool:
        """Return True if a text may be; one without a file may if the whole workspace may."""
        if document.on_disk:
            return self.trust.covers(document.path)
        return bool(self._folders.paths) and all(map(self.trust.covers, self._folders.paths))

    def folder_of(self, document: Document) -> Path:
        """Return the folder to trust for a text: the workspace's that it lies in, else its own."""
        around = [folder for folder in self._folders.paths if document.path.is_relative_to(folder)]
        return max(around, key=lambda folder: len(folder.parts), default=document.path.parent)

    def vouch(self, vouched: bool) -> None:
        """Trust the workspace's folders and open files in this session if the client `vouched`, else no longer."""
        self._vouches = vouched
        self.trust.vouched = self._opened.union(map(Path.resolve, self._folders.paths)) if vouched else frozenset()

    def opened(self, document: Document) -> None:
        """Note an opened file: a client that vouches does so for what its user opens outside the workspace too."""
        if self._vouches and document.on_disk and not self.covers(document):
            folder = Path(os.path.realpath(document.path)).parent
            self._opened |= {folder}
            self.trust.vouched |= {folder}
