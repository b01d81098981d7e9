"""A candidate's build as those know it who had it made: one record of all that came out, whatever the language."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.assumed import Assumed
from kernel_lsp.compiler.binary import Binary, Build, Diagnostic, Severity
from kernel_lsp.compiler.cubin import code_digest
from kernel_lsp.compiler.host.record import ExtensionBuild
from kernel_lsp.compiler.plan import Plan
from kernel_lsp.compiler.target import needs_gpu
from kernel_lsp.compiler.together import apart, launches_of, together
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.host_launches import find_host_launches
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import device_units


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate's build: the binary or why there is none, the launches each case makes, and where files were left.

    Attributes:
        build: what the compiler made and said.
        plans: the launches of each case.
        extensions: with host code that is called: the torch extension that a CUDA file is, or those that a Python
            file asks for.
        binaries: Triton: each compilation by itself, in the order of `build.binary.kernels`.
        host_texts: what a Python file gives to `load_inline` and `load`, as far as may be on its lines.
        assumed: what kernels that no workload launches were compiled for, and why others were not.
        lasting: True where building the same text again would end the same; a process that died says nothing lasting.
    """

    build: Build
    plans: tuple[Plan, ...]
    extensions: tuple[ExtensionBuild, ...] = ()
    binaries: tuple[Binary, ...] = ()
    host_texts: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    lasting: bool = True

    @property
    def images(self) -> tuple[Binary, ...]:
        """Every piece of machine code there is."""
        return self.binaries or ((self.build.binary,) if self.build.binary else ())

    @property
    def digests(self) -> tuple[str, ...]:
        """Hashes of the machine code of each."""
        return tuple(code_digest(image.cubin) for image in self.images)

    @property
    def arch(self) -> str:
        """What the device code was compiled for, `sm_90a` where it asks for that; empty where there is none."""
        targets = (*(image.arch for image in self.images), *(one.host.arch for one in self.extensions))
        return next(filter(None, targets), "")

    @property
    def needs_gpu(self) -> bool:
        """Whether its code holds instructions that only a GPU can run."""
        return any(needs_gpu(image.ptx) for image in self.images)

    @property
    def ok(self) -> bool:
        """True if there is something to run."""
        if self.extensions:
            return all(extension.ok for extension in self.extensions)
        if self.build.way == "torch":
            return not self.build.diagnostics
        return self.build.binary is not None

    @property
    def code(self) -> str | None:
        """Hash of what runs on the GPU and how it is launched; None where not all is known (Triton, extensions).

        Two versions of one hash are the same program, whatever their texts say.
        """
        binary = self.build.binary
        if binary is None or self.extensions or self.build.way == "triton":
            return None
        return hashlib.sha256(f"{code_digest(binary.cubin)} {self.plans}".encode()).hexdigest()

    @property
    def first_error(self) -> str:
        """The first error as a person would be told it."""
        for diagnostic in self.build.diagnostics:
            if diagnostic.severity is Severity.ERROR:
                return f"{Path(diagnostic.path).name}:{diagnostic.line}: {diagnostic.message}"
        return "the compiler failed without a message"


def failed(candidate: Candidate, message: str, *, lasting: bool = True) -> Built:
    """Return the build of a candidate that came to nothing, with one error at its first line."""
    diagnostic = Diagnostic(str(candidate.kernel.path), 1, 1, 1, 1, Severity.ERROR, message)
    return Built(Build(None, (diagnostic,), "none", 0.0), (), lasting=lasting)


def in_given_terms(built: Built, candidate: Candidate) -> Built:
    """Return a build whose messages name the kernel file as the candidate does, not by its absolute path."""
    given, absolute = str(candidate.kernel.path), str(candidate.kernel.path.absolute())
    said = tuple(replace(d, path=given) if d.path == absolute else d for d in built.build.diagnostics)
    return replace(built, build=replace(built.build, diagnostics=said))


def with_extensions(built: Built, extensions: Sequence[ExtensionBuild], candidate: Candidate) -> Built:
    """Join a candidate's build with the extensions that it asks for: the one that a CUDA file is, or any number."""
    if not source_part(candidate.language).python:
        return replace(built, build=extensions[0].build, extensions=tuple(extensions))
    taken: dict[str, int] = {}
    binaries = [apart(extension.binary, taken) for extension in extensions if extension.binary is not None]
    merged = together([extension.build for extension in extensions], binaries)
    written = [launch for unit in device_units(candidate.kernel.text) for launch in find_host_launches(unit.text)]
    launches = tuple(launch for b in binaries for kernel in b.kernels for launch in launches_of(kernel, written))
    return replace(
        built,
        build=replace(merged, seconds=merged.seconds + built.build.seconds),
        plans=(Plan(0, launches),),
        extensions=tuple(extensions),
        binaries=tuple(binaries),
    )
