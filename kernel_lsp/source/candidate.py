"""A candidate: the text of a kernel file, and of its workload file where the launch stands there, under one name."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_lsp.source.kernel import Language


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's path and the text under judgement, which may differ from the file on disk."""

    path: Path
    text: str


@dataclass(frozen=True)
class Candidate:
    """One version of a kernel.

    Attributes:
        language: CUDA or Triton.
        kernel: the kernel file.
        launch: the workload file when its `launch` belongs to the candidate; None when `kernel` holds it or none is
            needed. Only its `launch` is taken from here: cases, inputs and reference always come from the user's own.
        label: the difference in a few words for a person (`BLOCK 128 -> 256`); "baseline" for the user's file.
        origin: who proposed it: `baseline`, `user`, `tuner`, `rewrite:NAME`, `model:PROFILE`.
    """

    language: Language
    kernel: SourceFile
    launch: SourceFile | None
    label: str
    origin: str

    @cached_property
    def digest(self) -> str:
        """Return the content address, a hash of language and texts; names and paths do not count."""
        parts = (self.language, self.kernel.text, self.launch.text if self.launch else "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
