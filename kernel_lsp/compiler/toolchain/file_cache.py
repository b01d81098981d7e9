"""A cache of files on disk, addressed by a hash of all inputs: builds, and listings of their machine code.

A file appears by rename, so a reader in another process sees all of it or none; a damaged file is deleted and made
anew. The cache only saves time: a full disk or a folder that cannot be written is no error.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_FORMAT = 4
_AFTER_EVICTION = 0.9  # of the limit, so that not every further build evicts again


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Return the content address of a build: SHA-256 over `parts`, each preceded by its length."""
    digest = hashlib.sha256(f"format {_FORMAT}".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class FileCache:
    """Bytes in `folder` under content addresses, at most `limit_bytes`; the least recently used are evicted first.

    `suffix` is the ending of its files; every file in the folder counts towards the limit.
    """

    def __init__(self, folder: Path, limit_bytes: int, suffix: str) -> None:
        self._folder, self._limit, self._suffix = folder, limit_bytes, suffix
        self._size: int | None = None  # estimate of the folder's bytes; other processes may have added to it

    def read(self, key: str) -> bytes | None:
        """Return the bytes stored under `key`; None if there are none or they are damaged."""
        path = self._path(key)
        try:
            digest, _, data = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest().encode() != digest:
            self.drop(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return data

    def write(self, key: str, data: bytes) -> None:
        """Store `data` under `key`; do nothing if the disk does not allow it."""
        path = self._path(key)
        data = hashlib.sha256(data).hexdigest().encode() + b"\n" + data
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
            self._size = (sum(size for _, size, _ in self._entries()) if self._size is None else self._size) + len(data)
            if self._size > self._limit:
                self._evict()
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def drop(self, key: str) -> None:
        """Forget what is stored under `key`."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}{self._suffix}"

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._folder.glob("??/*"):
            with contextlib.suppress(OSError):  # another process may be evicting too
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def _evict(self) -> None:
        entries = sorted(self._entries())
        size = sum(size for _, size, _ in entries)
        if size > self._limit:
            for _, entry_size, path in entries:
                if size <= self._limit * _AFTER_EVICTION:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                size -= entry_size
        self._size = size
