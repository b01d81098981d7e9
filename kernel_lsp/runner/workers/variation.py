"""Inputs with another value of one argument, as far as the reference still has an answer of the same kind to them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages.oracle import Varied, Vary
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.runner.workers.input_sets import InputSets
from kernel_lsp.workload.leaves import Leaf, Leaves

UNKNOWN = "no other value of it is known"
SAME = "the right answer is the same whatever it holds"
OTHER_SHAPE = "another value changes the shape of the right answer, as a size does"
NOT_FINITE = "the right answer is no longer finite with another value"
UNTRIED = "it may be an index, which would have to be tried on the CPU first, where inputs of this size take too long"


class Variation:
    """Makes such inputs for one oracle."""

    def __init__(self, inputs: InputSets, device: str) -> None:
        """Take the sets of inputs; `device` is `cuda` or `cpu`."""
        self._inputs, self._device = inputs, device
        self._harm: dict[tuple[int, int], str] = {}

    def vary(self, request: Vary) -> Varied:
        """Keep inputs with the first other value that gives another right answer; the answer says why there is none."""
        draws, base = self._inputs.draws, self._inputs[request.base]
        reasons: list[str] = []
        for attempt in range(policy.OTHER_VALUES_TRIED):

            def make(attempt: int = attempt) -> Leaves | None:
                return draws.vary(base.case, self._inputs.leaves(request.base), request.argument, request.seed, attempt)

            value = self._inputs.leaves(request.base)[request.argument]
            if (leaves := make()) is None:
                break
            why = self._harmful(value, request.argument, attempt)
            if not why:
                varied = replace(base, coarse=False, make=partial(_some, make))
                made = self._inputs.keep(request.key, varied, leaves)
                if not (why := self._unlike(request.key, request.base)):
                    return Varied(made, matters=True)
                self._inputs.drop(request.key)
            reasons.append(why)
        return Varied(why=reasons[0] if reasons else UNKNOWN)

    def _unlike(self, key: str, base: str) -> str:
        """Return why the right answer to varied inputs is none to judge by; empty if it is one, and another one."""
        usual = self._inputs.expected(base)
        try:
            other = self._inputs.expected(key)
        except WorkloadError as error:
            return f"with another value {error.message}"
        if unlike := _unlike(other.outputs, usual.outputs):
            return unlike
        if usual.finite and not other.finite:
            return NOT_FINITE
        pairs = zip(other.outputs, usual.outputs, strict=True)
        return SAME if all(comparison.same_bits(a, b) for a, b in pairs) else ""

    def _harmful(self, value: Leaf, argument: int, attempt: int) -> str:
        """Return why the reference must not be run with another value of an integer; empty if it may be.

        An index out of bounds ends all that a process can do with its GPU. On the CPU it is an error like others, so
        the smallest case is tried there.
        """
        if self._device == "cpu" or not _may_be_index(value):
            return ""
        if (argument, attempt) not in self._harm:
            self._harm[argument, attempt] = self._tried_on_cpu(argument, attempt)
        return self._harm[argument, attempt]

    def _tried_on_cpu(self, argument: int, attempt: int) -> str:
        draws = Draws(self._inputs.draws.workload, "cpu")
        sizes = draws.sizes()
        case = sizes.index(min(sizes))
        if sizes[case] > policy.OTHER_VALUES_CPU_BYTES:
            return UNTRIED
        try:
            base = draws.make(case, "normal", 0)
            varied = draws.vary(case, base, argument, 1, attempt)
            if varied is None:
                return UNKNOWN
            reference = draws.workload.reference_on(draws.workload.cases[case])
            with draws.placing(), draws.gradients():
                usual, other = reference(*base), reference(*varied)
        except Exception as error:  # the user's code may raise whatever it likes
            return f"with another value the reference raised {type(error).__name__} on the CPU"
        return _unlike(_tensors(other), _tensors(usual))


def _some(make: Callable[[], Leaves | None]) -> Leaves:
    """Make inputs that could be made before."""
    return make() or ()


def _unlike(other: tuple[Tensor, ...], usual: tuple[Tensor, ...]) -> str:
    same = [tensor.shape for tensor in other] == [tensor.shape for tensor in usual]
    return "" if same else OTHER_SHAPE


def _may_be_index(value: Leaf) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() and value.dtype is not torch.bool
    return isinstance(value, int) and not isinstance(value, bool)


def _tensors(returned: object) -> tuple[Tensor, ...]:
    several = isinstance(returned, (tuple, list))
    parts = cast(Sequence[object], returned) if several else (returned,)
    return tuple(part for part in parts if isinstance(part, Tensor))
