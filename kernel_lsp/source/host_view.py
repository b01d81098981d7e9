"""Turns the host code of a CUDA file into plain C++: the counterpart of `slicing`.

Kernels become stubs that pass on their arguments, device functions are dropped unless host code names them, and
launches become calls: `k<T><<<grid, block>>>(x)` turns into a configuration followed by `k<T>(x)`. So templates,
overloads, default arguments and conversions follow the rules of C++ itself, as they do under nvcc. Line numbers do not
change.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.macros import Macro, expand, find_macros
from kernel_lsp.source.outline import Declaration, code_only, outline
from kernel_lsp.source.text import Span

_DEVICE = re.compile(rb"\b__(?:global|device|constant|shared|managed)__\b")
_VARIABLE = frozenset((b"__constant__", b"__shared__", b"__managed__"))
_NAMES_OTHERS = frozenset((b"using", b"typedef", b"namespace", b"enum", b"static_assert", b"extern"))
_FOR_BOTH = frozenset((b"__host__", b"constexpr", b"consteval"))
_TYPES = frozenset((b"struct", b"class", b"union"))
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_INCLUDE = re.compile(rb'\s*#\s*include\s*[<"]([^>"\n]*)[>"]')
# Headers that the thin header replaces, or that only device code can use. Of host libraries the include is dropped too:
# a call is then a compiler error, which names what is missing.
_HEADERS = re.compile(
    rb"(?:torch|ATen|c10|caffe2|pybind11|cub|thrust|cooperative_groups|nv|cuda)/.*|cu(?:da|blas|dnn|fft|sparse|solver|rand)"
    rb"\w*\.h(?:pp)?|(?:cooperative_groups|mma|math_constants|math_functions|vector_types|driver_types|sm_\w+)\.h|device_\w+\.h"
)
_DEFINE = re.compile(rb"\s*#\s*define\b")
_BEFORE = re.compile(rb"(?:\s|\\\r?\n)*\Z")
_WORD_BEFORE = re.compile(rb"[A-Za-z_]\w*\Z|\d\w*\Z")
_OPENING = {b")": b"(", b"]": b"[", b">": b"<", b"}": b"{"}


class HostViewError(ValueError):
    """Host and device code cannot be separated; the message says why."""


@dataclass(slots=True)
class _Part:
    """A declaration of device code: its names, and its replacement if host code uses one of them."""

    span: Span
    names: frozenset[bytes]
    kept: bytes
    wanted: bool = False


def host_view(text: str, wanted: Collection[str] | None = None) -> str:
    """Return `text` as C++ for the host, to be compiled after the thin header; line numbers do not change.

    Args:
        text: a CUDA file, or a header of one.
        wanted: names of the functions and variables to keep, with all that they use, so that a
            program's `main` with its libraries does not matter. None keeps all host code.

    Raises:
        HostViewError: the text alone does not suffice; a compiler that knows CUDA is needed.
    """
    data = text.encode()
    read = outline(data)
    macros = find_macros(data, read.directives)
    kernels = {kernel.span.start: kernel for kernel in find_cuda_kernels(text, Path())}
    parts = [part for made in read.declarations if (part := _part(data, made, kernels, macros)) is not None]
    defined: dict[Span, tuple[bytes, frozenset[bytes]]] = {}
    names = frozenset[bytes]()
    if wanted is not None:
        names = frozenset(name.rpartition("::")[2].encode() for name in wanted)
        defined = _definitions(data, read.directives)
        device = {part.span for part in parts}
        loose = [(made, _said_by(made)) for made in read.declarations if made.span not in device and _can_go(made)]
        parts += [_Part(m.span, said, data[m.span.start : m.span.end]) for m, said in loose if not said & names]
    out = _without(data, read.directives, parts)
    waiting = [part for part in parts if not part.wanted]
    while waiting:
        mentioned = _words_outside(out, defined) | names
        mentioned |= {word for part in parts if part.wanted for word in _IDENTIFIER.findall(code_only(part.kept))}
        mentioned = _with_macros(mentioned, defined)
        fresh = [part for part in waiting if not part.names.isdisjoint(mentioned)]
        if not fresh:
            break
        for part in fresh:
            part.wanted = True
        waiting = [part for part in waiting if not part.wanted]
    for part in sorted((part for part in parts if part.wanted), key=lambda part: part.span, reverse=True):
        out = out[: part.span.start] + part.kept + out[part.span.end :]
    return with_launches_called(out).decode()


def _definitions(data: bytes, directives: Iterable[Span]) -> dict[Span, tuple[bytes, frozenset[bytes]]]:
    """Return each `#define` -> the macro's name and the words in its body."""
    found: dict[Span, tuple[bytes, frozenset[bytes]]] = {}
    for span in directives:
        if _DEFINE.match(data, span.start, span.end):
            _, name, *said = _IDENTIFIER.findall(data, span.start, span.end)
            found[span] = name, frozenset(said)
    return found


