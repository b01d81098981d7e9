"""Parses numbers with units as people write them: `90s`, `5m`, `2GiB`."""

import re
from typing import Annotated

from pydantic import BeforeValidator

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def parse_duration(text: str) -> float:
    """Return the seconds in `90s`, `1.5m`, `1h30m`, `250ms` or a bare number of seconds.

    Raises:
        ValueError: the text is none of these.
    """
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts: list[tuple[str, str]] = _PART.findall(text)
    if not parts or _PART.sub("", text).strip() or any(unit not in _SECONDS for _, unit in parts):
        raise ValueError(f"'{text}' is not a duration such as 90s, 5m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size(text: str) -> int:
    """Return the bytes in `512MiB`, `2 GiB`, `1.5GB` or a bare number of bytes.

    Raises:
        ValueError: the text is none of these.
    """
    text = text.strip()
    if text.isdecimal():
        return int(text)
    part = _PART.fullmatch(text)
    if part is None or part[2] not in _BYTES:
        raise ValueError(f"'{text}' is not a size such as 512MiB or 2GiB")
    return round(float(part[1]) * _BYTES[part[2]])


Seconds = Annotated[float, BeforeValidator(lambda value: parse_duration(value) if isinstance(value, str) else value)]
"""A duration in seconds; accepts text with a unit."""

Bytes = Annotated[int, BeforeValidator(lambda value: parse_size(value) if isinstance(value, str) else value)]
"""A size in bytes; accepts text with a unit."""
