"""Leaves out of device code, a few parts at a time, each that does not compile and is no kernel, for a file's facts.

The text of one file cannot tell all host code: a macro of a library that is not here makes instances, an alias names a
namespace that a host header has. The compiler knows. A kernel that needs a part that was cut has an error that says so.
"""

import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.headers.user import UserHeader
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.outline import Declaration, outline
from kernel_lsp.source.slicing import declared, find_device_macros, is_type, members_of, says_device
from kernel_lsp.source.text import Lines, Span

_ROUNDS = 12
_SECONDS = 8.0  # after which no round begins
_LACKS = re.compile(r'(?:identifier|no member|no instance of [\w ]+|incomplete type|struct|class) "(?:[^"]*::)?(\w+)')

Compile = Callable[[Sequence[UserHeader]], Build]
"""Compiles a file and its headers, the file first."""


@dataclass(slots=True)
class _Cut:
    """The parts that were cut.

    Attributes:
        files: the file and its headers, without these parts.
        reasons: for each name that was declared there the compiler's error in its declaration.
        device: errors in functions and types of the device's; they stay errors.
    """

    files: list[UserHeader]
    reasons: dict[str, Diagnostic] = field(default_factory=dict[str, Diagnostic])
    device: list[Diagnostic] = field(default_factory=list[Diagnostic])


def without_wrong_parts(
    build: Build, files: Sequence[UserHeader], compile_files: Compile, whole: Container[Path] = ()
) -> Build | None:
    """Return a build without the declarations that errors are in, kernels aside; None if no such build works or has
    all of its errors in kernels.

    Args:
        build: of `files`, which failed.
        files: the slice of a file and those of its headers.
        compile_files: compiles such slices.
        whole: the headers of which nothing is cut: a first error elsewhere than in the others has no remedy here.
    """
    open_ones = {str(file.path) for file in files if file.path not in whole}
    cut, deadline = _Cut([*files]), time.perf_counter() + _SECONDS
    macros = find_device_macros(file.text for file in files)
    for _ in range(_ROUNDS):
        first = next((one for one in build.diagnostics if one.severity is Severity.ERROR), None)
        if first is None or first.path not in open_ones or time.perf_counter() > deadline:
            break
        if not _cut_errors(cut, build, macros, open_ones):
            break
        build = compile_files(cut.files)
    if cut.files == [*files] or (build.binary is None and not _is_in_kernels(build, cut.files[0])):
        return None
    said = [_explained(one, cut.reasons) for one in build.diagnostics]
    # A mistake in the file itself is shown where it is, too.
    causes = [why for one in build.diagnostics if (why := _cause(one, cut.reasons)) and why.path == str(files[0].path)]
    return replace(build, diagnostics=tuple(dict.fromkeys((*cut.device, *causes, *said))))


def _cut_errors(cut: _Cut, build: Build, macros: frozenset[bytes], open_ones: Container[str]) -> bool:
    """Cut the parts that a build's errors in some files are in, the host's before the device's; return False if there
    is none.
    """
    errors: dict[str, list[Diagnostic]] = {}
    for one in build.diagnostics:
        if one.severity is Severity.ERROR and one.path in open_ones:
            errors.setdefault(one.path, []).append(one)
    for of_device in (False, True):
        found = False
        for at, file in enumerate(cut.files):
            if (own := errors.get(str(file.path))) is None:
                continue
            data = file.text.encode()
            parts = [one for one in _parts(data, own, macros) if one.of_device == of_device]
            for part in parts:
                data = data[: part.span.start] + blanked(data[part.span.start : part.span.end]) + data[part.span.end :]
                cut.reasons |= {name: part.said for name in part.names if name not in cut.reasons}
                cut.device += [part.said] if of_device else []
            cut.files[at] = replace(file, text=data.decode())
            found = found or bool(parts)
        if found:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Part:
    """A declaration that an error is in, `said`, and the names that it declares."""

    span: Span
    names: frozenset[str]
    of_device: bool
    said: Diagnostic


def _parts(data: bytes, errors: Sequence[Diagnostic], macros: frozenset[bytes]) -> list[_Part]:
    """Return the declarations in a text that errors are in, of a type only the member functions where that suffices."""
    lines, found = Lines(data), list[_Part]()
    for made in outline(data).declarations:
        inside = _errors_in(made, errors, lines)
        if not inside or b"__global__" in made.words:
            continue
        functions = [one for one in members_of(data, made) if one.body is not None] if is_type(made) else []
        wrong = [(one, own) for one in functions if (own := _errors_in(one, inside, lines))]
        within = {said for _, own in wrong for said in own}
        cut = wrong if within.issuperset(inside) else [(made, inside)]
        for one, own in cut:
            code = data[one.span.start : one.span.end]
            names = frozenset(name.decode() for name in declared(one, code))
            found.append(_Part(one.span, names, says_device(code, macros), own[0]))
    return found


def _errors_in(made: Declaration, errors: Sequence[Diagnostic], lines: Lines) -> list[Diagnostic]:
    first, last = lines.position(made.span.start)[0], lines.position(made.span.end)[0]
    return [one for one in errors if first <= one.line <= last]


def _is_in_kernels(build: Build, file: UserHeader) -> bool:
    """Return True if all errors of a build are in kernels of the file."""
    data = file.text.encode()
    lines = Lines(data)
    kernels = [made for made in outline(data).declarations if b"__global__" in made.words]
    errors = [one for one in build.diagnostics if one.severity is Severity.ERROR]
    own = [one for one in errors if one.path == str(file.path)]
    return own == errors and all(any(_errors_in(made, [one], lines) for made in kernels) for one in own)


def _cause(said: Diagnostic, reasons: Mapping[str, Diagnostic]) -> Diagnostic | None:
    """Return the compiler's error in the part for want of which there is an error; None if it is for another reason."""
    if said.severity is not Severity.ERROR:
        return None
    return next((reasons[name] for name in _LACKS.findall(said.message) if name in reasons), None)


def _explained(said: Diagnostic, reasons: Mapping[str, Diagnostic]) -> Diagnostic:
    """Return an error with its cause, if it has one."""
    if (why := _cause(said, reasons)) is None:
        return said
    return replace(
        said, message=f"{said.message}; it does not compile itself: {why.path}, line {why.line}: {why.message}"
    )
