"""One set of inputs, as the parent knows it: what it is called and how it lies in memory, not its values."""

import zlib
from dataclasses import dataclass

from kernel_lsp.device.tensors import Argument, TensorSpec
from kernel_lsp.runner import messages

PLAIN, WEIGHTS, TOUCHED = "normal", "weights", "touched"
"""Families of inputs: as the workload makes them; with other weights; different from earlier ones in a few elements."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs that the oracle has made: `arguments` say how they lie in memory, not what they are.

    Weights of a KernelBench problem are as its `Model` constructs them but for `changed_weights`.
    """

    key: str
    case: int
    family: str
    arguments: tuple[Argument, ...]
    nbytes: int
    input_bytes: int
    changed_weights: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True for inputs as the workload makes them."""
        return self.family == PLAIN

    @property
    def may_pick(self) -> bool:
        """True where integers among the inputs may pick what is read of the others, as of a table."""
        tensors = [argument for argument in self.arguments if isinstance(argument, TensorSpec)]
        return len(tensors) > 1 and any(tensor.holds_integers for tensor in tensors)

    @property
    def slab(self) -> str:
        """Name of the memory for it: inputs of one case share it, unless their layout or numbers differ."""
        return f"{self.case}/{zlib.crc32(messages.encode(self.arguments)):08x}"
