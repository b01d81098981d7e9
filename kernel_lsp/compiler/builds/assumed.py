"""The record of a kernel that no workload launches: which types were assumed for it, and whether it compiled."""

from dataclasses import dataclass

NO_TIME = "there was no time left to compile it"
"""Reason given for a kernel that was not compiled for want of time; on a less busy machine it may be."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """One kernel of a file without a workload: of a Triton file, or of a CUDA file with templates.

    Attributes:
        kernel: its name.
        line: where it stands, from 1.
        types: `x: *fp32`, `BLOCK=1024` or `T=float` for each parameter whose type or value nothing in the file tells.
        compiled: true if the compiler made machine code.
        problem: why not, in one line; what the compiler says of the types assumed, or what could not be loaded.
        hurried: whether time ran out before all was tried: on a machine with less to do it may compile.
    """

    kernel: str
    line: int
    types: tuple[str, ...]
    compiled: bool
    problem: str = ""
    hurried: bool = False

    @property
    def guessed(self) -> bool:
        """Return True if it was compiled for types that were assumed: a real launch may use others."""
        return self.compiled and bool(self.types)
