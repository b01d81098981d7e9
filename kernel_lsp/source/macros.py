"""Finds the macros that a file defines, and expands them as far as finding kernels needs.

This is no preprocessor: conditions are not evaluated, and only the file's own macros are known.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernel_lsp.source.text import Span

_DEFINE = re.compile(rb"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_SPLICE = re.compile(rb"\\\r?\n")
_COMMENT = re.compile(rb"//(?:\\\r?\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_PIECE = re.compile(rb'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*', re.DOTALL)
_BRACKET = re.compile(rb'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[(){}\[\],]', re.DOTALL)
_PARAMETER = re.compile(rb'"(?:\\.|[^"\\])*"|(?P<quote>(?<!#)#\s*)?(?P<name>[A-Za-z_]\w*)', re.DOTALL)
_DEVICE = re.compile(rb"\b__(?:constant|device|global|shared)__\b")
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Macro:
    """One `#define`; `parameters` is None for a macro without parentheses, and `...` is named `__VA_ARGS__`."""

    name: bytes
    parameters: tuple[bytes, ...] | None
    body: bytes


def find_macros(data: bytes, directives: Iterable[Span]) -> dict[bytes, Macro]:
    """Return the macros that these directives of `data` define, by name.

    Of several definitions, as in branches of an `#if` for other compilers, the last one for device code counts, else
    the last one.
    """
    found: dict[bytes, Macro] = {}
    for span in directives:
        match = _DEFINE.match(data, span.start, span.end)
        if match is None:
            continue
        parameters = None
        if match[2] is not None:
            names = (p.strip() for p in _SPLICE.sub(b" ", match[2]).split(b","))
            parameters = tuple(b"__VA_ARGS__" if p == b"..." else p for p in names if p)
        body = _COMMENT.sub(b" ", _SPLICE.sub(b"\n", match[3])).strip()
        known = found.get(match[1])
        if known is None or _DEVICE.search(body) or not _DEVICE.search(known.body):
            found[match[1]] = Macro(match[1], parameters, body)
    return found


def arguments(text: bytes, start: int) -> tuple[list[bytes], int] | None:
    """Return the parts of the parenthesised list at `start`, and the offset after its `)`; None if it is not closed."""
    found: list[bytes] = []
    depth, at = 0, start + 1
    for match in _BRACKET.finditer(text, start):
        mark = match[0]
        if mark in b"([{" and len(mark) == 1:
            depth += 1
        elif mark in (b")", b"]", b"}"):
            depth -= 1
            if depth == 0:
                found.append(text[at : match.start()].strip())
                return found, match.end()
        elif mark == b"," and depth == 1:
            found.append(text[at : match.start()].strip())
            at = match.end()
    return None


def expand(text: bytes, macros: dict[bytes, Macro], hidden: frozenset[bytes] = frozenset()) -> bytes:
    """Return `text` with the file's macros expanded, including `#` and `##`; macros named in `hidden` are kept."""
    out: list[bytes] = []
    at = 0
    if not macros or len(hidden) > _DEEPEST:
        return text
    while match := _PIECE.search(text, at):
        out.append(text[at : match.start()])
        at = match.end()
        macro = macros.get(match[0])
        if macro is None or macro.name in hidden:
            out.append(match[0])
            continue
        values: list[bytes] = []
        if macro.parameters is not None:
            opening = re.compile(rb"\s*\(").match(text, at)
            call = arguments(text, opening.end() - 1) if opening else None
            if call is None:
                out.append(match[0])
                continue
            values, at = call
        out.append(expand(_substitute(macro, values, macros, hidden), macros, hidden | {macro.name}))
    out.append(text[at:])
    return b"".join(out)


def _substitute(macro: Macro, values: list[bytes], macros: dict[bytes, Macro], hidden: frozenset[bytes]) -> bytes:
    """Return the macro's body with its parameters substituted, pasted and quoted."""
    names = macro.parameters or ()
    if names and names[-1] == b"__VA_ARGS__":
        last = len(names) - 1
        values = [*values[:last], b", ".join(values[last:])]
    given = dict(zip(names, values, strict=False))

    def replaced(match: re.Match[bytes]) -> bytes:
        value = given.get(match["name"])
        if value is None:
            return match[0]
        if match["quote"]:
            return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        pasted = body.endswith(b"##", 0, match.start()) or body.startswith(b"##", match.end())
        return value if pasted else expand(value, macros, hidden)

    body = re.sub(rb"\s*##\s*", b"##", macro.body)
    return _PARAMETER.sub(replaced, body).replace(b"##", b"")
