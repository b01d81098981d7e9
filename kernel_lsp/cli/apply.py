"""Writes a refined kernel into the user's files, all or nothing."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.refine.run import FileChange
from kernel_lsp.source.files import encoded, write_new


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Replace the text of each file in one step, keeping its mode; a link is followed and stays a link.

    No file is touched before all new texts lie on the disk and all old ones were found unchanged. A new file never
    overwrites one.

    Raises:
        SourceError: a file has changed meanwhile, exists where none should, or cannot be written.
    """
    for change in changes:
        if change.before is None:
            write_new(change.path, change.after)
    changes = [change for change in changes if change.before is not None]
    with ExitStack() as cleanup:
        staged: list[tuple[Path, Path]] = []
        for change in changes:
            target = change.path.resolve()
            try:
                staged.append((_stage(target, change.after, cleanup), target))
            except OSError as error:
                message, fix = f"the file cannot be written: {error.strerror}", "Check its folder's rights."
                raise SourceError(message, change.path, fix=fix) from None
        for change, (_, target) in zip(changes, staged, strict=True):
            now = target.read_bytes()
            if now != encoded(change.before or "", now):
                message = "the file was changed while it was being refined, so it was left alone"
                fix = "Refine it again, or take the variant from `kernel-lsp report ID --json`."
                raise SourceError(message, change.path, fix=fix)
        for new, target in staged:
            new.replace(target)


def _stage(target: Path, text: str, cleanup: ExitStack) -> Path:
    """Return a new file beside the target with the text; `cleanup` removes it if it is still there."""
    mode = target.stat().st_mode
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    path = Path(name)
    cleanup.callback(path.unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as file:
        file.write(encoded(text, target.read_bytes()))
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    return path
