"""Bugs to plant in Triton."""

from kernel_lsp.source.mutations import Planter
from kernel_lsp.source.mutations.triton import find

PART: Planter = find
