"""Finds and reads the user's own headers, without a compiler."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.compiler.prelude import HALF_HEADER
from kernel_lsp.source.candidate import SourceFile

_TORCH = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](?:torch|ATen|c10)/', re.MULTILINE)
# Host headers that, as PyTorch's, also include CUDA's 16-bit float types, which device code then uses.
_BRINGS_HALVES = re.compile(rf'{_TORCH.pattern}|^[ \t]*#[ \t]*include[ \t]*["<](?:cublas\w*\.h|nccl\.h)', re.MULTILINE)
_STANDARD = re.compile(
    r"[a-z_]+|(?:assert|complex|ctype|errno|inttypes|limits|math|stdarg|stdint|stdio|stdlib|string|time)\.h"
)
_BROUGHT_BY_TORCH = ("array", "functional", "stdexcept", "string", "tuple", "type_traits", "utility", "vector")
_HALF = re.compile(r"\b(?:__half|half)2?\b|\b(?:__)?nv_bfloat16")
TORCH_HALF = re.compile(r"\b(?:c10|at|torch)::(?:Half|BFloat16)\b")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UserHeader:
    """A header of the user's own, under the name in the `#include`."""

    name: str
    path: Path
    text: str


def user_headers(source: SourceFile, folders: Sequence[Path] = ()) -> tuple[UserHeader, ...]:
    """Return all headers that `source` includes, directly or not, from the includer's folder or one of `folders`.

    Headers of the toolkit and the host are left out: the compiler's version identifies them.
    """
    found: dict[tuple[str, Path], UserHeader] = {}
    pending = [(source.path.parent, source.text)]
    while pending:
        folder, text = pending.pop()
        for quoted, angled in INCLUDE.findall(text):
            name = quoted or angled
            path = _resolve(name, [folder, *folders] if quoted else folders)
            if path is None or (name, path) in found:
                continue
            try:
                content = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # the compiler will report it at the right line
            found[name, path] = UserHeader(name, path, content)
            pending.append((path.parent, content))
    return tuple(sorted(found.values(), key=lambda header: (header.name, header.path)))


def sliced_headers(headers: Sequence[UserHeader], slice_device: Callable[[str], str]) -> tuple[UserHeader, ...]:
    """Return `headers` with host code blanked; none if two share a name, which only the file system can tell apart."""
    if len({header.name for header in headers}) < len(headers):
        return ()
    return tuple(UserHeader(header.name, header.path, slice_device(header.text)) for header in headers)


def halves_brought(texts: Sequence[str], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the headers of 16-bit float types that the texts, or names of instances, use and get by host headers.

    PyTorch's types are those of `prelude.HALF_HEADER`, which brings CUDA's too.
    """
    if includes_torch(texts) and any(map(TORCH_HALF.search, (*texts, *names))):
        return (HALF_HEADER,)
    if not any(map(_HALF.search, texts)) or not any(map(_BRINGS_HALVES.search, texts)):
        return ()
    return "cuda_fp16.h", "cuda_bf16.h"


def includes_torch(texts: Sequence[str]) -> bool:
    """Return True if one of the texts includes a header of PyTorch's."""
    return any(map(_TORCH.search, texts))


def standard_headers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the headers of the C and C++ libraries that the texts include, in their order, or that PyTorch's bring."""
    named = [quoted or angled for text in texts for quoted, angled in INCLUDE.findall(text)]
    found = [name for name in named if _STANDARD.fullmatch(name)]
    return tuple(dict.fromkeys([*found, *(_BROUGHT_BY_TORCH if includes_torch(texts) else ())]))


def _resolve(name: str, folders: Sequence[Path]) -> Path | None:
    return next((path.resolve() for folder in folders if (path := folder / name).is_file()), None)