def _words_outside(out: bytes, definitions: Collection[Span]) -> set[bytes]:
    """Return the words of host code outside these macro definitions."""
    code = bytearray(code_only(out))
    for span in definitions:
        code[span.start : span.end] = blanked(bytes(code[span.start : span.end]))
    return set(_IDENTIFIER.findall(bytes(code)))


def _with_macros(mentioned: set[bytes], definitions: Mapping[Span, tuple[bytes, frozenset[bytes]]]) -> set[bytes]:
    """Return these words, and the words in the bodies of macros among them."""
    found: set[bytes] = set()
    fresh = mentioned
    while fresh:
        found |= fresh
        fresh = {word for name, said in definitions.values() if name in fresh for word in said} - found
    return found


def _can_go(made: Declaration) -> bool:
    """Return True if a declaration is of functions or variables, which may go if nothing names them."""
    return not _is_type(made) and not made.macro_call and not made.words & _NAMES_OTHERS


def _said_by(made: Declaration) -> frozenset[bytes]:
    """Return the names that a declaration of a function or of variables introduces."""
    if made.declarator is not None:
        return _names(made)
    words = [*(token.text for token in made.head), b";"]
    return frozenset(
        a for a, b in pairwise(words) if _IDENTIFIER.fullmatch(a) and b[:1] in (b";", b",", b"=", b"[", b"{", b"(")
    )


def _without(data: bytes, directives: Iterable[Span], parts: Iterable[_Part]) -> bytes:
    """Return `data` with all device code and all replaced headers blanked."""
    out = bytearray(data)
    for span in directives:
        line = data[span.start : span.end]
        if (match := _INCLUDE.match(line)) and _HEADERS.fullmatch(match[1]):
            out[span.start : span.end] = blanked(line)
    for part in parts:
        piece = data[part.span.start : part.span.end]
        out[part.span.start : part.span.end] = blanked(piece)
        for span in directives:  # conditions must stay balanced, and macros may serve host code too
            if part.span.holds(span):
                out[span.start : span.end] = data[span.start : span.end]
    return bytes(out)


def _part(data: bytes, made: Declaration, kernels: dict[int, Kernel], macros: dict[bytes, Macro]) -> _Part | None:
    """Return the part of a declaration that is device code; None for host code."""
    piece = data[made.span.start : made.span.end]
    if made.macro_call in macros:
        return _expanded(data, made, macros)
    words = set(made.words)
    for name in made.words & macros.keys():
        words |= set(_IDENTIFIER.findall(expand(name, macros)))
    if words & _VARIABLE or (b"__device__" in words and made.declarator is None and not _is_type(made)):
        return _Part(made.span, frozenset(), b"")
    if _is_type(made):
        if not _DEVICE.search(code_only(piece)):
            return None
        return _Part(made.span, _names(made), _type(data, made))
    if b"__global__" in words:
        if made.body is None:
            return _Part(made.span, _names(made), piece)
        kernel = kernels.get(made.span.start)
        if kernel is None:
            raise HostViewError("a kernel's head cannot be read")
        return _Part(made.span, _names(made), _with_body(data, made, _stub(kernel)))
    if b"__device__" in words:
        keeps = made.body is None or words & _FOR_BOTH
        return _Part(made.span, _names(made), piece if keeps else _with_body(data, made, b""))
    return None


