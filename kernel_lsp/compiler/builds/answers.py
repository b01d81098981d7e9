"""Caches builds on disk by their inputs, so that an unchanged file is not built, and no process started, again."""

import zlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from kernel_lsp.compiler.builds.built import Built, in_given_terms
from kernel_lsp.compiler.builds.key import build_keys
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.config.settings import Settings
from kernel_lsp.config.variables import named_variables
from kernel_lsp.device.device import Device
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.workload.spec import WorkloadFile

_ANSWERS = ".answer"


class _CachedBuild(msgspec.Struct, frozen=True):
    """The content of a cache file. Raise `format` whenever the meaning of `Built` or of a record in it changes."""

    format: Literal[3]
    built: Built


_DECODER = msgspec.msgpack.Decoder(_CachedBuild)


def cached_build(
    settings: Settings, device: Device, workload: WorkloadFile | None, candidate: Candidate
) -> Built | None:
    """Return the cached build of a candidate; None if any of its inputs has changed or it is no longer cached.

    Starts no process, imports nothing heavy and takes about a millisecond.
    """
    cache = build_files(settings, _ANSWERS)
    for key in _keys(settings, device, workload, candidate) or ():
        if (stored := cache.read(key)) is not None:
            try:
                built = _DECODER.decode(zlib.decompress(stored)).built
            except (msgspec.MsgspecError, zlib.error):  # written by an older version
                cache.drop(key)
                continue
            return in_given_terms(replace(built, build=replace(built.build, cached=True)), candidate)
    return None


def store_build(
    settings: Settings, device: Device, workload: WorkloadFile | None, candidate: Candidate, built: Built
) -> None:
    """Cache a candidate's build for `cached_build`, unless some input's content cannot be determined."""
    keys = _keys(settings, device, workload, candidate)
    if keys is None:
        return
    by_slice, by_file = keys
    sliced = built.build.binary is not None and built.build.way != "nvcc"
    body = msgspec.msgpack.encode(_CachedBuild(3, built))
    build_files(settings, _ANSWERS).write(by_slice if sliced else by_file, zlib.compress(body, 1))


def build_files(settings: Settings, suffix: str) -> FileCache:
    """Return the file cache for builds and listings; `suffix` tells the kinds of content apart."""
    return _build_files(settings.paths.cache / "builds", settings.build.cache_limit, suffix)


@lru_cache
def _build_files(folder: Path, limit: int, suffix: str) -> FileCache:
    return FileCache(folder, limit, suffix)  # one for all callers, since each counts the folder's bytes once


def _keys(
    settings: Settings, device: Device, workload: WorkloadFile | None, candidate: Candidate
) -> tuple[str, str] | None:
    variables = named_variables(settings.runner.environment)
    return build_keys(candidate, workload, device, settings.build.options, settings.build.include_dirs, variables)
