"""Decides where an error of the device code's compiler says that host code or its headers are missing.

The device code is compiled without host code and without host headers. An error that comes of this is not the user's.
"""

import re
from collections.abc import Mapping

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.source.outline import outline
from kernel_lsp.source.slicing import slice_device
from kernel_lsp.source.text import Lines

_NEEDS_HOST = re.compile(
    r"could not open source file|cannot open source file|No such file or directory"
    r'|namespace "(?:std|at|c10|torch|cub|thrust|cuda)" has no member|name must be a namespace'
    r"|must be a class or namespace name"
    r"|not supported when compiling with NVRTC|without an explicit execution space annotations|in JIT mode"
    r'|identifier "(?:std|at|c10|torch|cuda[A-Z]\w*|TORCH_\w+|AT_\w+|C10_\w+)" is undefined'
    r"|^unrecognized option|^invalid value for --gpu-architecture"
    # NVRTC is stricter with C++17, and its 64-bit integers are `long long` where nvcc's are `long`.
    r'|"register" storage class specifier|\(aka "(?:unsigned )?long long'
)
_UNDEFINED = re.compile(r'^identifier "(\w+)" is undefined|incomplete type "(\w+)')
_OF_A_HEADER = re.compile(r"\w+_t|[A-Z][A-Z0-9_]{3,}")  # a type of the C library, a macro
_GNU = re.compile(r'"C"__global__|[{,]\s*\.\w+\s*=')  # `{.x = 1}` in C++17
_DEVICE_WORDS = frozenset((b"__global__", b"__device__"))


def wants_host_code(build: Build, texts: Mapping[str, str]) -> bool:
    """Return True if the first error may come of missing host code, headers or options: another compiler may do better.

    Args:
        build: of the device code.
        texts: the user's file and headers by path, as they are.
    """
    first = next((d for d in build.diagnostics if d.severity is Severity.ERROR), None)
    if first is None:
        return False
    if first.path not in texts or _NEEDS_HOST.search(first.message):
        return True
    text = texts[first.path]
    if not _in_device_function(text, first.line) or any(
        map(_GNU.search, text.splitlines()[first.line - 1 : first.line])
    ):
        return True
    unknown = _UNDEFINED.search(first.message)
    return unknown is not None and _is_cut_away(text, unknown[1] or unknown[2])


def is_hopeless(build: Build, texts: Mapping[str, str]) -> bool:
    """Return True if a build of a whole file failed for something that other template instances do not change."""
    first = next((d for d in build.diagnostics if d.severity is Severity.ERROR), None)
    if build.way != "nvcc" or build.binary is not None or first is None:
        return False
    return first.path not in texts or not _in_device_function(texts[first.path], first.line)


def _in_device_function(text: str, line: int) -> bool:
    """Return True if a line belongs to a kernel or a device function, which can use nothing of the host's."""
    data = text.encode()
    lines = Lines(data)
    for made in outline(data).declarations:
        if lines.position(made.span.start)[0] <= line <= lines.position(made.span.end)[0]:
            return made.body is not None and not _DEVICE_WORDS.isdisjoint(made.words)
    return False


def _is_cut_away(text: str, name: str) -> bool:
    """Return True if a name stands in the host code that was cut away, or is spelt like one of a host header."""
    if _OF_A_HEADER.fullmatch(name):
        return True
    word = re.compile(rf"\b{re.escape(name)}\b")
    return len(word.findall(text)) > len(word.findall(slice_device(text)))
