"""Requests to a build worker, which traces and compiles candidates without a GPU.

All paths are absolute: a worker lives in a folder of its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.device import Device
from kernel_lsp.runner.messages import Request
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A folder of builds by content address, and its size limit in bytes."""

    path: Path
    limit: int

    def opened(self) -> BuildCache:
        """Return the cache in this folder."""
        return BuildCache(self.path, self.limit)


@dataclass(frozen=True, slots=True)
class CandidateBuild:
    """The build of a candidate, without the extensions that it asks for.

    Attributes:
        build: what the compiler made and said.
        plans: the launches of each case.
        binaries: Triton: each compilation by itself.
        requests: the extensions, to be built one by one.
        assumed: what each kernel of a Triton file without a workload was compiled for.
        libraries: modules of installed packages that the user's files imported.
    """

    build: Build
    plans: tuple[LaunchTrace, ...] = ()
    binaries: tuple[Binary, ...] = ()
    requests: tuple[ExtensionRequest, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    libraries: tuple[str, ...] = ()


class BuildRole(Protocol):
    """The requests that a build worker answers."""

    def build(self, request: "BuildCandidate", /) -> CandidateBuild: ...
    def build_extension(self, request: "BuildExtension", /) -> ExtensionBuild | str: ...
    def build_extension_fully(self, request: "BuildExtensionFully", /) -> ExtensionBuild: ...
    def prepare_header(self, request: "PrepareHeader", /) -> None: ...


class BuildCandidate(Request[BuildRole, CandidateBuild], frozen=True, kw_only=True):
    """Build a candidate and plan its launches.

    A CUDA file whose workload calls its host functions is itself an extension, and requested as one.

    Attributes:
        language: of the kernel file.
        kernel: the kernel file.
        workload: says which launches there are; without it the kernels of a Triton file are compiled for types that are
            known of them or assumed. A CUDA file without one is a `CompileAlone`.
        launch: the file whose `launch` belongs to the candidate, where that is not the kernel file.
        device: the GPU to build for, whose properties host code is told.
        options: the user's own compiler options.
        cache: of builds.
        triton_cache: folder of Triton's own cache.
        processes: how many Triton may compile in at a time.
        misaligned: it will be run on misaligned inputs too.
        before: what a file that includes `kernel` has above that include.
    """

    language: Language
    kernel: SourceFile
    workload: SourceFile | None
    launch: SourceFile | None
    device: Device
    options: BuildOptions
    cache: CacheFolder
    triton_cache: Path
    processes: int
    misaligned: bool
    before: SourceFile | None = None

    def answered_by(self, role: BuildRole) -> CandidateBuild:
        return role.build(self)


class CompileRole(Protocol):
    """The requests that a compile worker answers."""

    def compile_alone(self, request: "CompileAlone", /) -> CandidateBuild: ...
    def build_own_kernels(self, request: "BuildOwnKernels", /) -> Binary: ...


class CompileAlone(Request[CompileRole, CandidateBuild], frozen=True, kw_only=True):
    """Compile all kernels of a CUDA file that no workload launches, which needs neither torch nor the user's code.

    Attributes:
        kernel: the kernel file.
        arch: what to build for, such as `sm_90`.
        options: the user's own compiler options.
        cache: of builds.
        including: files that include a header, see `including_files`.
        before: what one of them has above that include.
    """

    kernel: SourceFile
    arch: str
    options: BuildOptions
    cache: CacheFolder
    including: tuple[SourceFile, ...] = ()
    before: SourceFile | None = None

    def answered_by(self, role: CompileRole) -> CandidateBuild:
        return role.compile_alone(self)


class BuildExtension(Request[BuildRole, ExtensionBuild | str], frozen=True, kw_only=True):
    """Build an extension on the fast path without running its code; the answer is a reason if that is impossible.

    `origin` is the file whose text holds the sources, so that messages name its lines.
    """

    extension: ExtensionRequest
    origin: SourceFile
    arch: str
    options: BuildOptions
    cache: CacheFolder

    def answered_by(self, role: BuildRole) -> ExtensionBuild | str:
        return role.build_extension(self)


class BuildExtensionFully(Request[BuildRole, ExtensionBuild], frozen=True, kw_only=True):
    """Build an extension as torch does, which takes minutes and runs its code.

    `reason` is what keeps it from the fast path; `folder` is where its library is left.
    """

    extension: ExtensionRequest
    origin: SourceFile
    arch: str
    options: BuildOptions
    folder: Path
    reason: str

    def answered_by(self, role: BuildRole) -> ExtensionBuild:
        return role.build_extension_fully(self)


class BuildOwnKernels(Request[CompileRole, Binary], frozen=True, kw_only=True):
    """Build the kernels of `device/NAME.cu`, which belong to this program."""

    name: str
    arch: str
    cache: CacheFolder

    def answered_by(self, role: CompileRole) -> Binary:
        return role.build_own_kernels(self)


class PrepareHeader(Request[BuildRole, None], frozen=True, kw_only=True):
    """Precompile the header that every extension on the fast path includes, into a folder of builds."""

    folder: Path

    def answered_by(self, role: BuildRole) -> None:
        role.prepare_header(self)
