"""Records of the launches that a workload makes, found without a GPU (`compiler.cuda.planner`)."""

from dataclasses import dataclass, field

Constant = bool | int | float | str | None
"""Value of a compile-time parameter; anything but a Python literal is given as its text."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    Attributes:
        kernel: the name used in the launch (`rmsnorm<float, 256>`), or the Triton function's name.
        grid: blocks in x, y, z; zeros if no case was run and only host code was read.
        block: threads in x, y, z; (32 * num_warps, 1, 1) for Triton; zeros where the host code computes them.
        shared_bytes: dynamic shared memory per block.
        constexprs: Triton: values of the compile-time parameters.
        num_warps: Triton only.
        num_stages: Triton only.
        entry: symbol of the kernel in its cubin, once built.
        arguments: CUDA: what it is given by position; None for what is no number. It makes no program another one.
        tensors: CUDA: by position the element type of each tensor, such as `float32`; None for what is none.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    constexprs: dict[str, Constant] = field(default_factory=dict[str, Constant])
    num_warps: int | None = None
    num_stages: int | None = None
    entry: str | None = None
    arguments: tuple[bool | int | float | None, ...] = field(default=(), compare=False, repr=False)
    tensors: tuple[str | None, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LaunchTrace:
    """The launches of one case of a workload, in order; `case` counts from 0."""

    case: int
    launches: tuple[Launch, ...]
