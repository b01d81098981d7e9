"""Writing a refined kernel into the user's file, whole or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from kernel_lsp.errors import SourceError


def write_if_unchanged(path: Path, before: str, after: str) -> None:
    """Replace a file's text in one step, keeping its mode; a link is followed and stays a link.

    Args:
        path: the file.
        before: the text that was judged against, which must still be what the file holds.
        after: the new text.

    Raises:
        SourceError: the file holds something else by now, or it cannot be written; it is then as it was.
    """
    target = path.resolve()
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(after.encode())
            os.fchmod(file.fileno(), target.stat().st_mode)
            file.flush()
            os.fsync(file.fileno())
        if target.read_bytes() != before.encode():
            cure = "Refine it again, or take the variant from `kernel-lsp report --json`."
            raise SourceError("the file was changed while it was being refined, so it was left alone", path, cure=cure)
        Path(temporary).replace(target)
    except OSError as error:
        raise SourceError(
            f"the file cannot be written: {error.strerror}", path, cure="Check its folder's rights."
        ) from None
    finally:
        if temporary is not None:
            with suppress(FileNotFoundError):
                Path(temporary).unlink()
