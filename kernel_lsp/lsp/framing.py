"""Read and write messages on a stream as the protocol frames them: headers, an empty line, the body."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

LARGEST_MESSAGE = 64 << 20
"""Bytes; a larger message is read past and refused."""

LARGEST_LINE = 1 << 16
"""Bytes of a header; the limit that a reader is to be made with."""

_HEADER = b"content-length:"


def framed(message: Mapping[str, Any]) -> bytes:
    """Return a message with its header, as bytes."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def read_message(reader: asyncio.StreamReader) -> bytes | int | None:
    """Return the next message; the size alone if it is too large; None when the client is gone.

    Lines that are no header are skipped.
    """
    try:
        length = await _length(reader)
        if length is None or length <= LARGEST_MESSAGE:
            return None if length is None else await reader.readexactly(length)
        left = length
        while left and (chunk := await reader.read(min(left, 1 << 20))):
            left -= len(chunk)
        return length
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def _length(reader: asyncio.StreamReader) -> int | None:
    """Return the length that the next header announces; None at the end of the stream."""
    length: int | None = None
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # a line beyond the reader's limit, which has dropped its beginning
            continue
        if not line:
            return None
        if line.lower().startswith(_HEADER):
            digits = line[len(_HEADER) :].strip()
            length = int(digits) if digits.isdigit() and len(digits) < 19 else None
        elif not line.strip() and length is not None:
            return length
