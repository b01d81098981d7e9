"""A folder of results by the hash of all that made them: builds, and what was read from their machine code.

Files appear by rename, so a reader in another process sees a whole one or none; what is damaged is dropped and made
anew. The cache only ever saves time: a full disk or a folder that cannot be written costs nothing but that. The file
of a build is a line of JSON with its records, then the cubin and the PTX.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernel_lsp.compiler.binary import Binary, Build, Diagnostic, KernelFacts, Severity

_FORMAT = 3
_AFTER_EVICTION = 0.9  # of the limit, so that not every further build evicts again


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Content address of a build: SHA-256 over `parts`, each with its length."""
    digest = hashlib.sha256(f"format {_FORMAT}".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class FileCache:
    """Bytes kept in `folder` under content addresses, at most `limit_bytes`; those not asked for the longest go first.

    `suffix` is the ending of its files; all that lies in the folder counts towards the limit.
    """

    def __init__(self, folder: Path, limit_bytes: int, suffix: str) -> None:
        self._folder, self._limit, self._suffix = folder, limit_bytes, suffix
        self._size: int | None = None  # what we think lies there; other processes may have added to it

    def read(self, key: str) -> bytes | None:
        """What is stored under `key`; None if there is nothing or it is damaged."""
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
        """Store `data` under `key`, if that is possible."""
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


class BuildCache:
    """Builds kept in `folder`, at most `limit_bytes` of them."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._files = FileCache(folder, limit_bytes, ".build")

    def get(self, key: str) -> Build | None:
        """The build stored under `key`, marked as cached; None if there is none or it is damaged."""
        data = self._files.read(key)
        if data is None:
            return None
        try:
            return replace(_decode(data), cached=True)
        except (ValueError, KeyError, TypeError):
            self._files.drop(key)
            return None

    def put(self, key: str, build: Build) -> None:
        """Store `build` under `key`, if that is possible."""
        self._files.write(key, _encode(build))


def _encode(build: Build) -> bytes:
    record = asdict(replace(build, binary=None))
    cubin = ptx = b""
    if build.binary is not None:
        cubin, ptx = build.binary.cubin, (build.binary.ptx or "").encode()
        record["binary"] = {
            "arch": build.binary.arch,
            "entries": build.binary.entries,
            "kernels": [asdict(kernel) for kernel in build.binary.kernels],
            "cubin": len(cubin),
            "ptx": None if build.binary.ptx is None else len(ptx),
        }
    return json.dumps(record).encode() + b"\n" + cubin + ptx


def _decode(data: bytes) -> Build:
    body, _, payload = data.partition(b"\n")
    record: dict[str, Any] = json.loads(body)
    stored = record.pop("binary")
    diagnostics = tuple(
        Diagnostic(**(diagnostic | {"severity": Severity(diagnostic["severity"])}))
        for diagnostic in record.pop("diagnostics")
    )
    binary = None
    if stored is not None:
        cubin, ptx = payload[: stored["cubin"]], payload[stored["cubin"] :]
        kernels = tuple(_facts(kernel) for kernel in stored["kernels"])
        text = None if stored["ptx"] is None else ptx.decode()
        binary = Binary(stored["arch"], cubin, text, stored["entries"], kernels)
    return Build(binary=binary, diagnostics=diagnostics, **record)


def _facts(record: dict[str, Any]) -> KernelFacts:
    for name in ("max_threads", "required_threads"):
        if record[name] is not None:
            record[name] = tuple(record[name])
    record["parameters"] = tuple((offset, size) for offset, size in record["parameters"])
    return KernelFacts(**record)
