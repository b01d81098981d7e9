"""Parses compiler messages into records with positions in the user's own file; none is cut.

None is dropped either, but for a warning that was given for another instance of the same template.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.cuda.refusals import joined_refusals
from kernel_lsp.compiler.machine_code.symbols import kernel_name
from kernel_lsp.compiler.ptx.lines import files_of, frames_of

_EDG = re.compile(
    r"^(?P<path>.+)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning|remark|note)"
    r"(?: #(?P<code>[\w-]+))?: (?P<text>.*)$"
)
_GCC = re.compile(
    r"^(?P<path>[^:\s][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>fatal error|error|warning|note): (?P<text>.*)$"
)
_TOOL = re.compile(r"^\s*(?P<tool>ptxas|nvrtc|nvcc|nvlink)\s*(?P<kind>fatal|error|warning)?\s*: (?P<text>.*)$")
_ASSEMBLER = re.compile(r"^ptxas .*?, line (?P<line>\d+); (?P<kind>fatal|error|warning)\s*: (?P<text>.*)$")
_ONCE = "#pragma once in main file"  # of a header that is compiled alone
_ABORTED = "Ptx assembly aborted due to errors"  # adds nothing to the errors before it
_QUOTED = re.compile(r"'([^']+)'")
_ENTRY = re.compile(r"(?:[Ee]ntry function|for entry|function) '?([\w$.]+)'?")
_CARET = re.compile(r"^\s*\^\s*$")
_WORD = re.compile(rb"[A-Za-z_]\w*|\d[\w.]*")
# Follow-up lines of a message begin with this much space; source excerpts begin with two blanks.
_DETAIL = re.compile(r"^ {6,}(\S.*)$")

_INSTANCE = re.compile(r"; detected during[ :].*", re.DOTALL)  # names the template arguments of one instance

# NVRTC compiles the names used in launches as lines of a file of this name; for nvcc we do the same.
NAMES_FILE = "__nv_name_map"
_ASKED = re.compile(r"(?:nv_mangled_name (.+?)|\(const void\*\)\((.+?)\));?$")
_SEVERITIES = {"warning": Severity.WARNING, "remark": Severity.NOTE, "note": Severity.NOTE}
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

_Texts = Mapping[str, tuple[str, Sequence[bytes]]]
"""File name in the log -> path of the file and its lines."""
Locate = Callable[[str], tuple[int, int, int, int] | None]


@dataclass(frozen=True, slots=True)
class _Message:
    path: str
    line: int
    column: int | None
    kind: str
    code: str | None
    text: str
    excerpt: str = ""
    assembly: int = 0  # line of the PTX that the message is about, from 1


def parse_diagnostics(
    log: str,
    path: str,
    text: str,
    *,
    headers: Mapping[str, tuple[str, str]] | None = None,
    locate: Locate | None = None,
    ptx: str | None = None,
) -> tuple[Diagnostic, ...]:
    """Return the diagnostics in a compiler's log: errors first, each severity in order of appearance, no repetitions.

    Of warnings that differ by the instance of a template alone the first is returned.

    Args:
        log: what NVRTC, nvcc, gcc or ptxas printed.
        path: the user's file, as the compiler was told to call it.
        text: the user's text as it was compiled; gives columns.
        headers: name of a file in the log -> (path, text) of the user's header it stands for.
        locate: kernel name -> line, column, end line, end column, for messages that name a kernel and no line.
        ptx: what ptxas was given, with its lines' places in the source.
    """
    texts = {path: (path, text), **(headers or {})}
    lines = {name: (own, content.encode().splitlines()) for name, (own, content) in texts.items()}
    found: list[Diagnostic] = []
    refused: set[str] = set()
    said = _messages(log.splitlines())
    if any(message.assembly for message in said):
        said = [_in_source(message, ptx, lines, path) for message in said if message.text != _ABORTED]
    for message in said:
        if message.text.startswith(_ONCE):
            continue
        severity = _SEVERITIES.get(message.kind, Severity.ERROR)
        if message.path == NAMES_FILE:
            asked = _ASKED.search(message.excerpt)
            name = (asked[1] or asked[2]) if asked else None
            if name and name not in refused:
                refused.add(name)
                words = f"no kernel can be made for `{name}`, which a launch asks for: {message.text}"
                found.append(Diagnostic(path, *_place(locate, name), severity, words))
        elif message.path:
            own, content = lines.get(message.path, (message.path, []))
            column, end = _extent(content[message.line - 1] if message.line <= len(content) else b"", message.column)
            found.append(Diagnostic(own, message.line, column, message.line, end, severity, message.text, message.code))
        else:
            symbol = _ENTRY.search(message.text)
            words = message.text if symbol is None else message.text.replace(symbol[1], kernel_name(symbol[1]))
            place = _place(locate, kernel_name(symbol[1]) if symbol else "")
            found.append(Diagnostic(path, *place, severity, words, message.code))
    once: dict[Diagnostic, Diagnostic] = {}
    for diagnostic in found:
        once.setdefault(_apart(diagnostic), diagnostic)
    return tuple(sorted(joined_refusals(tuple(once.values()), path), key=lambda d: _ORDER.index(d.severity)))


def _apart(diagnostic: Diagnostic) -> Diagnostic:
    """Return what tells a diagnostic from others: all of an error, of a warning all but the template's arguments."""
    if diagnostic.severity is Severity.ERROR:
        return diagnostic
    return replace(diagnostic, message=_INSTANCE.sub("", diagnostic.message))


