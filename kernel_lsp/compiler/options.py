"""Compiler options for CUDA files, as a record that processes without a compiler may hold."""

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.compiler.target import split_targets

_STANDARD = re.compile(r"-{1,2}std[= ]")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Compiler options for CUDA files.

    Attributes:
        flags: further options, understood by NVRTC and nvcc alike where both are to be used (`-DTILE=64`,
            `--use_fast_math`, `--maxrregcount=64`), and options that name targets (`-arch=sm_90a`). C++17 unless one
            of them says otherwise.
        include_dirs: folders searched for headers, after the file's own.
    """

    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Return `flags` with the language standard, without those that name targets."""
        flags, _ = split_targets(self.flags)
        return flags if any(map(_STANDARD.match, flags)) else ("-std=c++17", *flags)

    @property
    def targets(self) -> tuple[str, ...]:
        """Return those of `flags` that name targets, each as one string."""
        return split_targets(self.flags)[1]
