"""Mutations: bugs planted one at a time in the kernels of a file, to test a workload's checks.

Text and syntax only. A mutation may not compile, or may not change the program; building and running it shows that.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import cast

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import part_of
from kernel_lsp.source.mutations.mutation import Bug, Mutation

__all__ = ["MOST_OF_A_KIND", "Bug", "Mutation", "Planter", "find_mutations"]

Planter = Callable[[str], Iterable[Mutation]]
"""A language's mutator: returns the mutations of a text's kernels, with spans of that text."""

MOST_OF_A_KIND = 6
"""The most mutations of one kind in one function; if there could be more, they are spread over it."""


def find_mutations(source: SourceFile, language: Language) -> tuple[Mutation, ...]:
    """Return the mutations of a kernel file, in the order of its lines; no two give the same text."""
    from kernel_lsp.source.mutations.planting import spread

    found = cast(Planter, part_of(language, "mutations"))(source.text)
    different = {mutation.applied_to(source.text): mutation for mutation in reversed(list(found))}
    different.pop(source.text, None)

    def kind(mutation: Mutation) -> tuple[str, str]:
        return mutation.function, mutation.bug

    chosen: list[Mutation] = []
    for _, alike in groupby(sorted(different.values(), key=kind), kind):
        chosen += spread(sorted(alike, key=lambda m: m.edits), MOST_OF_A_KIND)
    return tuple(sorted(chosen, key=lambda m: (m.line, m.edits, m.bug)))
