"""Records of tensors in shared memory: plain data, for processes without torch too."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The place of a tensor in a buffer: `offset` of its first element and `span` in bytes, strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    span: int

    @property
    def numbers(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def holds_integers(self) -> bool:
        """Return True for integers and bools."""
        return self.dtype.startswith(("int", "uint", "bool"))


Argument = TensorSpec | bool | int | float | str | tuple[str] | None
"""One leaf of a workload's inputs as another process may know it: a tensor by its place, a type of elements by its name
alone in a tuple, and any other constant as it is."""


@dataclass(frozen=True, slots=True)
class BufferHandle:
    """The address of a buffer of `nbytes` for another process: CUDA's handle `ipc`, or an open `file` without a GPU."""

    nbytes: int
    ipc: bytes = b""
    file: str = ""
