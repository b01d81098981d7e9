"""Compiles with NVRTC: cubin, PTX and messages in one call, some 0.05 s for a kernel. Worker processes only.

The C++ and CUDA headers are NVRTC's own if it brings them (13.3 and later), unpacked once per version; before that,
those of the wheels or of an installed toolkit.
"""

import re
import time
from collections.abc import Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.cuda.diagnostics import Locate, has_errors, parse_diagnostics
from kernel_lsp.compiler.cuda.facts import binary_from
from kernel_lsp.compiler.headers.bundled import BundledHeaders
from kernel_lsp.compiler.headers.prelude import HOST_HEADERS, PRELUDE, PRELUDE_NAME
from kernel_lsp.compiler.headers.user import UserHeader
from kernel_lsp.compiler.toolchain.toolkit import header_folders, unpacked_headers
from kernel_lsp.errors import RunnerError

_OPTIONS = (
    "-lineinfo",
    "--ptxas-options=-v",
    f"--pre-include={PRELUDE_NAME}",
    # Host code is blanked, so functions and variables that only it uses would be reported as unused.
    "--diag-suppress=177",
    "--device-as-default-execution-space",  # so that helpers need no `__device__`
)
_WIDE = re.compile(r"\b__u?int128(?:_t)?\b")  # which NVRTC knows only where it is told so
_REGISTER = re.compile(r"^\s*register\s+\w", re.MULTILINE)  # an error of NVRTC's since C++17, where nvcc only warns
_PLAIN_OPTIONS = frozenset(("-std=c++17", "-std=c++20"))
# What may mean another thing where the prelude has found headers of CCCL's, though it compiles without them.
_ASKS_FOR_HEADERS = re.compile(r"__has_include|\bnamespace\s+cuda\b|\bcuda\s*::|CCCL|LIBCUDACXX")


def nvrtc_version() -> str:
    """Return the version of the loaded NVRTC, such as `13.5`.

    Raises:
        RunnerError: its library is missing or cannot be loaded, for which no kernel is to blame.
    """
    try:
        major, minor = _check(nvrtc.nvrtcVersion())
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
        raise RunnerError(
            f"CUDA's compiler library, NVRTC, cannot be loaded: {why}",
            fix="Install it again: `pip install --force-reinstall nvidia-cuda-nvrtc`.",
        ) from error
    return f"{major}.{minor}"


@lru_cache
def include_folders() -> tuple[Path, ...]:
    """Return the folders with CUDA's headers, best first; waits for NVRTC's own to be unpacked."""
    bundled = own_headers().folder()
    return (*((bundled, bundled / "cccl") if bundled else ()), *header_folders())


@lru_cache
def own_headers() -> BundledHeaders:
    """Return NVRTC's own headers.

    Raises:
        RunnerError: see `nvrtc_version`.
    """
    return BundledHeaders(unpacked_headers() / nvrtc_version())


def compile_nvrtc(
    source: str,
    path: str,
    arch: str,
    *,
    names: Sequence[str] = (),
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    headers: Sequence[UserHeader] = (),
    locate: Locate | None = None,
) -> Build:
    """Compile device code.

    Args:
        source: text with its host code blanked.
        path: the user's file; messages and line information carry it.
        arch: `sm_90` and the like.
        names: kernels that launches ask for; template instances (`softmax<float, 256>`) are made on account of this.
        options: further options of NVRTC's.
        include_dirs: the user's include folders.
        headers: texts to be used instead of files of the same name.
        locate: see `parse_diagnostics`.

    Returns:
        A build whose `binary` is None if there were errors. Errors in the toolchain itself are diagnostics too.
    """
    compile_in = partial(_compile, source, path, arch, names=names, options=options, headers=headers, locate=locate)
    if _may_need_no_headers(options, (source, *(header.text for header in headers))):
        build = compile_in(folders=include_dirs)
        if build.binary is not None:
            return build
    return compile_in(folders=(*include_dirs, *include_folders()))


def _may_need_no_headers(options: Sequence[str], texts: Sequence[str]) -> bool:
    """Return True while headers are unpacked, for code that they change nothing in if it compiles without any.

    The prelude declares the same types and macros with and without them.
    """
    if not own_headers().are_under_way() or not _PLAIN_OPTIONS.issuperset(options):
        return False
    return not any(map(_ASKS_FOR_HEADERS.search, texts))


def _compile(
    source: str,
    path: str,
    arch: str,
    *,
    names: Sequence[str],
    options: Sequence[str],
    folders: Sequence[Path],
    headers: Sequence[UserHeader],
    locate: Locate | None,
) -> Build:
    """Compile with headers from these folders alone; see `compile_nvrtc`."""
    start = time.perf_counter()
    instances = list(dict.fromkeys(name for name in names if "<" in name))
    texts = (source, *(header.text for header in headers))
    arguments = [
        f"--gpu-architecture={arch}",
        *_OPTIONS,
        *(["--device-int128"] if any(map(_WIDE.search, texts)) else []),
        *(["--define-macro=register="] if any(map(_REGISTER.search, texts)) else []),
        *options,
        *(f"--include-path={folder}" for folder in folders),
    ]
    virtual = {PRELUDE_NAME: PRELUDE} | HOST_HEADERS | {header.name: header.text for header in headers}
    with _program(source, path, virtual) as program:
        for name in instances:
            _check(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        status, *_ = nvrtc.nvrtcCompileProgram(program, len(arguments), [argument.encode() for argument in arguments])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        ptx = _ptx(program)
        own = {header.name: (str(header.path), header.text) for header in headers}
        diagnostics = tuple(
            diagnostic
            for diagnostic in parse_diagnostics(log, path, source, headers=own, locate=locate, ptx=ptx)
            # A user who defines M_PI makes no mistake.
            if diagnostic.severity is Severity.ERROR or PRELUDE_NAME not in diagnostic.message
        )
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if not has_errors(diagnostics):
                said = nvrtc.nvrtcGetErrorString(status)[1].decode()
                diagnostics = (Diagnostic(path, 1, 1, 1, 1, Severity.ERROR, f"NVRTC failed: {said}"), *diagnostics)
            return Build(None, diagnostics, "nvrtc", time.perf_counter() - start, log=log)
        # An expression that tells overloads apart is no name that a launch would write.
        asked = [name for name in instances if not name.startswith("(")]
        lowered = {name: _check(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in asked}
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    binary = binary_from(arch, cubin, ptx, log, lowered)
    return Build(binary, diagnostics, "nvrtc", time.perf_counter() - start, log=log)


@contextmanager
def _program(source: str, path: str, headers: dict[str, str]) -> Any:
    program = _check(
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            path.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [name.encode() for name in headers],
        )
    )
    try:
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _ptx(program: Any) -> str | None:
    """Return the PTX, also where ptxas refused it; None if compilation stopped before it."""
    status, size = nvrtc.nvrtcGetPTXSize(program)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS or size <= 1:
        return None
    return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)


def _text(size_of: Any, get: Any, program: Any) -> str:
    # NVRTC joins the output of its two stages with a NUL.
    return _bytes(size_of, get, program).replace(b"\0", b"").decode(errors="replace").rstrip(" ")


def _bytes(size_of: Any, get: Any, program: Any) -> bytes:
    size: int = _check(size_of(program))
    # NVRTC writes into this object: one byte more than needed, because Python shares one object per one-byte string.
    buffer = bytes(size + 1)
    _check(get(program, buffer))
    return buffer[:size]


def _check(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if len(values) == 1 else values
