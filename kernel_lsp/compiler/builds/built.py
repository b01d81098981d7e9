"""The build of a candidate in one record, the same for all languages."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.builds.merging import launches_of, merged_build, with_unique_symbols
from kernel_lsp.compiler.builds.plan import LaunchTrace
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.machine_code.cubin import code_digest
from kernel_lsp.compiler.toolchain.target import is_modern
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.host_launches import find_host_launches
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import device_units


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate's build: the binary or why there is none, the launches each case makes, and where files were left.

    Attributes:
        build: the compiler's result and messages.
        plans: the launches of each case.
        extensions: torch extensions, where host code is called: the one made of a CUDA file, or all that a
            Python file asks for.
        binaries: Triton: each compilation by itself, in the order of `build.binary.kernels`.
        host_texts: C++ and CUDA texts that a Python file passes to `load_inline` and `load`, where they stand in it,
            each followed by the macros that options define.
        host_options: options for extensions that could bring or hide code (`compiler.host.options`) and that the
            baseline does not ask for; nothing is built with them.
        assumed: kernels that no workload launches: the types assumed for each, or why it was not compiled.
        lasting: True if the same text always builds to the same result; False, for one, after a worker died.
    """

    build: Build
    plans: tuple[LaunchTrace, ...]
    extensions: tuple[ExtensionBuild, ...] = ()
    binaries: tuple[Binary, ...] = ()
    host_texts: tuple[str, ...] = ()
    host_options: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    lasting: bool = True

    @property
    def images(self) -> tuple[Binary, ...]:
        """Return every piece of machine code of this build."""
        return self.binaries or ((self.build.binary,) if self.build.binary else ())

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the hash of each of `images`; see `code_digest`."""
        return tuple(code_digest(image.cubin) for image in self.images)

    @property
    def arch(self) -> str:
        """Return the architecture of the device code, `sm_90` or `sm_90a`; empty if there is no device code."""
        targets = (*(image.arch for image in self.images), *(one.host.arch for one in self.extensions))
        return next(filter(None, targets), "")

    @property
    def is_modern(self) -> bool:
        """Return True if the code has instructions that came with Hopper or later: see `target.is_modern`."""
        return any(is_modern(image.ptx) for image in self.images)

    @property
    def ok(self) -> bool:
        """Return True if there is something to run."""
        if self.extensions:
            return all(extension.ok for extension in self.extensions)
        if self.build.way == "torch":
            return not self.build.diagnostics
        return self.build.binary is not None

    @property
    def code(self) -> str | None:
        """Return a hash of the device code and its launches; None where these are not fully known (Triton, extensions).

        Two versions with the same hash are the same program, however their texts differ.
        """
        binary = self.build.binary
        if binary is None or self.extensions or self.build.way == "triton":
            return None
        return hashlib.sha256(f"{code_digest(binary.cubin)} {self.plans}".encode()).hexdigest()

    @property
    def first_error(self) -> str:
        """Return the first error as `file:line: message`."""
        for diagnostic in self.build.diagnostics:
            if diagnostic.severity is Severity.ERROR:
                return f"{Path(diagnostic.path).name}:{diagnostic.line}: {diagnostic.message}"
        return "the compiler failed without a message"


def failed(candidate: Candidate, message: str, *, lasting: bool = True) -> Built:
    """Return the failed build of a candidate, with `message` as the one error, at the first line of the kernel file."""
    diagnostic = Diagnostic(str(candidate.kernel.path), 1, 1, 1, 1, Severity.ERROR, message)
    return Built(Build(None, (diagnostic,), "none", 0.0), (), lasting=lasting)


def in_given_terms(built: Built, candidate: Candidate) -> Built:
    """Return the build with the kernel file's path in messages as the candidate gives it, not made absolute."""
    given, absolute = str(candidate.kernel.path), str(candidate.kernel.path.absolute())
    said = tuple(replace(d, path=given) if d.path == absolute else d for d in built.build.diagnostics)
    return replace(built, build=replace(built.build, diagnostics=said))


def with_extensions(built: Built, extensions: Sequence[ExtensionBuild], candidate: Candidate) -> Built:
    """Return a candidate's build joined with its torch extensions: one for a CUDA file, any number for Python."""
    if not source_part(candidate.language).python:
        return replace(built, build=extensions[0].build, extensions=tuple(extensions))
    taken: dict[str, int] = {}
    binaries = [with_unique_symbols(one.binary, taken) for one in extensions if one.binary is not None]
    merged = merged_build([extension.build for extension in extensions], binaries)
    written = [launch for unit in device_units(candidate.kernel.text) for launch in find_host_launches(unit.text)]
    launches = tuple(launch for b in binaries for kernel in b.kernels for launch in launches_of(kernel, written))
    return replace(
        built,
        build=replace(merged, seconds=merged.seconds + built.build.seconds),
        plans=(LaunchTrace(0, launches),),
        extensions=tuple(extensions),
        binaries=tuple(binaries),
    )
