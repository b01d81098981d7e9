"""The CUDA text that a Python file gives to `load_inline`, to machine code. Worker processes only.

Each call is a compilation of its own, with the way down that a `.cu` file has; what the file's Python does is not run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_lsp.build.binary import Binary, Build, KernelFacts, Severity
from kernel_lsp.build.cache import BuildCache
from kernel_lsp.build.cuda import BuildOptions, build_cuda
from kernel_lsp.build.plan import Launch
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.host_launches import HostLaunch, find_host_launches
from kernel_lsp.source.modules import device_units

_NONE = "this file gives no CUDA text to `load_inline` that can be read: it must be made of plain string constants"


@dataclass(frozen=True, slots=True)
class InlineBuild:
    """The outcome.

    Attributes:
        build: of all calls together: messages at the Python file's own places, and one binary with the kernels of all.
        binaries: what was made for each call.
        launches: how the host code launches each kernel, as far as that can be read; zeros where it cannot.
    """

    build: Build
    binaries: tuple[Binary, ...]
    launches: tuple[Launch, ...]


def build_inline(source: SourceFile, arch: str, options: BuildOptions, cache: BuildCache | None = None) -> InlineBuild:
    """Build the kernels in the CUDA text of a Python file.

    Args:
        source: the Python file.
        arch: `sm_90` and the like.
        options: compiler options and include folders; those that the calls themselves give come after them.
        cache: where results are looked up and kept.
    """
    builds: list[Build] = []
    launches: list[Launch] = []
    binaries: list[Binary] = []
    taken: dict[str, int] = {}
    for unit in device_units(source.text):
        written = find_host_launches(unit.view)
        names = tuple(dict.fromkeys(launch.kernel for launch in written if launch.instance))
        own = replace(options, flags=(*options.flags, *unit.flags))
        build = build_cuda(SourceFile(source.path, unit.view), arch, names, own, cache)
        builds.append(build)
        if build.binary is not None:
            binary = _apart(build.binary, taken)
            binaries.append(binary)
            launches += [launch for kernel in binary.kernels for launch in _launches(kernel, written)]
    return InlineBuild(_together(builds, binaries), tuple(binaries), tuple(launches))


def _apart(binary: Binary, taken: dict[str, int]) -> Binary:
    """A binary whose kernels have symbols that no earlier one has: `k#2` is the second that is called `k`."""
    names: dict[str, str] = {}
    for kernel in binary.kernels:
        taken[kernel.entry] = taken.get(kernel.entry, 0) + 1
        names[kernel.entry] = kernel.entry if taken[kernel.entry] == 1 else f"{kernel.entry}#{taken[kernel.entry]}"
    return replace(
        binary,
        entries={name: names.get(entry, entry) for name, entry in binary.entries.items()},
        kernels=tuple(replace(kernel, entry=names[kernel.entry]) for kernel in binary.kernels),
    )


def _together(builds: Sequence[Build], binaries: Sequence[Binary]) -> Build:
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


def _launches(kernel: KernelFacts, written: Sequence[HostLaunch]) -> list[Launch]:
    """The launches of one kernel; one of no size where none can be read, so that nobody thinks it is not launched."""
    exact = [launch for launch in written if launch.kernel == kernel.name]
    named = exact or [launch for launch in written if _base(launch.kernel) == _base(kernel.name)]
    sizes = dict.fromkeys((launch.block or (0, 0, 0), launch.shared_bytes or 0) for launch in named) or {((0, 0, 0), 0)}
    return [Launch(kernel.name, (0, 0, 0), block, shared, entry=kernel.entry) for block, shared in sizes]


def _base(name: str) -> str:
    return name.partition("<")[0].strip().rpartition("::")[2]
