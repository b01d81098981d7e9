"""Merges several compilations of one Python file into one build: messages, uniquely named kernels, and launches."""

from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.source.host_launches import HostLaunch

_NONE = "this file gives no CUDA text to `load_inline` that can be read: it must be made of plain string constants"


def with_unique_symbols(binary: Binary, taken: dict[str, int]) -> Binary:
    """Return a binary whose kernel symbols differ from all earlier ones: `k#2` is the second kernel called `k`."""
    names: dict[str, str] = {}
    for kernel in binary.kernels:
        taken[kernel.entry] = taken.get(kernel.entry, 0) + 1
        names[kernel.entry] = kernel.entry if taken[kernel.entry] == 1 else f"{kernel.entry}#{taken[kernel.entry]}"
    return replace(
        binary,
        entries={name: names.get(entry, entry) for name, entry in binary.entries.items()},
        kernels=tuple(replace(kernel, entry=names[kernel.entry]) for kernel in binary.kernels),
    )


def merged_build(builds: Sequence[Build], binaries: Sequence[Binary]) -> Build:
    """Return all builds as one, which fails if any of them fails."""
    if not builds:
        return Build(None, (), "none", 0.0, log=_NONE)
    said = dict.fromkeys(diagnostic for build in builds for diagnostic in build.diagnostics)
    failed = next((build for build in builds if build.binary is None), None)
    merged = None
    if failed is None:
        entries = {name: entry for binary in binaries for name, entry in binary.entries.items()}
        merged = replace(binaries[0], entries=entries, kernels=tuple(k for b in binaries for k in b.kernels))
    return Build(
        merged,
        tuple(sorted(said, key=lambda d: (d.severity is not Severity.ERROR, d.line, d.column))),
        (failed or builds[0]).way,
        sum(build.seconds for build in builds),
        cached=all(build.cached for build in builds),
        log="\n".join(build.log for build in builds if build.log),
    )


def launches_of(kernel: KernelFacts, written: Sequence[HostLaunch]) -> list[Launch]:
    """Return the launches of one kernel; one of size 0 if none can be read, so that the kernel counts as launched."""
    exact = [launch for launch in written if launch.kernel == kernel.name]
    named = exact or [launch for launch in written if _base(launch.kernel) == _base(kernel.name)]
    sizes = dict.fromkeys((launch.block or (0, 0, 0), launch.shared_bytes or 0) for launch in named) or {((0, 0, 0), 0)}
    return [Launch(kernel.name, (0, 0, 0), block, shared, entry=kernel.entry) for block, shared in sizes]


def _base(name: str) -> str:
    return name.partition("<")[0].strip().rpartition("::")[2]
