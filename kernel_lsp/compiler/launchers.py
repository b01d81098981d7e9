"""Types of what Triton hands to those who launch its kernels, as far as we use it; Triton itself has none.

Sources: `CompiledKernel` and `ASTSource` in `triton/compiler/compiler.py`, `CudaLauncher` in the NVIDIA backend's
`driver.py`, of Triton 3.6 and 3.7.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Kind = str | tuple["Kind", ...]
"""Type of a parameter (`*fp32`, `i32`, `constexpr`); of a tuple, one for each element."""


class TritonFunction(Protocol):
    """A `@triton.jit` function."""

    __name__: str
    arg_names: Sequence[str]


class TritonSource(Protocol):
    """A function with the types that it was compiled for."""

    fn: TritonFunction
    signature: Mapping[str, Kind]


class TritonMetadata(Protocol):
    """Facts of a compilation: the symbol in the cubin, warps of a block, bytes of shared memory, further demands."""

    name: str
    num_warps: int
    shared: int
    launch_cooperative_grid: bool
    global_scratch_size: int


class TensorDescriptor(Protocol):
    """A tensor that a kernel reads by descriptor."""

    base: object
    shape: Sequence[object]
    strides: Sequence[object]
    padding: str


class TritonUtils(Protocol):
    """A driver's helpers; `load_binary` returns a module, a function and facts of it."""

    load_binary: Callable[..., Sequence[object]]


class TritonDriver(Protocol):
    """The active driver; a launcher takes the grid, a stream, a function, four things of its own, then arguments."""

    launcher_cls: Callable[[TritonSource, TritonMetadata], Callable[..., object]]
    utils: TritonUtils
