"""Bugs to plant in CUDA."""

from kernel_lsp.source.mutations import Planter
from kernel_lsp.source.mutations.cuda import find

PART: Planter = find
