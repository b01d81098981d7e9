"""The compilers' results for a text, as features show them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.source.kernel import Kernel


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """The resources of one kernel on one architecture; see `judge.verdict.KernelResources`."""

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int | None
    stack_bytes: int
    threads: int | None
    occupancy: float | None
    limiter: str | None


@dataclass(frozen=True)
class CompiledText:
    """The compilers' result for one text on one architecture."""

    arch: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]
    kernels: tuple[CompiledKernel, ...]

    @property
    def has_errors(self) -> bool:
        """Return True where something of the text did not compile: some of its kernels, or all."""
        return not self.ok or any(said.severity is Severity.ERROR for said in self.diagnostics)

    def with_kernels_of(self, earlier: "CompiledText") -> "CompiledText":
        """Return the result with kernels besides that only an earlier one has."""
        kept = (fact for name, facts in earlier._by_kernel.items() if name not in self._by_kernel for fact in facts)
        return replace(self, kernels=(*self.kernels, *kept))

    def instances(self, kernel: str) -> list[CompiledKernel]:
        """Return the instances of a kernel: one, or several for different template arguments or constants."""
        return self._by_kernel.get(kernel, [])

    @cached_property
    def _by_kernel(self) -> dict[str, list[CompiledKernel]]:
        """Return the kernels by name without template arguments (`k<float, 4>`) and constants (`k[BLOCK=128]`)."""
        found: dict[str, list[CompiledKernel]] = {}
        for fact in self.kernels:
            found.setdefault(fact.name.partition("<")[0].partition("[")[0], []).append(fact)
        return found


@dataclass(frozen=True, slots=True)
class MachineLine:
    """The machine code of one line in one kernel; see `kinds.analyse.Line`."""

    line: int
    arch: str
    kernel: str
    live: int
    code: tuple[str, ...]


def facts_of(found: Sequence[CompiledText], kernel: Kernel) -> list[tuple[str, CompiledKernel]]:
    """Return a kernel's facts with their architecture; several if it is built in several instances."""
    return [(one.arch, fact) for one in found for fact in one.instances(kernel.name)]