def _expanded(data: bytes, made: Declaration, macros: dict[bytes, Macro]) -> _Part | None:
    """Return a macro's call as device code, with its expansion; None if that is host code."""
    expansion = expand(data[made.head[0].start : made.head[1].end], macros)
    if not _DEVICE.search(expansion):
        return None
    if made.body is not None:
        expansion += b"{}"
    inner = outline(expansion)
    kernels = {kernel.span.start: kernel for kernel in find_cuda_kernels(expansion.decode(), Path())}
    out, names, at = b"", set[bytes](), 0
    for each in inner.declarations:
        part = _part(expansion, each, kernels, {})
        if part is not None:
            out += expansion[at : each.span.start] + part.kept
            at = each.span.end
            names |= part.names
    lines = data.count(b"\n", made.span.start, made.span.end)
    # Other macros may also paste its name together.
    return _Part(made.span, frozenset(names), out + expansion[at:] + b"\n" * lines, wanted=True)


def _stub(kernel: Kernel) -> bytes:
    """Return the body of a kernel's host stub, which passes on the addresses of its arguments."""
    for parameter in kernel.parameters:
        if not parameter.name or "..." in parameter.type:
            raise HostViewError(f"a parameter of the kernel `{kernel.name}` has no name of its own")
    places = ", ".join(f"(void*)&{parameter.name}" for parameter in kernel.parameters) or "nullptr"
    return f" void* kernel_lsp_[] = {{{places}}}; ::kernel_lsp::launch_this(kernel_lsp_); ".encode()


def _with_body(data: bytes, made: Declaration, body: bytes) -> bytes:
    assert made.body is not None
    inside = data[made.body.start + 1 : made.body.end - 1]
    head = data[made.span.start : made.body.start]
    return head + b"{" + body + b"\n" * inside.count(b"\n") + b"}" + data[made.body.end : made.span.end]


def _type(data: bytes, made: Declaration) -> bytes:
    """Return a type whose device-only member functions have no bodies."""
    braces = next((token for token in made.head if token.text == b"{}"), None)
    if braces is None:
        return data[made.span.start : made.span.end]
    out, at = b"", made.span.start
    for member in outline(data, Span(braces.start + 1, braces.end - 1)).declarations:
        replaced: bytes | None = None
        if _is_type(member):
            replaced = _type(data, member)
        elif member.body is not None and b"__device__" in member.words and not member.words & _FOR_BOTH:
            replaced = _with_body(data, member, b"")
        if replaced is not None:
            out += data[at : member.span.start] + replaced
            at = member.span.end
    return out + data[at : made.span.end]


def _is_type(made: Declaration) -> bool:
    first = next((t.text for t in made.head if t.text not in (b"template", b"typedef")), b"")
    return first in _TYPES and made.body is None and b"{}" in made.words


def _names(made: Declaration) -> frozenset[bytes]:
    """Return the names by which other code refers to a declaration."""
    if made.declarator is not None and not _is_type(made):
        return frozenset((made.head[made.declarator[0]].text,))
    words = [token.text for token in made.head]
    start = next((i for i, word in enumerate(words) if word in _TYPES), None)
    if start is None:
        raise HostViewError("a declaration cannot be read")
    end = next((i for i in range(start, len(words)) if words[i] in (b"{}", b":", b"<")), len(words))
    plain = [word for word in words[start + 1 : end] if _IDENTIFIER.fullmatch(word) and word != b"final"]
    return frozenset((*plain[-1:], *words[-2:-1]))


