"""No bugs are planted in CuTe DSL yet."""

from collections.abc import Iterable

from kernel_lsp.source.mutations import Mutation, Planter


def _find(text: str) -> Iterable[Mutation]:
    return ()


PART: Planter = _find
