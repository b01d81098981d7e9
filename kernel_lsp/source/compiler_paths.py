"""Reads paths as compilers write them into PTX and line tables."""

import re

_ESCAPE = re.compile(rb'\\(?:([0-3][0-7]{2})|(["\\]))')


def unescaped(written: str) -> str:
    r"""Return a path as it is on disk; LLVM writes each byte outside of ASCII as `\` and three octal digits."""
    return _bytes(written).decode(errors="replace")


def joined(folder: str, name: str) -> str:
    r"""Return the path, as it is on disk, of a file in a line table.

    ptxas takes a `\` for the end of a folder, too, so that it cuts the last character outside of ASCII in two.
    """
    try:
        return f"{_bytes(folder).decode()}/{unescaped(name)}"
    except UnicodeDecodeError:
        return unescaped(rf"{folder}\{name}")


def _bytes(written: str) -> bytes:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]) if found[1] else found[2], written.encode())
