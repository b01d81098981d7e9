"""What was assumed of a Triton kernel that no workload launches, and what came of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumed:
    """One kernel of a Triton file without a workload.

    Attributes:
        kernel: its name.
        line: where it stands, from 1.
        types: `x: *fp32` or `BLOCK=1024` for each parameter whose type or value nothing in the file tells.
        compiled: whether machine code came of it.
        problem: why not, in one line; what the compiler says of the types assumed, or what could not be loaded.
    """

    kernel: str
    line: int
    types: tuple[str, ...]
    compiled: bool
    problem: str = ""
