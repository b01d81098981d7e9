"""Bugs to plant in the CUDA text of a Python file."""

from collections.abc import Iterable

from kernel_lsp.source.modules import device_view
from kernel_lsp.source.mutations import Mutation, Planter
from kernel_lsp.source.mutations.cuda import find


def _find(text: str) -> Iterable[Mutation]:
    return find(device_view(text))


PART: Planter = _find
