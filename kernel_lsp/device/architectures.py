"""Hardware limits of each architecture, and those that CUDA fixes for all.

Sources: "Technical Specifications per Compute Capability" and the occupancy rules of the CUDA C++ Programming Guide;
for sm_88, sm_103 and later, `cuda::arch_traits` of the CUDA Core Compute Libraries. Cores: "Arithmetic Instructions" of
the guide, results of 32-bit floating-point additions per clock.
"""

from dataclasses import dataclass

WARP = 32
"""Threads of a warp."""
BLOCK_THREADS = 1024
"""Threads of a block, at most."""
REGISTERS = 65536
"""32-bit registers of a multiprocessor."""
THREAD_REGISTERS = 255
"""Registers of a thread, at most."""
REGISTER_UNIT = 256
"""Registers are allocated per warp in units of this many."""
SUB_PARTITIONS = 4
"""Parts of a multiprocessor; each holds a quarter of its registers and of its warps."""
_KIB = 1024
STATIC_SHARED_BYTES = 48 * _KIB
"""Largest shared memory of a block that is static, or dynamic without `cudaFuncSetAttribute`; bytes."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of one architecture.

    Attributes:
        threads: resident threads per multiprocessor.
        blocks: resident blocks per multiprocessor.
        shared_bytes: shared memory per multiprocessor, in the largest split with L1.
        block_shared_bytes: the most one block can ask for.
        reserved_shared_bytes: reserved by the system for each block.
        shared_unit: allocation unit of shared memory in bytes.
        barriers: named barriers per multiprocessor; None if they never limit.
        cores: 32-bit floating-point units per multiprocessor, which the driver calls cores.
    """

    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int = 1024
    shared_unit: int = 128
    barriers: int | None = None
    cores: int = 128


ARCHITECTURES: dict[str, Architecture] = {
    "sm_75": Architecture(1024, 16, 64 * _KIB, 64 * _KIB, reserved_shared_bytes=0, shared_unit=256, cores=64),
    "sm_80": Architecture(2048, 32, 164 * _KIB, 163 * _KIB, cores=64),
    "sm_86": Architecture(1536, 16, 100 * _KIB, 99 * _KIB),
    "sm_87": Architecture(1536, 16, 164 * _KIB, 163 * _KIB),
    "sm_88": Architecture(1536, 16, 100 * _KIB, 99 * _KIB),
    "sm_89": Architecture(1536, 24, 100 * _KIB, 99 * _KIB),
    "sm_90": Architecture(2048, 32, 228 * _KIB, 227 * _KIB, barriers=64),
    "sm_100": Architecture(2048, 32, 228 * _KIB, 227 * _KIB, barriers=64),
    "sm_103": Architecture(2048, 32, 228 * _KIB, 227 * _KIB, barriers=32),
    "sm_107": Architecture(1024, 16, 228 * _KIB, 227 * _KIB, barriers=16),
    "sm_110": Architecture(1536, 24, 228 * _KIB, 227 * _KIB, barriers=24),
    "sm_120": Architecture(1536, 24, 100 * _KIB, 99 * _KIB, barriers=24),
    "sm_121": Architecture(1536, 24, 100 * _KIB, 99 * _KIB, barriers=24),
}
"""By the names that compilers have for them, oldest first."""


def base_arch(arch: str) -> str:
    """Return the key of an architecture in the table: `sm_90` for `sm_90a`, `sm_100` for `sm_100f`."""
    return arch.rstrip("af")


def arch_number(arch: str) -> int:
    """Return the number in an architecture's name: 90 for `sm_90a`."""
    return int(base_arch(arch).removeprefix("sm_"))


def nearest_arch(arch: str) -> str:
    """Return the architecture itself if it is in the table, else the newest older one, else the oldest."""
    older = [name for name in ARCHITECTURES if arch_number(name) <= arch_number(arch)]
    return max(older, key=arch_number) if older else min(ARCHITECTURES, key=arch_number)
