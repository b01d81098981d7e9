"""Files by the URIs that a client has for them; without the protocol's types, which take long to import."""

from pathlib import Path
from urllib.parse import unquote, urlsplit


def uri_of(path: Path) -> str:
    """Return the URI of a file."""
    return path.absolute().as_uri()


def path_of(uri: str) -> Path | None:
    """Return the file that a URI names; None for other schemes."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or "\0" in (path := unquote(parts.path)):
        return None
    return Path(path) if path.startswith("/") else None
