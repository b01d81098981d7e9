"""Compiler options for CUDA files, as a record that processes without a compiler may hold."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.toolchain.target import split_targets

_STANDARD = re.compile(r"-{1,2}std[= ]")
_CXX20 = re.compile(r"^\s*(?:template\s*<.*>\s*)?concept\s+\w+\s*=|^\s*requires\b[ (]|\bstd::bit_cast\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Compiler options for CUDA files.

    Attributes:
        flags: further options, understood by NVRTC and nvcc alike where both are to be used (`-DTILE=64`,
            `--use_fast_math`, `--maxrregcount=64`), and options that name targets (`-arch=sm_90a`). C++17 unless one
            of them, or `for_code`, says otherwise.
        include_dirs: folders searched for headers, after the file's own.
    """

    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()

    def for_code(self, texts: Iterable[str]) -> "BuildOptions":
        """Return the options, with C++20 where one of the texts uses concepts and no flag names a standard."""
        if any(map(_STANDARD.match, self.flags)) or not any(map(_CXX20.search, texts)):
            return self
        return self.with_flags("-std=c++20")

    def with_flags(self, *flags: str) -> "BuildOptions":
        """Return the options with more flags."""
        return replace(self, flags=(*self.flags, *flags))

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Return `flags` with the language standard, without those that name targets."""
        flags, _ = split_targets(self.flags)
        return flags if any(map(_STANDARD.match, flags)) else ("-std=c++17", *flags)

    @property
    def targets(self) -> tuple[str, ...]:
        """Return those of `flags` that name targets, each as one string."""
        return split_targets(self.flags)[1]
