"""Keeps compilers' builds on disk: the file of one is a line of JSON with its records, then cubin, PTX and TTGIR."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.compiler.toolchain.file_cache import FileCache


class BuildCache:
    """Builds kept in `folder`, at most `limit_bytes` of them."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._files = FileCache(folder, limit_bytes, ".build")

    def get(self, key: str) -> Build | None:
        """Return the build stored under `key`, marked as cached; None if there is none or it is damaged."""
        data = self._files.read(key)
        if data is None:
            return None
        try:
            return replace(_decode(data), cached=True)
        except (ValueError, KeyError, TypeError):
            self._files.drop(key)
            return None

    def put(self, key: str, build: Build) -> None:
        """Store `build` under `key`; do nothing if the disk does not allow it."""
        self._files.write(key, _encode(build))


def _encode(build: Build) -> bytes:
    record = asdict(replace(build, binary=None))
    parts: list[bytes] = []
    if build.binary is not None:
        texts = [None if text is None else text.encode() for text in (build.binary.ptx, build.binary.ttgir)]
        parts = [build.binary.cubin, *(text or b"" for text in texts)]
        record["binary"] = {
            "arch": build.binary.arch,
            "entries": build.binary.entries,
            "kernels": [asdict(kernel) for kernel in build.binary.kernels],
            "cubin": len(build.binary.cubin),
            "texts": [None if text is None else len(text) for text in texts],
        }
    return b"".join((json.dumps(record).encode(), b"\n", *parts))


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
        end = stored["cubin"]
        cubin, texts = payload[:end], list[str | None]()
        for length in stored["texts"]:
            texts.append(None if length is None else payload[end : end + length].decode())
            end += length or 0
        kernels = tuple(_facts(kernel) for kernel in stored["kernels"])
        ptx, ttgir = texts
        binary = Binary(stored["arch"], cubin, ptx, stored["entries"], kernels, ttgir)
    return Build(binary=binary, diagnostics=diagnostics, **record)


def _facts(record: dict[str, Any]) -> KernelFacts:
    for name in ("max_threads", "required_threads"):
        if record[name] is not None:
            record[name] = tuple(record[name])
    record["parameters"] = tuple((offset, size) for offset, size in record["parameters"])
    return KernelFacts(**record)
