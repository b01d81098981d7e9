"""A folder of builds by the hash of all that made them.

One file holds one build: a line of JSON with its records, then the cubin and the PTX. Files appear by rename, so a
reader in another process sees a whole one or none; what is damaged is dropped and built anew. The cache only ever
saves time: a full disk or a folder that cannot be written costs nothing but that.
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

from kernel_lsp.build.binary import Binary, Build, Diagnostic, KernelFacts, Severity

_FORMAT = 1
_SUFFIX = ".build"
_AFTER_EVICTION = 0.9  # of the limit, so that not every further build evicts again


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Content address of a build: SHA-256 over `parts`, each with its length."""
    digest = hashlib.sha256(f"format {_FORMAT}".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class BuildCache:
    """Builds kept in `folder`, at most `limit_bytes` of them; those not asked for the longest go first."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._size: int | None = None  # what we think lies there; other processes may have added to it

    def get(self, key: str) -> Build | None:
        """The build stored under `key`, marked as cached; None if there is none or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            build = _decode(data)
        except (ValueError, KeyError, TypeError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return replace(build, cached=True)

    def put(self, key: str, build: Build) -> None:
        """Store `build` under `key`, if that is possible."""
        data = _encode(build)
        path = self._path(key)
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

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}{_SUFFIX}"

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
    record["payload"] = hashlib.sha256(cubin + ptx).hexdigest()
    body = json.dumps(record).encode()
    return hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n" + cubin + ptx


def _decode(data: bytes) -> Build:
    header, _, payload = data.partition(b"\n")
    digest, _, body = header.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("damaged header")
    record: dict[str, Any] = json.loads(body)
    if hashlib.sha256(payload).hexdigest() != record.pop("payload"):
        raise ValueError("damaged payload")
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
