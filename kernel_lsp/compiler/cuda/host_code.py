"""Builds without the host code that slices of device code have left, where it does not compile there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity

_LACKS = re.compile(r'(?:identifier|no member|no instance of [\w ]+|incomplete type) "(?:[^"]*::)?(\w+)')
_REFUSED = "not supported when compiling with NVRTC"
_MOST_NAMED = 3


def is_in(build: Build, texts: Mapping[str, str]) -> bool:
    """Return True if a build failed, and first in one of these files or because NVRTC refuses one that they include."""
    first = next(iter(_errors(build)), None)
    return first is not None and (first.path in texts or _REFUSED in first.message)


def gets_further(bare: Build, first: Build, slices: Sequence[str], left: Sequence[str]) -> bool:
    """Return True if a build of bare slices works, or fails first for something that is neither new nor was cut.

    Args:
        bare: that build.
        first: the build of the usual slices, which failed.
        slices: what `first` was made of.
        left: what `bare` was made of.
    """
    errors = _errors(bare)
    if bare.binary is not None or not errors:
        return bare.binary is not None
    return errors[0] not in _errors(first) and not lacks_what_was_cut(bare, slices, left)


def lacks_what_was_cut(bare: Build, slices: Sequence[str], left: Sequence[str]) -> bool:
    """Return True if an error of a build of bare slices, `left`, is for want of something that `slices` have."""
    lacking = {name for one in _errors(bare) for name in _LACKS.findall(one.message)}
    return any(_count(name, left) < _count(name, slices) for name in lacking)


def host_code_left_out(first: Build, bare: Build, *, stand_ins: bool) -> tuple[Diagnostic, ...]:
    """Return warnings at the first lines with errors that a build of bare slices no longer has, one at least.

    Args:
        first: the build of the usual slices, which failed.
        bare: the other one.
        stand_ins: whether it has stand-ins for PyTorch's accessors and checks, which is said too.
    """
    more = "; stand-ins took the place of PyTorch's accessors and checks" if stand_ins else ""
    still = {(one.path, one.line) for one in _errors(bare)}
    errors = _errors(first)
    gone = [one for one in errors if (one.path, one.line) not in still] or errors[:1]
    by_line = {(one.path, one.line): one for one in reversed(gone)}
    return tuple(
        replace(
            one,
            severity=Severity.WARNING,
            message=f"host code was left out, which does not compile with the device code alone: {one.message}{more}",
        )
        for one in [*by_line.values()][::-1][:_MOST_NAMED]
    )


def _count(name: str, texts: Sequence[str]) -> int:
    return sum(len(re.findall(rf"\b{name}\b", text)) for text in texts)


def _errors(build: Build) -> list[Diagnostic]:
    return [one for one in build.diagnostics if one.severity is Severity.ERROR]
