"""What came of building an extension, as records that every process may hold."""

from dataclasses import dataclass, field
from typing import Literal

from kernel_lsp.compiler.binary import Binary, Build

Way = Literal["fast", "full"]


@dataclass(frozen=True, slots=True)
class HostBuild:
    """Which way an extension was built.

    Attributes:
        path: `fast` with the thin header and NVRTC, `full` with torch's own headers and nvcc.
        reason: why it could not be the fast one; empty on that.
        seconds_host: wall time spent on the host code.
        seconds_device: wall time spent on the device code; 0 on the full path, which makes both at once.
        cached_host: whether the host code was found built.
        cached_device: whether the device code was.
        arch: what the device code was compiled for; empty where there is none, or where it does not compile.
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
    """A kernel as its host stub finds it.

    Attributes:
        start: offset of the stub's code in the library.
        end: past it.
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
        name: as the caller calls it.
        host: which way it went.
        build: of the device code on the fast path, with all messages; of the whole on the full one.
        library: fast path: ELF image of the host code.
        kernels: fast path: what the library launches.
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
        """Whether there is something to load."""
        return self.library is not None or self.extension is not None

    @property
    def binary(self) -> Binary | None:
        """The machine code, where it lies apart."""
        return self.build.binary
