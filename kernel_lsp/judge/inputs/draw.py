"""A set of inputs as the parent process knows it: its name and memory layout, not its values."""

import zlib
from dataclasses import dataclass

from kernel_lsp.device.tensors import Argument, TensorSpec
from kernel_lsp.runner import messages

PLAIN, WEIGHTS, TOUCHED = "normal", "weights", "touched"
"""Families of inputs: as the workload makes them; with other weights; different from earlier ones in a few elements."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs that the oracle made; `arguments` describe its memory layout, not its values.

    Weights of a KernelBench problem are as its `Model` constructs them, except for `changed_weights`.
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
        """True where an integer input may hold indices into other inputs, of which a launch may then read a part."""
        tensors = [argument for argument in self.arguments if isinstance(argument, TensorSpec)]
        return len(tensors) > 1 and any(tensor.holds_integers for tensor in tensors)

    @property
    def buffer(self) -> str:
        """Return the name of its memory: inputs of a case share memory unless their layout or scalars differ."""
        return f"{self.case}/{zlib.crc32(messages.encode(self.arguments)):08x}"
