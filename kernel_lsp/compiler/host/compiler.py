"""Runs the host compiler on C++ texts, with the thin header precompiled once for each version of header and compiler.

Worker processes only. Libraries are cached by the content of the host text alone, so an edit of device code finds its
host part already built.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_lsp.compiler.toolchain.file_cache import FileCache, cache_key
from kernel_lsp.source.outline import without_comments

_HEADERS = Path(__file__).parent / "include" / "kernel_lsp"
_COMPILE = (
    "-std=c++20",
    "-O1",
    "-fPIC",
    "-w",
    "-fdiagnostics-color=never",
    "-fno-gnu-unique",  # a symbol of one library must not be shared with others in the process
    "-fvisibility=hidden",
)
CODE_APART = "-Wl,-z,separate-code"
"""Keeps constants out of memory that may be run; not every machine's linker does so by itself."""
_LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,--build-id=none", "-Wl,--exclude-libs,ALL", CODE_APART)
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Compiled:
    """A shared library, or why there is none.

    Attributes:
        library: the ELF image; None if it did not compile.
        log: the compiler's output.
        seconds: wall time of this call.
        cached: whether it came from the cache.
    """

    library: bytes | None
    log: str
    seconds: float
    cached: bool = False


@lru_cache
def host_compiler() -> tuple[Path, str] | None:
    """Return the host compiler and its version: `CXX`, else g++; None without a GNU compiler."""
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("g++")
    if found is None:
        return None
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return None if "clang" in said else (Path(found), said.splitlines()[0])


@lru_cache
def standard_library(compiler: Path) -> tuple[str, ...]:
    """Return the path of the shared C++ library to link with, as a tuple of one; empty if there is none.

    Some compilers would take the static library. It shares its unique symbols with the process's own, possibly of
    another version, and the process crashes.
    """
    asking = [str(compiler), "-print-file-name=libstdc++.so.6"]
    try:
        said = subprocess.run(asking, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ()
    return (said,) if Path(said).is_absolute() else ()


@lru_cache
def header_texts() -> dict[str, str]:
    """Return the thin header's files by name, including the file with the bodies of its functions."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(_HEADERS.iterdir())}


def prepare_header(folder: Path) -> None:
    """Precompile the thin header into `folder` unless it is there; saves the first extension some seconds."""
    if (found := host_compiler()) is not None:
        _prepared(*found, folder)


def compile_host(
    texts: Sequence[str],
    flags: Sequence[str],
    folder: Path,
    cache: FileCache | None = None,
    headers: Mapping[str, str] | None = None,
) -> Compiled:
    """Compile C++ texts behind the thin header into one library.

    Args:
        texts: each is a translation unit.
        flags: definitions, include folders and the like.
        folder: where the compiled header lies; made at first use where it may be written.
        cache: where libraries are looked up and kept, failures included.
        headers: include name -> text that replaces the file of that name.
    """
    headers = headers or {}
    start = time.perf_counter()
    found = host_compiler()
    if found is None:
        return Compiled(None, "there is no g++", 0.0)
    compiler, version = found
    made_of = (
        "host",
        version,
        *_COMPILE,
        *_LINK,
        *header_texts().values(),
        *flags,
        *headers,
        *map(_essence, headers.values()),
    )
    # A cached library is valid wherever its lines stand in a file; the position of an error is not.
    by_code, by_text = (cache_key((*made_of, *parts)) for parts in (map(_essence, texts), ("text", *texts)))
    if cache is not None and (library := cache.read(by_code)) is not None:
        return Compiled(library, "", time.perf_counter() - start, cached=True)
    if cache is not None and (log := cache.read(by_text)) is not None:
        return Compiled(None, log.decode(), time.perf_counter() - start, cached=True)
    home = _prepared(compiler, version, folder)
    options = [*_COMPILE, *flags, "-include", str((home or _HEADERS) / "host.h")]
    bodies = [] if home else [header_texts()["host.cpp"].replace('#include "host.h"', "")]
    with tempfile.TemporaryDirectory(prefix="host-") as name:
        objects = [str(home / "host.o")] if home else []
        for header, text in headers.items():
            (Path(name) / header).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / header).write_text(text, encoding="utf-8")
        library, log = _compile(compiler, [*texts, *bodies], options, objects, Path(name))
    if cache is not None:
        cache.write(*((by_text, log.encode()) if library is None else (by_code, library)))
    return Compiled(library, log, time.perf_counter() - start)


def _essence(text: str) -> str:
    """Return the part of a text that affects the compiler's output: no comments, empty lines or `#line` directives."""
    if 'R"' in text:
        return text
    lines = without_comments(text.encode()).decode().splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip() and not line.startswith("#line "))


def _compile(
    compiler: Path, texts: Sequence[str], options: Sequence[str], ready: Sequence[str], folder: Path
) -> tuple[bytes | None, str]:
    objects = list(ready)
    running: list[subprocess.Popen[str]] = []
    for number, text in enumerate(texts):
        source, made = folder / f"unit{number}.cpp", folder / f"unit{number}.o"
        source.write_text(text, encoding="utf-8")
        running.append(_start([str(compiler), *options, "-c", str(source), "-o", str(made)], folder))
        objects.append(str(made))
    said = [_end(process) for process in running]
    if any(process.returncode for process in running):
        return None, "".join(said)
    library = folder / "library.so"
    linking = _start([str(compiler), *_LINK, *objects, *standard_library(compiler), "-o", str(library)], folder)
    log = _end(linking)
    return (None, log) if linking.returncode else (library.read_bytes(), "")


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0] + f"\nerror: the host compiler took more than {_SECONDS:.0f} s"


def _prepared(compiler: Path, version: str, folder: Path) -> Path | None:
    """Return the folder with the precompiled header and the object of its functions; None if it cannot be written."""
    home = folder / f"header-{cache_key((version, *_COMPILE, *header_texts().values()))[:20]}"
    if (home / "host.o").is_file():
        return home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="header-new-") as name:
            fresh = Path(name) / "made"
            fresh.mkdir()
            for file, text in header_texts().items():
                (fresh / file).write_text(text, encoding="utf-8")
            for what in (["-x", "c++-header", "host.h", "-o", "host.h.gch"], ["-c", "host.cpp", "-o", "host.o"]):
                process = _start([str(compiler), *_COMPILE, *what], fresh)
                _end(process)
                if process.returncode:
                    return None
            fresh.rename(home)
    except OSError:  # another process was faster, or the folder cannot be written
        pass
    return home if (home / "host.o").is_file() else None
