"""Cuts the messages of ptxas out of what Triton writes around them for its own developers."""

import re

_SAID = re.compile(r"^ptxas[^:\n]*: *(.+?) *$", re.MULTILINE)
_NOT_ASCII = "non-ASCII character"
_ABORTED = "Ptx assembly aborted due to errors"


def words_of_ptxas(error: str, file: str) -> str:
    """Return the messages in an error of Triton's about ptxas, as sentences; `file` is the kernel file's name.

    Triton notes each line's file by its name in the PTX, as a comment, and ptxas reads none that is not ASCII: such a
    file compiles nowhere.
    """
    said = [message for message in _SAID.findall(error) if message != _ABORTED]
    if any(_NOT_ASCII in message for message in said):
        renamed = "the file whose name is not ASCII" if file.isascii() else f"{file!r}: its name is not ASCII"
        return f"ptxas cannot read the code that Triton makes of this, here or on a GPU. Rename {renamed}."
    return f"ptxas: {'; '.join(said)}" if said else error.strip()
