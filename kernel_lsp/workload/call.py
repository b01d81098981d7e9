"""A KernelBench problem's model call on one case, as plain data that processes without torch can hold."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """The constructor call and `forward` call of a problem's model on one case.

    Attributes:
        init: arguments of the constructor, as a Python literal.
        tree: the nesting of the inputs, as `torch.utils._pytree` writes it.
        fixed: inputs that are neither tensors nor numbers, by position, as Python literals.
        inputs: number of leaves that are inputs; the rest are weights.
        weights: their names.
        forms: their types and shapes, as `answer.form` writes them.
        seed: seed of the random numbers that the constructor draws.
        constants: the problem's sizes that differ from `written`.
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
