"""Those who propose candidates, by the names that the setting `refine.proposers` has for them."""

import importlib
from collections.abc import Callable, Sequence
from typing import cast

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.refine.proposer import Proposer
from kernel_lsp.refine.proposers.rewriter import Rewriter
from kernel_lsp.refine.proposers.tuner import Tuner
from kernel_lsp.refine.tunables import find_tunables
from kernel_lsp.source.candidate import Candidate

MakeProposers = Callable[[Candidate, Sequence[str], int], Sequence[Proposer]]
"""What a name stands for: proposers for the kernels named, in the file given; none where it has no idea.

Called once for each file that the search goes on from; the last argument is the seed of whatever is random.
"""


def make_rewriter(base: Candidate, kernels: Sequence[str], seed: int) -> Sequence[Proposer]:
    """Every rewrite that applies; nothing in it is random."""
    return [Rewriter(base, kernels)]


def make_tuners(base: Candidate, kernels: Sequence[str], seed: int) -> Sequence[Proposer]:
    """A tuner for each kernel that has something to turn."""
    spaces = [find_tunables(base, kernel) for kernel in kernels]
    return [Tuner(space, seed) for space in spaces if space.tunables]


BUILT_IN: dict[str, MakeProposers] = {"rewriter": make_rewriter, "tuner": make_tuners}


def find_proposers(names: Sequence[str]) -> tuple[MakeProposers, ...]:
    """What each name stands for; `module:name` is imported, so call this where that may run.

    Raises:
        ConfigurationError: there is no such module, no such function in it, or importing it fails.
    """
    return tuple(BUILT_IN[name] if name in BUILT_IN else _imported(name) for name in names)


def _imported(name: str) -> MakeProposers:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:
        why = f"`{name}` in `refine.proposers` cannot be used: {error}."
        raise ConfigurationError(why, cure="Name a function that this Python can import, as `module:name`.") from None
    if not callable(found):
        raise ConfigurationError(f"`{name}` in `refine.proposers` is not a function.")
    return cast(MakeProposers, found)
