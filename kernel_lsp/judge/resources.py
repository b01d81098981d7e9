"""Collect the compiler's figures for the kernels of a version as launched, for evidence and for pruning."""

from math import prod

from kernel_lsp.compiler.machine_code.cubin import kernel_digests
from kernel_lsp.compiler.machine_code.occupancy import next_cliffs, occupancy
from kernel_lsp.compiler.ptx.tensor_memory import COLUMNS, allocated_columns
from kernel_lsp.device.architectures import ARCHITECTURES, BLOCK_THREADS, base_arch
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.verdict import KernelResources


def resources_of(built: Built) -> tuple[KernelResources, ...]:
    """Return one record for each launched kernel, with the largest shared memory and block it is launched with."""
    binary = built.build.binary
    if binary is None:
        return ()
    launches = [launch for plan in built.plans for launch in plan.launches]
    codes = _codes(built)
    found: list[KernelResources] = []
    for kernel in binary.kernels:
        mine = [x for x in launches if (x.entry or binary.entries.get(x.kernel)) == kernel.entry]
        if launches and not mine:
            continue
        threads = max((x.block[0] * x.block[1] * x.block[2] for x in mine), default=0) or None
        dynamic = max((x.shared_bytes for x in mine), default=0)
        shared = kernel.shared_bytes + dynamic
        share, limiter, cliffs = None, None, ()
        if threads and threads <= BLOCK_THREADS and base_arch(binary.arch) in ARCHITECTURES:
            at = occupancy(binary.arch, kernel.registers, shared, threads, kernel.barriers)
            share, limiter = at.share, str(at.limiters[0])
            cliffs = next_cliffs(binary.arch, kernel.registers, shared, threads, kernel.barriers)
        bounds = kernel.required_threads or kernel.max_threads
        spills = kernel.spill_store_bytes
        columns = allocated_columns(binary.ptx or "", kernel.entry)
        found.append(
            KernelResources(
                name=kernel.name,
                registers=kernel.registers,
                shared_bytes=shared,
                spill_bytes=None if spills is None else spills + (kernel.spill_load_bytes or 0),
                stack_bytes=kernel.stack_bytes,
                threads=threads,
                occupancy=share,
                limiter=limiter,
                entry=kernel.entry,
                dynamic_shared_bytes=dynamic,
                barriers=kernel.barriers,
                parameter_bytes=sum(size for _, size in kernel.parameters),
                max_threads=prod(bounds) if bounds else None,
                cliffs=cliffs,
                code=codes.get(kernel.entry),
                tensor_columns=columns,
                tensor_blocks=COLUMNS // columns if columns else None,
            )
        )
    return tuple(found)


def _codes(built: Built) -> dict[str, str]:
    """Return the hash of each kernel's machine code, by its entry symbol."""
    found: dict[str, str] = {}
    for image in built.images:
        digests = kernel_digests(image.cubin)
        for kernel in image.kernels:
            # Triton compiles a function several times, into an image each; `#2` names the second.
            if (digest := digests.get(kernel.entry.partition("#")[0])) is not None:
                found[kernel.entry] = digest
    return found
