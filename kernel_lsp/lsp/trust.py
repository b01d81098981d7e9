"""The folders that the user trusts: only there is anything compiled or run. Elsewhere text is only parsed.

The list is the user's own file, `trusted.json` in the folder for configuration. No project's settings can move it.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs

from kernel_lsp.errors import ConfigurationError


class Trust:
    """The trusted folders, read again when the file changes.

    Attributes:
        file: where they are kept.
        vouched: folders that the client vouches for, and those of files that it has open, in this session only.
        granted: folders that the user trusts in this session only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or platformdirs.user_config_path("kernel-lsp") / "trusted.json"
        self.vouched: frozenset[Path] = frozenset()
        self.granted: frozenset[Path] = frozenset()
        self._stamp: tuple[int, int] | None = None
        self._kept: tuple[Path, ...] = ()
        self._answers: dict[Path, bool] = {}
        self._answered: tuple[object, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the stored folders, in the order in which they were trusted."""
        if (stamp := self._stamp_now()) != self._stamp:
            self._stamp, self._kept = stamp, _read(self.file)
        return self._kept

    def covers(self, path: Path) -> bool:
        """Return True if a file or folder is, or lies in, a trusted folder; links are followed first.

        It is called for each lens of a file, so a result holds until the list changes, for a second at most.
        """
        trusted = self._trusted()
        if self._answered != (now := (trusted, int(time.monotonic()))):
            self._answered = now
            self._answers.clear()
        if path not in self._answers:
            real = Path(os.path.realpath(path))  # unlike `resolve`, it takes a loop of links as it is
            self._answers[path] = any(folder in trusted for folder in (real, *real.parents))
        return self._answers[path]

    def _trusted(self) -> tuple[Path, ...]:
        return (*self.folders, *self.vouched, *self.granted)

    def grant(self, folder: Path) -> None:
        """Trust a folder and all its contents in this session."""
        self.granted |= {folder.resolve()}

    def add(self, folder: Path) -> None:
        """Trust a folder and all its contents from now on.

        Raises:
            ConfigurationError: it is no folder, or the list cannot be written.
        """
        real = folder.resolve()
        if not real.is_dir():
            raise ConfigurationError("There is no such folder.", folder, fix="Name a folder that exists.")
        self._rewrite(lambda kept: [*(k for k in kept if k != real), real])

    def remove(self, folder: Path) -> None:
        """Withdraw the trust from a folder and all folders in it.

        Raises:
            ConfigurationError: a folder that it lies in is trusted, or the list cannot be written.
        """
        real = folder.resolve()
        self.vouched = frozenset(f for f in self.vouched if not f.is_relative_to(real))
        self.granted = frozenset(f for f in self.granted if not f.is_relative_to(real))
        self._rewrite(lambda kept: [k for k in kept if not k.is_relative_to(real)])
        if (above := next((f for f in self._trusted() if real.is_relative_to(f)), None)) is not None:
            message = f"It is still trusted, because it is in {above}."
            raise ConfigurationError(message, folder, fix=f"Withdraw the trust in {above}.")

    def changed(self) -> bool:
        """Return True if the file has changed since it was last read."""
        return self._stamp_now() != self._stamp

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            found = self.file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def _rewrite(self, change: Callable[[tuple[Path, ...]], list[Path]]) -> None:
        guard = self.file.with_suffix(".lock")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with guard.open("a") as lock:  # several servers and the command line may do this at once
                fcntl.flock(lock, fcntl.LOCK_EX)
                folders = [str(folder) for folder in change(_read(self.file))]
                draft = self.file.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps({"folders": folders}, indent=2) + "\n")
                draft.replace(self.file)
        except OSError as error:
            fix = "Check the folder's permissions and room."
            raise ConfigurationError(f"Trust cannot be kept: {error.strerror}.", self.file, fix=fix) from error


def _read(file: Path) -> tuple[Path, ...]:
    """Return the folders in the file; none if it cannot be read, as doubt is no trust."""
    try:
        return tuple(Path(folder) for folder in json.loads(file.read_text())["folders"])
    except (OSError, ValueError, TypeError, KeyError):
        return ()
