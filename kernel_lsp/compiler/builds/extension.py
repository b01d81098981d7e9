"""Records of an extension's build, which any process may hold."""

from dataclasses import dataclass, field
from typing import Literal

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.machine_code.binary import Binary

Way = Literal["fast", "full"]


@dataclass(frozen=True, slots=True)
class HostBuild:
    """How an extension was built.

    Attributes:
        path: `fast` with the thin header and NVRTC, `full` with torch's own headers and nvcc.
        reason: why the fast build was not possible; empty if it was used.
        seconds_host: wall time spent on the host code.
        seconds_device: wall time spent on the device code; 0 on the full path, which compiles both at once.
        cached_host: True if the host code came from the cache.
        cached_device: True if the device code did.
        arch: architecture of the device code; empty if there is none or it does not compile.
    """

    path: Way
    reason: str = ""
    seconds_host: float = 0.0
    seconds_device: float = 0.0
    cached_host: bool = False
    cached_device: bool = False
    arch: str = ""


@dataclass(frozen=True, slots=True)
class Launchable:
    """A kernel that a host library can launch.

    Attributes:
        start: offset of the stub's code in the library.
        end: end of the stub's code, exclusive.
        entry: symbol in the cubin.
        name: as a launch would write it.
        parameters: names of its parameters.
    """

    start: int
    end: int
    entry: str
    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExtensionBuild:
    """An extension, built or not.

    Attributes:
        digest: of the request.
        name: name that the caller gave it.
        host: how it was built.
        build: on the fast path the device code's build, with all messages; on the full path the build of both.
        library: fast path: ELF image of the host code.
        kernels: fast path: the kernels that the library launches.
        extension: full path: the shared object that is a Python module.
    """

    digest: str
    name: str
    host: HostBuild
    build: Build
    library: bytes | None = field(default=None, repr=False)
    kernels: tuple[Launchable, ...] = ()
    extension: str | None = None

    @property
    def ok(self) -> bool:
        """Return True if there is something to load."""
        return self.library is not None or self.extension is not None

    @property
    def binary(self) -> Binary | None:
        """Return the device code, on the fast path; None on the full path, whose library contains it."""
        return self.build.binary
