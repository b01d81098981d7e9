"""Computes theoretical occupancy: blocks per multiprocessor, the limiting resource, and changes that would raise it.

Follows the occupancy rules of the CUDA C++ Programming Guide; needs no GPU and no toolkit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.device.architectures import (
    ARCHITECTURES,
    BLOCK_THREADS,
    REGISTER_UNIT,
    REGISTERS,
    SUB_PARTITIONS,
    THREAD_REGISTERS,
    WARP,
    Architecture,
    base_arch,
)


class Limiter(StrEnum):
    """A resource that limits the number of resident blocks."""

    WARPS = "warps"
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED = "shared memory"
    BARRIERS = "barriers"


class Lever(StrEnum):
    """A quantity that an author can change to raise occupancy."""

    REGISTERS = "registers"
    SHARED = "shared memory"
    BARRIERS = "barriers"
    THREADS = "block size"


@dataclass(frozen=True, slots=True)
class Cliff:
    """The smallest change of one quantity, all others kept, that raises occupancy.

    For the block size it is the best one, of equally good ones the nearest: a smaller block costs nothing in itself.

    Attributes:
        lever: what to change.
        change: by how much, in its own unit (registers per thread, bytes per block, barriers per block, threads per
            block); negative except for threads, where more can be better too.
        blocks: blocks per multiprocessor after it.
        share: occupancy after it, 0 to 1.
    """

    lever: Lever
    change: int
    blocks: int
    share: float


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Theoretical occupancy of one kernel at one block size.

    Attributes:
        blocks: resident blocks per multiprocessor; 0 if the kernel cannot be launched at this size.
        warps: resident warps per multiprocessor.
        share: `warps` over the most the architecture can hold, 0 to 1.
        limiters: the limiting resources, all of them if several limit equally.
    """

    blocks: int
    warps: int
    share: float
    limiters: tuple[Limiter, ...]


def occupancy(arch: str, registers: int, shared_bytes: int, threads: int, barriers: int = 0) -> Occupancy:
    """Return the theoretical occupancy of a kernel.

    Args:
        arch: one of `ARCHITECTURES`, with or without its `a` or `f` suffix.
        registers: per thread.
        shared_bytes: static and dynamic shared memory per block together, without what the system reserves.
        threads: per block.
        barriers: named barriers used by a block.

    Raises:
        KeyError: an architecture that is not in `ARCHITECTURES`.
        ValueError: `threads` is not a size a block can have.
    """
    if not 1 <= threads <= BLOCK_THREADS:
        raise ValueError(f"a block has 1 to {BLOCK_THREADS} threads, not {threads}")
    limits = ARCHITECTURES[base_arch(arch)]
    warps = -(-threads // WARP)
    fits = {
        Limiter.WARPS: limits.threads // WARP // warps,
        Limiter.BLOCKS: limits.blocks,
        Limiter.REGISTERS: _blocks_by_registers(registers, warps),
        Limiter.SHARED: _blocks_by_shared(limits, shared_bytes),
        Limiter.BARRIERS: _blocks_by_barriers(limits, barriers),
    }
    blocks = min(fits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        share=blocks * warps * WARP / limits.threads,
        limiters=tuple(limiter for limiter, count in fits.items() if count == blocks),
    )


def next_cliffs(arch: str, registers: int, shared_bytes: int, threads: int, barriers: int = 0) -> tuple[Cliff, ...]:
    """Return, for each quantity that helps by itself, its change; largest gain first. Arguments as `occupancy`."""
    limits = ARCHITECTURES[base_arch(arch)]
    now = {
        Lever.REGISTERS: registers,
        Lever.SHARED: shared_bytes,
        Lever.THREADS: threads,
        Lever.BARRIERS: barriers,
    }
    before = occupancy(arch, *now.values())

    def after(lever: Lever, amount: int) -> Cliff:
        then = occupancy(arch, *(now | {lever: amount}).values())
        return Cliff(lever, amount - now[lever], then.blocks, then.share)

    def first_gain(lever: Lever, amounts: Iterable[int]) -> Cliff | None:
        return next((found for amount in amounts if (found := after(lever, amount)).share > before.share), None)

    shared_cap = limits.shared_bytes // (before.blocks + 1) // limits.shared_unit * limits.shared_unit
    shared_less = max(min(shared_cap - limits.reserved_shared_bytes, limits.block_shared_bytes), 0)
    found = [
        first_gain(Lever.REGISTERS, range(min(registers - 1, THREAD_REGISTERS), 0, -1)),
        first_gain(Lever.SHARED, [shared_less] if shared_less < shared_bytes else []),
        first_gain(Lever.BARRIERS, range(barriers - 1, -1, -1)),
    ]
    sizes = (after(Lever.THREADS, size) for size in range(WARP, BLOCK_THREADS + 1, WARP))
    best = max(sizes, key=lambda cliff: (cliff.share, -abs(cliff.change)))
    found.append(best if best.share > before.share else None)
    return tuple(sorted((cliff for cliff in found if cliff), key=lambda cliff: -cliff.share))


_NO_LIMIT = 1 << 30


def _blocks_by_registers(registers: int, warps: int) -> int:
    if not registers:
        return _NO_LIMIT
    per_warp = _up(registers * WARP, REGISTER_UNIT)
    if registers > THREAD_REGISTERS or per_warp * _up(warps, SUB_PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // SUB_PARTITIONS // per_warp * SUB_PARTITIONS // warps


def _blocks_by_shared(limits: Architecture, shared_bytes: int) -> int:
    if shared_bytes > limits.block_shared_bytes:
        return 0
    taken = _up(shared_bytes + limits.reserved_shared_bytes, limits.shared_unit)
    return limits.shared_bytes // taken if taken else _NO_LIMIT


def _blocks_by_barriers(limits: Architecture, barriers: int) -> int:
    return limits.barriers // barriers if limits.barriers and barriers else _NO_LIMIT


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
