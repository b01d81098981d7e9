"""Compiles the CUDA text that a Python file passes to `load_inline`. Worker processes only.

Each call is compiled by itself, like a `.cu` file; the file's Python code is not run.
"""

from dataclasses import dataclass, replace

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.merging import launches_of, merged_build, with_unique_symbols
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.host_launches import find_host_launches
from kernel_lsp.source.modules import device_units


@dataclass(frozen=True, slots=True)
class InlineBuild:
    """The build of all `load_inline` calls of a file.

    Attributes:
        build: of all calls together, with messages at lines of the Python file, and one binary with the kernels of all.
        binaries: the machine code of each call.
        launches: launches of each kernel as far as host code shows them; sizes are 0 where it does not.
    """

    build: Build
    binaries: tuple[Binary, ...]
    launches: tuple[Launch, ...]


def build_inline(source: SourceFile, arch: str, options: BuildOptions, cache: BuildCache | None = None) -> InlineBuild:
    """Build the kernels in the CUDA text of a Python file.

    Args:
        source: the Python file.
        arch: `sm_90` and the like.
        options: compiler options and include folders; the calls' own options come after them.
        cache: where results are looked up and kept.
    """
    builds: list[Build] = []
    launches: list[Launch] = []
    binaries: list[Binary] = []
    taken: dict[str, int] = {}
    for unit in device_units(source.text):
        written = find_host_launches(unit.text)
        names = tuple(dict.fromkeys(launch.kernel for launch in written if launch.instance))
        own = replace(options, flags=(*options.flags, *unit.flags))
        build = build_cuda(SourceFile(source.path, unit.text), arch, names, own, cache)
        builds.append(build)
        if build.binary is not None:
            binary = with_unique_symbols(build.binary, taken)
            binaries.append(binary)
            launches += [launch for kernel in binary.kernels for launch in launches_of(kernel, written)]
    return InlineBuild(merged_build(builds, binaries), tuple(binaries), tuple(launches))