def with_launches_called(data: bytes) -> bytes:
    """Return the code with CUDA launches as C++ calls: `k<<<g, b>>>(x)` becomes `(::kernel_lsp::configure(g, b),
    k(x))`.

    Raises:
        HostViewError: the end of a launch is not found.
    """
    while True:
        code = code_only(data)
        at = code.rfind(b"<<<")  # the last one first, so that the text before it keeps its offsets
        if at < 0:
            return data
        close = _closing(code, at + 3, b">>>")
        opening = re.compile(rb"(?:\s|\\\r?\n)*\(").match(code, close + 3)
        if opening is None:
            raise HostViewError("a launch has no arguments")
        end = _closing(code, opening.end(), b")")
        start = _start_of_callee(code, at)
        call = data[start:at] + data[close + 3 : opening.end()] + data[opening.end() : end] + b")"
        made = b"(::kernel_lsp::configure(" + data[at + 3 : close] + b"), " + call + b")"
        data = data[:start] + made + data[end + 1 :]


def _closing(code: bytes, at: int, mark: bytes) -> int:
    """Return the offset of the first `mark` outside the brackets that open from `at` on."""
    depth = 0
    while at < len(code):
        if depth == 0 and code.startswith(mark, at):
            return at
        letter = code[at : at + 1]
        depth += 1 if letter in b"([{" else -1 if letter in b")]}" else 0
        if depth < 0:
            break
        at += 1
    raise HostViewError("a launch does not end")


def _start_of_callee(code: bytes, at: int) -> int:
    """Return the start of the expression before `<<<`: `ns::k<T, (N > 1)>`, `kernels[i]`, `(*kernel)`,
    `launcher.kernel`.
    """
    start: int | None = None
    at = _before_space(code, at)
    while at > 0:
        letter = code[at - 1 : at]
        if letter in (b")", b"]", b">"):
            start = _opening(code, at)
            at = _before_space(code, start)
            if letter == b")" and not _is_name(code, at):
                break
            continue
        word = _WORD_BEFORE.search(code, max(0, at - 200), at)
        if word is None:
            break
        at = start = word.start()
        before = _before_space(code, at)
        joined = next((mark for mark in (b"::", b"->", b".", b"##") if code.endswith(mark, 0, before)), None)
        if joined is None:
            break
        at = before - len(joined)
        if joined == b"::":
            start = at
        at = _before_space(code, at)
        if joined == b"::" and not (code[at - 1 : at] == b">" or _is_name(code, at)):
            break
    if start is None:
        raise HostViewError("what is launched cannot be read")
    return start


def _is_name(code: bytes, at: int) -> bool:
    """Return True if a name ends at `at` that can be part of the expression after it."""
    word = _WORD_BEFORE.search(code, max(0, at - 200), at)
    return word is not None and word[0] not in (b"return", b"else", b"do", b"if", b"while", b"for", b"switch")


def _opening(code: bytes, end: int) -> int:
    """Return the offset of the bracket whose counterpart closes just before `end`."""
    close = code[end - 1 : end]
    wanted = _OPENING[close]
    depth, at = 0, end
    for at in range(end - 1, -1, -1):
        letter = code[at : at + 1]
        if close == b">" and letter in b")]}":
            depth += 1000
        elif close == b">" and letter in b"([{":
            depth -= 1000
        elif letter == close and depth < 1000:
            depth += 1
        elif letter == wanted and depth < 1000:
            depth -= 1
            if depth == 0:
                return at
        if depth < 0:
            break
    raise HostViewError("what is launched cannot be read")


def _before_space(code: bytes, at: int) -> int:
    while at > 0 and (code[at - 1 : at].isspace() or code[at - 1 : at] == b"\\"):
        at -= 1
    return at
