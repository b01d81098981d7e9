"""Reads a file's text in the last commit."""

import subprocess
from pathlib import Path

from kernel_lsp.errors import SourceError

_SECONDS = 20.0


def committed_text(path: Path) -> str:
    """Return the text of a file in the last commit of its repository.

    Raises:
        SourceError: git is missing, the file is in no repository or not in its last commit, or its text is not UTF-8.
    """
    # A plumbing command: it reads the object and runs neither the repository's filters nor its hooks.
    command = ["git", "-C", str(path.parent), "cat-file", "blob", f"HEAD:./{path.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise SourceError("git is not installed, so there is no last commit.", path, fix="Install git.") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"git does not answer: {error}.", path) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ").splitlines()
        why = said[0] if said else "git does not say why"
        raise SourceError(f"The last commit has no such file: {why}.", path, fix="Commit the file first.")
    try:
        return done.stdout.decode()
    except UnicodeDecodeError:
        raise SourceError("The file of the last commit is not UTF-8.", path) from None
