"""Cuts from a file and its headers all that no device code mentions, where the usual slices do not compile.

These keep host code that needs nothing of the host, as far as one file can tell: a structure of types that a header
declares which is not here, for one. It is cut only for a file's facts: what is run and judged is compiled as it stands.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernel_lsp.compiler.headers.prelude import ACCESSOR_HEADER
from kernel_lsp.compiler.headers.user import UserHeader, includes_of
from kernel_lsp.source import macros, slicing
from kernel_lsp.source import outline as outlines
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.macros import find_macros
from kernel_lsp.source.outline import code_only, without_comments
from kernel_lsp.source.slicing import device_slice, find_bases, find_device_macros
from kernel_lsp.source.text import Span

_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_ACCESSOR = re.compile(
    r"\b(?:at|torch)\s*::\s*(?:(?:Generic)?Packed)?TensorAccessor|\b(?:(?:STD_)?TORCH_CHECK|TORCH_INTERNAL_ASSERT)\b"
)
_DIRECTIVE = re.compile(rb"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:el)?if\w*\b((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_SHELL = re.compile(rb"\b(?:inline\s+)?namespace\b[\w:\s]*\{|\bextern\s*\{|\}")


@lru_cache
def cutting_rules(*more: str) -> str:
    """Return a digest of the code that decides what is cut, in `more` files too, since builds that other rules led to
    are worth nothing.
    """
    modules = (slicing.__file__, outlines.__file__, macros.__file__, __file__, *more)
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in modules)).hexdigest()


def bare_slices(
    path: Path, text: str, headers: Sequence[UserHeader], folders: Sequence[Path], asked: frozenset[bytes] = frozenset()
) -> tuple[str, tuple[UserHeader, ...]]:
    """Return a file's device code, and that of its headers, with nothing else than what device code mentions.

    A header of which only namespaces are left, and whose macros nothing mentions, has no other directives than its
    includes of other headers that are here.

    Args:
        path: of the file.
        text: its text.
        headers: all that it includes, directly or not.
        folders: those of CUDA's headers.
        asked: identifiers in the template instances that are asked for.
    """
    files = (UserHeader(path.name, path, text), *headers)
    texts = [file.text for file in files]
    device_macros, bases = find_device_macros(texts), find_bases(texts)
    bodies = _bodies(texts)
    found = [device_slice(text, device_macros=device_macros, bases=bases, asked=asked) for text in texts]
    used, fresh = frozenset[bytes](), _expanded([word for cut in found for word in _words(cut.text)], bodies)
    while fresh:
        used |= fresh
        changed = [at for at, cut in enumerate(found) if cut.wanted(fresh)]
        for at in changed:
            found[at] = device_slice(texts[at], used, device_macros, bases, asked)
        fresh = _expanded([word for at in changed for word in _words(found[at].text)], bodies) - used
    first, *rest = _without_empty(files, [cut.text for cut in found], bodies, folders)
    return first, tuple(replace(header, text=text) for header, text in zip(headers, rest, strict=True))


def accessors_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the header that stands for PyTorch's accessors of tensors and its checks, if device code uses any."""
    return (ACCESSOR_HEADER,) if any(map(_ACCESSOR.search, texts)) else ()


def _without_empty(
    files: Sequence[UserHeader],
    texts: Sequence[str],
    bodies: Mapping[bytes, frozenset[bytes]],
    folders: Sequence[Path],
) -> list[str]:
    """Return texts, those of headers without code whose macros are used nowhere else without conditions and macros."""
    empty = {at for at, text in enumerate(texts) if at and not _SHELL.sub(b"", _code(text)).strip()}
    while True:
        used = _expanded(
            [word for at, text in enumerate(texts) if at not in empty for word in (*_words(text), *_conditions(text))],
            bodies,
        )
        needed = {at for at in empty if not used.isdisjoint(_bodies([texts[at]]))}
        if not needed:
            break
        empty -= needed
    names = {file.name for file in files}
    found = (name for at in empty for name, _ in includes_of(texts[at]))
    kept = {name for name in found if name in names or any((folder / name).is_file() for folder in folders)}
    return [_includes(text, kept) if at in empty else text for at, text in enumerate(texts)]


def _includes(text: str, known: set[str]) -> str:
    """Return a text without directives but for its includes of known headers."""

    def kept(directive: re.Match[bytes]) -> bytes:
        names = [name for name, _ in includes_of(directive[0].decode())]
        return blanked(directive[0]) if known.isdisjoint(names) else directive[0]

    return f"#pragma once\n{_DIRECTIVE.sub(kept, without_comments(text.encode())).decode()}"


def _code(text: str) -> bytes:
    return _DIRECTIVE.sub(lambda directive: blanked(directive[0]), code_only(text.encode()))


def _words(text: str) -> frozenset[bytes]:
    """Return the identifiers in a text's code; those of directives are none."""
    return frozenset(_IDENTIFIER.findall(_code(text)))


def _conditions(text: str) -> frozenset[bytes]:
    """Return the identifiers that a text's conditions ask about."""
    asked = b" ".join(_CONDITION.findall(without_comments(text.encode())))
    return frozenset(_IDENTIFIER.findall(asked))


def _bodies(texts: Sequence[str]) -> dict[bytes, frozenset[bytes]]:
    """Return the macros that some texts define, each with the identifiers in all of its definitions."""
    found: dict[bytes, frozenset[bytes]] = {}
    for text in texts:
        data = without_comments(text.encode())
        directives = (Span(one.start(), one.end()) for one in _DIRECTIVE.finditer(data))
        for name, macro in find_macros(data, directives).items():
            found[name] = found.get(name, frozenset()) | frozenset(_IDENTIFIER.findall(macro.body))
    return found


def _expanded(words: Sequence[bytes], bodies: Mapping[bytes, frozenset[bytes]]) -> frozenset[bytes]:
    """Return words with those of the macros among them."""
    found, fresh = frozenset[bytes](), frozenset(words)
    while fresh:
        found |= fresh
        fresh = frozenset(word for name in fresh & bodies.keys() for word in bodies[name]) - found
    return found
