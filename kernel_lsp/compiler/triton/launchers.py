"""Types of the objects that Triton passes to kernel launchers, as far as we use them; Triton has no stubs.

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
    """A function with the parameter types that it was compiled for."""

    fn: TritonFunction
    signature: Mapping[str, Kind]


class TritonMetadata(Protocol):
    """Facts of a compilation: cubin symbol, warps per block, bytes of shared memory, and special requirements."""

    name: str
    num_warps: int
    shared: int
    launch_cooperative_grid: bool
    global_scratch_size: int
    global_scratch_align: int


class TensorDescriptor(Protocol):
    """The descriptor through which a kernel reads a tensor."""

    base: object
    shape: Sequence[object]
    strides: Sequence[object]
    padding: str


class TritonUtils(Protocol):
    """A driver's helpers; `load_binary` returns a module, a function and facts about the function."""

    load_binary: Callable[..., Sequence[object]]


class TritonDriver(Protocol):
    """The active driver; a launcher takes the grid, a stream, a function, four internal values, then the arguments."""

    launcher_cls: Callable[[TritonSource, TritonMetadata], Callable[..., object]]
    utils: TritonUtils