def _messages(log: list[str]) -> list[_Message]:
    messages: list[_Message] = []
    at = 0
    while at < len(log):
        line = log[at]
        at += 1
        if found := _EDG.match(line):
            words = [found["text"]]
            excerpt = ""
            column: int | None = None
            while at < len(log) and log[at].strip() and not _EDG.match(log[at]):
                if column is None and _CARET.match(log[at]) and excerpt:
                    # The caret stands below its character, counted in bytes, two blanks in, with tabs kept.
                    column = log[at].index("^") - 1
                elif column is not None and (detail := _DETAIL.match(log[at])):
                    words.append(detail[1].rstrip())
                else:
                    excerpt = log[at]
                at += 1
            text = "; ".join(words)
            messages.append(
                _Message(found["path"], int(found["line"]), column, found["kind"], found["code"], text, excerpt)
            )
        elif found := _GCC.match(line):
            column = int(found["column"]) if found["column"] else None
            messages.append(_Message(found["path"], int(found["line"]), column, found["kind"], None, found["text"]))
        elif found := _ASSEMBLER.match(line):
            messages.append(_Message("", 0, None, found["kind"], "ptxas", found["text"], assembly=int(found["line"])))
        elif (found := _TOOL.match(line)) and (found["kind"] or "error" in found["text"][:6]):
            words = found["text"].removeprefix("error: ")
            messages.append(_Message("", 0, None, found["kind"] or "error", found["tool"], words))
    return messages


def _in_source(message: _Message, ptx: str | None, known: _Texts, path: str) -> _Message:
    """Return a ptxas message at the source line from which its line of PTX was made.

    For an inlined function that is the function's own line if it is in the user's text, else the call. Without the PTX
    it is the first line of `path` that contains the word which ptxas quotes.
    """
    if not message.assembly:
        return message
    if ptx is None:
        word = _QUOTED.search(message.text)
        sought = word[1].lstrip("%").encode() if word else b"\0"
        line = next((number for number, line in enumerate(known[path][1], 1) if sought in line), 0)
        return replace(message, path=path, line=line) if line else message
    files = files_of(ptx)
    before = ptx.splitlines()[: message.assembly]
    frames = next((found for line in reversed(before) if (found := frames_of(line, files))), None)
    if frames is None:
        return message
    path, line, column = next((frame for frame in frames if frame[0] in known), frames[0])
    return replace(message, path=path, line=line, column=column or None)


def _extent(line: bytes, column: int | None) -> tuple[int, int]:
    """Return the columns, end exclusive, of the word at `column`, or of the line's text if `column` is None."""
    if column is None or column > len(line):
        blank = len(line) - len(line.lstrip())
        return blank + 1, max(len(line.rstrip()), blank) + 1
    word = _WORD.match(line, column - 1)
    return column, (word.end() if word else column) + 1


def _place(locate: Locate | None, name: str) -> tuple[int, int, int, int]:
    return (locate(name.split("<")[0]) if locate and name else None) or (1, 1, 1, 1)


def has_errors(diagnostics: Sequence[Diagnostic]) -> bool:
    """Return True if any diagnostic is an error."""
    return any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
