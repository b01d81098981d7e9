"""The proposers of candidates, by their names in the setting `refine.proposers`."""

import importlib
from collections.abc import Callable, Sequence
from typing import cast

from kernel_lsp.device.device import Device
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.proposer import Proposer
from kernel_lsp.refine.proposers.rewriter import Rewriter
from kernel_lsp.refine.proposers.tuner import Tuner
from kernel_lsp.source.candidate import Candidate

MakeProposers = Callable[[Candidate, Sequence[str], int], Sequence[Proposer]]
"""A factory: returns proposers for the kernels named, in the file given; none where nothing applies.

Called once for each file that the search goes on from; the last argument is the seed of whatever is random.
"""


def rewriter_for(device: Device) -> MakeProposers:
    """Return a factory for the proposer of every applicable rewrite; nothing in it is random."""
    return lambda base, kernels, _: [Rewriter(base, kernels, device)]


def tuners_for(device: Device) -> MakeProposers:
    """Return a factory that makes a tuner for each kernel with tunables."""

    def make(base: Candidate, kernels: Sequence[str], seed: int) -> Sequence[Proposer]:
        spaces = [find_tunables(base, kernel, device) for kernel in kernels]
        return [Tuner(space, seed) for space in spaces if space.tunables]

    return make


BUILT_IN: dict[str, Callable[[Device], MakeProposers]] = {"rewriter": rewriter_for, "tuner": tuners_for}


def find_proposers(names: Sequence[str], device: Device) -> tuple[MakeProposers, ...]:
    """Return the factory for each name; `module:name` is imported, so call this where importing is allowed.

    Args:
        names: as in the setting `refine.proposers`.
        device: the one that candidates are to be fast on.

    Raises:
        ConfigurationError: there is no such module, no such function in it, or importing it fails.
    """
    return tuple(BUILT_IN[name](device) if name in BUILT_IN else _imported(name) for name in names)


def _imported(name: str) -> MakeProposers:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:
        why = f"`{name}` in `refine.proposers` cannot be used: {error}."
        raise ConfigurationError(why, fix="Name a function that this Python can import, as `module:name`.") from None
    if not callable(found):
        raise ConfigurationError(f"`{name}` in `refine.proposers` is not a function.")
    return cast(MakeProposers, found)
