"""The settings in force at each file: `config`'s tree, overridden by the client's settings.

The client sends its settings in `initializationOptions` (which may also hold `"trusted": true`), and later in answer to
`workspace/configuration` or with `workspace/didChangeConfiguration`: the tree itself, under `kernel-lsp` or bare; null
sends none. Settings on the server's command line override all others. A wrong value is reported at its place, and the
earlier value stays in force.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import platformdirs
from lsprotocol import types

from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.said_settings import SECTION, said_settings
from kernel_lsp.lsp.uris import uri_of

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.errors import ConfigurationError

_Stamp = tuple[tuple[Path, int], ...]


class ClientSettings:
    """The settings, read again when one of their files changes.

    Attributes:
        vouched: whether the client said `"trusted": true` when it began: it trusts its folders and open files, in this
            session.
        has_own_trust: whether it said `"trusted"` at all.
        user_file: the user's own settings.

    Args:
        client: sends some of the settings, and shows errors in them.
        commanded: settings of the server's command line, with dotted names.
        report: called with a URI, a layer and the diagnostics there.
        changed: called when the client's settings have changed.
    """

    def __init__(
        self,
        client: EditorConnection,
        commanded: Mapping[str, object],
        report: Callable[[str, str, Sequence[types.Diagnostic]], None],
        changed: Callable[[], None],
    ) -> None:
        self._client, self._commanded = client, dict(commanded)
        self._put, self._when_changed = report, changed
        self.vouched = self.has_own_trust = False
        self.user_file = platformdirs.user_config_path(SECTION) / "settings.toml"
        self._options: dict[str, Any] = {}
        self._said: dict[str, Any] = {}
        self._cache: dict[Path, tuple[_Stamp, Settings]] = {}
        self._reported: dict[Path, dict[str, list[types.Diagnostic]]] = {}
        self._shown: set[str] = set()

    def begin(self, options: Any) -> None:
        """Store the settings in `initializationOptions`."""
        if isinstance(options, dict):
            said = cast("dict[str, Any]", options).pop("trusted", None)
            self.vouched, self.has_own_trust = said is True, said is not None
        self._options = said_settings(options)

    def at(self, path: Path) -> "Settings":
        """Return the settings in force at a file. Wrong values are reported once."""
        folder = path.parent
        stamp = self._stamp(folder)
        known = self._cache.get(folder)
        if known is None or known[0] != stamp:
            from kernel_lsp.config.load import load_settings  # takes 0.1 s: not before `initialized`

            merged = {**self._options, **self._said, **self._commanded}
            settings, problems = load_settings(folder, overrides=merged, strict=False, user_file=self.user_file)
            known = self._cache[folder] = stamp, settings
            self._report(folder, problems)
        return known[1]

    async def ask(self) -> None:
        """Ask the client for its settings, if it supports that."""
        workspace = self._client.client_capabilities.workspace
        if workspace is None or not workspace.configuration:
            return
        item = types.ConfigurationItem(section=SECTION)
        answer = await self._client.workspace_configuration_async(types.ConfigurationParams([item]))
        self._take(answer[0] if answer else None)

    async def subscribe(self) -> None:
        """Ask the client to report changes, if it does so only on request."""
        workspace = self._client.client_capabilities.workspace
        change = workspace.did_change_configuration if workspace else None
        if change is None or not change.dynamic_registration:
            return
        options = types.DidChangeConfigurationRegistrationOptions(section=SECTION)
        wanted = types.Registration("settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION, options)
        await self._client.client_register_capability_async(types.RegistrationParams([wanted]))

    async def changed(self, params: types.DidChangeConfigurationParams) -> None:
        """Handle changed client settings; the client may send them, or wait to be asked."""
        workspace = self._client.client_capabilities.workspace
        if workspace is not None and workspace.configuration:
            await self.ask()
        else:
            self._take(params.settings)

    def reload(self) -> None:
        """Drop cached settings, because a settings file may have changed."""
        self._cache.clear()

    def _take(self, said: Any) -> None:
        new = said_settings(said)
        if new == self._said:
            return
        self._said = new
        self._cache.clear()
        self._shown.clear()
        self._when_changed()

    def _stamp(self, folder: Path) -> _Stamp:
        """Return the settings files for a folder, and their modification times."""
        found: list[tuple[Path, int]] = []
        for file in (self.user_file, *(f / "pyproject.toml" for f in (folder, *folder.parents))):
            try:
                found.append((file, file.stat().st_mtime_ns))
            except OSError:
                continue
        return tuple(found)

    def _report(self, folder: Path, problems: "tuple[ConfigurationError, ...]") -> None:
        """Turn problems in files into diagnostics there; show the others as messages, each once."""
        before, now = self._reported.get(folder, {}), dict[str, list[types.Diagnostic]]()
        for problem in problems:
            text = problem.said
            if problem.path is None:
                if text not in self._shown:
                    self._shown.add(text)
                    self._client.show(text)
                continue
            line = (problem.line or 1) - 1
            extent = types.Range(types.Position(line, 0), types.Position(line + 1, 0))
            severity = types.DiagnosticSeverity.Warning
            found = types.Diagnostic(extent, text, severity, code="settings", source=SECTION)
            now.setdefault(uri_of(problem.path), []).append(found)
        self._reported[folder] = now
        for uri in {*before, *now}:
            self._put(uri, f"settings:{folder}", now.get(uri, []))
