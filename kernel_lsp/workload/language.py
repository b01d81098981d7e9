"""The protocol by which a language drafts a workload: a kernel's arguments, and its launch."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import part_of
from kernel_lsp.workload.array_indices import ArrayIndex

PRODUCT = re.compile(r"(?i)gemm|mat(?:rix)?_?mul")
"""A name of a kernel that multiplies matrices."""
_SMALL = re.compile(r"(?i)eps|.*epsilon$")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the drafted call.

    `role` is `input`, `output`, `extent` (a size), `number`, `constant`, or `open` where the file does not say, with
    the question in `value`; `shape` has the names of a tensor's extents; a `mutated` input is also written; `index` is
    there where a tensor has one element for each row or column of a matrix.
    """

    name: str
    role: str
    dtype: str = "torch.float32"
    value: str = ""
    shape: tuple[str, ...] = ()
    mutated: bool = False
    index: ArrayIndex | None = None

    @property
    def is_tensor(self) -> bool:
        """Return True if it is read or written as a tensor."""
        return self.role in ("input", "output")


@dataclass(frozen=True, slots=True)
class DraftedCall:
    """The drafted call: its arguments, and `shape`, the extents of the work."""

    arguments: tuple[Argument, ...]
    shape: tuple[str, ...]

    def of(self, *roles: str) -> tuple[Argument, ...]:
        """Return the arguments that have one of these roles."""
        return tuple(a for a in self.arguments if a.role in roles)

    @property
    def given(self) -> tuple[Argument, ...]:
        """Return the arguments that `inputs` makes: tensors that are read, numbers, and sizes that no tensor has."""
        carried = {name for a in self.of("input") for name in a.shape}
        found = self.of("input", "number", "extent", "open")
        return tuple(a for a in found if a.role != "extent" or a.name not in carried)

    @property
    def cases(self) -> tuple[str, ...]:
        """Return the names of all sizes, those of the work first."""
        names = [*self.shape, *(n for a in self.arguments for n in a.shape), *(a.name for a in self.of("extent"))]
        return tuple(dict.fromkeys(names))

    @property
    def returned(self) -> tuple[str, ...]:
        """Return the names of the tensors that are written."""
        return tuple(a.name for a in self.arguments if a.role == "output" or a.mutated)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A call, as far as it can be guessed from a file.

    Attributes:
        arguments: arguments of the call, in order.
        launch: returns the lines that launch a plan's kernel on tensors of the plan's names.
        shaped: True if the arguments have their shapes; else these are guessed from names.
        shape: the extents of the work, where the arguments have their shapes and the launch depends on it.
        row_length: of two extents the one that a row has, where indices tell; else empty.
        returned: expression of the launch's result; empty if it returns all that is written.
        multiples: extent -> what it has to be a multiple of, where the file says so.
        known: extent -> its only size, where the file fixes it.
        reference: expression of the right result, where the file has one; else empty.
        functions: text of the functions that `reference` calls.
        formula: returns the expression that the kernel's own text computes on a plan's tensors; empty where it tells
            none.
    """

    arguments: Sequence[Argument]
    launch: Callable[[DraftedCall], Sequence[str]]
    shaped: bool = False
    shape: tuple[str, ...] = ()
    row_length: str = ""
    returned: str = ""
    multiples: Mapping[str, int] = field(default_factory=dict[str, int])
    known: Mapping[str, int] = field(default_factory=dict[str, int])
    reference: str = ""
    functions: str = ""
    formula: Callable[[DraftedCall], str] = lambda plan: ""


class WorkloadPart(Protocol):
    """How kernels in one language are called."""

    def draft(self, source: SourceFile, kernel: Kernel) -> Drafted:
        """Return how a kernel of a file is called, as far as its text tells."""
        ...


@cache
def workload_part(language: Language) -> WorkloadPart:
    """Return how kernels in a language are called."""
    return part_of(language, "workload")


def is_small(name: str) -> bool:
    """Return True if a parameter's name says that it is an epsilon, added to others to keep them from zero."""
    return _SMALL.match(name) is not None


def value_of(name: str) -> str:
    """Return a value for a number of that name, as text."""
    return "1e-6" if is_small(name) else "1.5"
