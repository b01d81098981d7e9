"""How a KernelBench problem builds and calls its model on one case, as plain data for processes without torch too."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """How a problem builds and calls its model on one case.

    Attributes:
        init: arguments of the constructor, as a Python literal.
        tree: how inputs are nested, as `torch.utils._pytree` writes it.
        fixed: inputs that are neither tensors nor numbers, by position, as Python literals.
        inputs: how many of the leaves are inputs; the rest are weights.
        weights: their names.
        forms: their types and shapes, as `answer.form` writes them.
        seed: of the random numbers that the constructor draws.
        constants: the problem's sizes, where they are other than `written`.
        written: all of its sizes as written.
    """

    init: str
    tree: str
    fixed: tuple[tuple[int, str], ...]
    inputs: int
    weights: tuple[str, ...]
    forms: tuple[str, ...]
    seed: int
    constants: Mapping[str, int]
    written: Mapping[str, int]
