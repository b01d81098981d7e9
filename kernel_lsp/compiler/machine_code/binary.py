"""Records of machine code and of the resources of each kernel in it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Resources of one kernel, read from its cubin.

    Attributes:
        entry: the symbol in the cubin (mangled).
        name: what the user calls it (`rmsnorm<float, 256>`).
        registers: per thread.
        stack_bytes: per thread; a dynamically indexed local array shows here without being a spill.
        spill_store_bytes: per thread, from ptxas; None where ptxas was not asked.
        spill_load_bytes: per thread, likewise.
        shared_bytes: static shared memory per block, without what the system reserves.
        parameters: (offset, size) in bytes of each parameter, in order.
        barriers: named barriers used.
        max_threads: `__launch_bounds__` limit as (x, y, z), if any.
        required_threads: exact block size demanded (`.reqntid`), if any.
    """

    entry: str
    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    parameters: tuple[tuple[int, int], ...]
    barriers: int = 0
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code for one architecture.

    Attributes:
        arch: `sm_90` and the like.
        cubin: the ELF image.
        ptx: the PTX it was made from, where the compiler gave it.
        entries: the name used in a launch -> symbol in the cubin.
        kernels: facts of each kernel in the cubin.
        ttgir: Triton's intermediate code (TTGIR), from which that PTX was made; None for other compilers.
    """

    arch: str
    cubin: bytes = field(repr=False)
    ptx: str | None = field(repr=False)
    entries: dict[str, str]
    kernels: tuple[KernelFacts, ...]
    ttgir: str | None = field(default=None, repr=False)
