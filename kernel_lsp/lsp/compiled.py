"""The compilers' results for a text, as features show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernel_lsp.compiler.builds.build import Diagnostic
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
