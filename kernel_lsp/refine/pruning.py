"""Reject candidates by their build alone, so that no run is spent on them."""

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.compiler.machine_code.binary import KernelFacts
from kernel_lsp.compiler.machine_code.occupancy import occupancy
from kernel_lsp.device.architectures import ARCHITECTURES, BLOCK_THREADS, base_arch


def reason_to_drop(arch: str, launch: Launch, facts: KernelFacts, baseline: KernelFacts | None = None) -> str | None:
    """Return why a built candidate is not worth running; None if it is.

    Args:
        arch: architecture of the GPU, `sm_90`.
        launch: a launch that the candidate makes.
        facts: of the kernel it launches.
        baseline: of the same kernel in the user's file; None skips the comparison of spills.

    Returns:
        One sentence for a person and a proposer. An architecture without known limits rules nothing out but spills.
    """
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if facts.max_threads is not None and threads > (most := _volume(facts.max_threads)):
        return f"A block of {threads} threads is more than its launch bounds of {most} allow."
    if facts.required_threads is not None and launch.block != facts.required_threads:
        return f"It was compiled for blocks of {facts.required_threads} threads and is launched with {launch.block}."
    if not 1 <= threads <= BLOCK_THREADS:
        return f"A block has 1 to {BLOCK_THREADS} threads, not {threads}."
    if (limits := ARCHITECTURES.get(base_arch(arch))) is not None:
        shared = facts.shared_bytes + launch.shared_bytes
        if shared > limits.block_shared_bytes:
            return (
                f"A block asks for {shared} bytes of shared memory; {arch} gives at most {limits.block_shared_bytes}."
            )
        if occupancy(arch, facts.registers, shared, threads, facts.barriers).blocks == 0:
            return f"No block fits: {threads} threads with {facts.registers} registers each."
    spills, before = spill_bytes(facts), spill_bytes(baseline) if baseline is not None else None
    if spills is not None and before is not None and spills > before:
        return f"It spills {spills} bytes of registers per thread; the baseline spills {before}."
    return None


def spill_bytes(facts: KernelFacts) -> int | None:
    """Return the bytes of spilled registers stored and loaded per thread; None where ptxas was not asked."""
    if facts.spill_store_bytes is None or facts.spill_load_bytes is None:
        return None
    return facts.spill_store_bytes + facts.spill_load_bytes


def _volume(size: tuple[int, int, int]) -> int:
    return size[0] * size[1] * size[2]
