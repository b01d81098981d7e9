"""The place of a guard: what a language's part of guarded dispatch is given, and what it says of a change."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Protocol

from kernel_lsp.compiler.builds.plan import Launch
from kernel_lsp.device.tensors import Argument
from kernel_lsp.refine.guards.predicate import GuardQuantity, Predicate, Term
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.workload.spec import WorkloadFile

_COLUMNS = 100


class NotGuardedError(Exception):
    """No guard can be written for a change; the message says why, for a person."""


@dataclass(frozen=True, slots=True)
class SeenCase:
    """One timed case, as far as it is known.

    Attributes:
        parameters: those of its entries in CASES that are whole numbers.
        arguments: the leaves of its inputs, in order.
        launches: the baseline's; none where they are not known.
    """

    parameters: dict[str, int]
    arguments: tuple[Argument, ...]
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class VariantChange:
    """A variant of a file, its workload, and what is known of the timed cases."""

    base: Candidate
    variant: Candidate
    workload: WorkloadFile
    cases: tuple[SeenCase, ...]

    @property
    def launch_text(self) -> str:
        """Return the text that holds the workload's `launch`."""
        return self.base.launch.text if self.base.launch is not None else self.workload.source.text


class Guards(Protocol):
    """Guarded dispatch in one language."""

    def quantities(self, change: VariantChange) -> list[GuardQuantity]:
        """Return what a condition may ask at the place of the guard, those to prefer first.

        Raises:
            NotGuardedError: there is no such place.
        """
        ...

    def write(self, change: VariantChange, predicate: Predicate, why: str) -> str:
        """Return the file's text with the variant beside the old text, behind a condition.

        Nothing of the old text is taken away or changed: without what was put in, it is the same byte for byte.

        Args:
            change: the variant.
            predicate: of the quantities of this change.
            why: sentences for the comment above the condition.

        Raises:
            NotGuardedError: the change cannot stand beside the old text.
        """
        ...


def distinct(quantities: Sequence[GuardQuantity], cases: Sequence[SeenCase]) -> list[GuardQuantity]:
    """Return the quantities that differ between cases, each once, under the name of the case's parameter it equals.

    Of several with equal values the first stays.
    """
    found: dict[tuple[object, ...], GuardQuantity] = {}
    for quantity in quantities:
        if len(set(quantity.values)) < 2:
            continue
        names = set[str].intersection(*(set(case.parameters) for case in cases))
        own = [name for name in sorted(names) if tuple(case.parameters[name] for case in cases) == quantity.values]
        parameter = next((name for name in own if name == quantity.text), own[0] if own else "")
        named = GuardQuantity(quantity.text, parameter or quantity.name, quantity.kind, quantity.values, parameter)
        found.setdefault((quantity.kind, quantity.values), named)
    return list(found.values())


def suffix(predicate: Predicate) -> str:
    """Return the part of a name that tells a condition: `rows_from_4096`, `cols_by_4`, `x_float16`."""
    return f"_{predicate.joined}_".join(map(_told, predicate.terms))


def _told(term: Term) -> str:
    between = {">=": "from_", "<": "below_", "%": "by_", "==": "", "!=": "not_"}[term.operator]
    name = re.sub(r"\W+", "_", term.quantity.name.removesuffix(".dtype").replace(".shape", "")).strip("_")
    return f"{name}_{between}{term.value}"


def comment(why: str, mark: str, indent: str) -> list[str]:
    """Return the lines of a comment, which begin with `mark` and are indented."""
    return wrap(why, _COLUMNS, initial_indent=f"{indent}{mark} ", subsequent_indent=f"{indent}{mark} ")
