"""Make inputs with another value of one argument for which the reference still has a comparable answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages.oracle import Vary
from kernel_lsp.runner.messages.oracle_answers import Varied
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.runner.workers.input_sets import InputSets
from kernel_lsp.workload.leaves import Leaf, Leaves, own_elements
from kernel_lsp.workload.other_values import all_different, is_varied_often

UNKNOWN = "no other value of it is known"
SAME = "the right answer is the same whatever it holds"
OTHER_SHAPE = "another value changes the shape of the right answer, as a size does"
NOT_FINITE = "the right answer is no longer finite with another value"
FIXED = "CONTRACT says that it is fixed"
ORDERED = "places to write to have no right answer where two are one"
UNTRIED = "it may be an index, which would have to be tried on the CPU first, where inputs of this size take too long"


class Variation:
    """Makes varied inputs for one oracle."""

    def __init__(self, inputs: InputSets, device: str) -> None:
        """Take the sets of inputs; `device` is `cuda` or `cpu`."""
        self._inputs, self._device = inputs, device
        self._harm: dict[tuple[int, int], str] = {}
        self._picking: dict[int, bool] = {}

    def vary(self, request: Vary) -> Varied:
        """Keep inputs with the next value that changes the right answer; the answer says why there is none."""
        draws, base = self._inputs.draws, self._inputs[request.base]
        if draws.workload.contract.promise(draws.workload.argument_names[request.argument]).fixed:
            return Varied(why=FIXED)
        reasons: list[str] = []
        value = self._inputs.leaves(request.base)[request.argument]
        for attempt in range(request.first, policy.OTHER_VALUES_TRIED):

            def make(attempt: int = attempt) -> Leaves | None:
                return draws.vary(base.case, self._inputs.leaves(request.base), request.argument, request.seed, attempt)

            if (leaves := make()) is None:
                break
            why = self._harmful(value, request.argument, attempt)
            if not why and _repeats(leaves[request.argument], value) and not self._only_picks(request.argument):
                why = ORDERED
            if not why:
                varied = replace(base, coarse=False, make=partial(_some, make))
                made = self._inputs.keep(request.key, varied, leaves)
                if not (why := self._unlike(request.key, request.base)):
                    return Varied(made, matters=True, next=attempt + 1 if is_varied_often(value) else 0)
                self._inputs.drop(request.key)
            reasons.append(why)
        return Varied(why=reasons[0] if reasons else UNKNOWN)

    def _unlike(self, key: str, base: str) -> str:
        """Return why the right answer to varied inputs is of no use: invalid, or unchanged; empty if it is of use."""
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

        An index out of bounds would make the GPU unusable for this process. On the CPU it is an ordinary error, so the
        smallest case is tried there.
        """
        if self._device == "cpu" or not _may_be_index(value):
            return ""
        if (argument, attempt) not in self._harm:
            self._harm[argument, attempt] = self._tried_on_cpu(argument, attempt)
        return self._harm[argument, attempt]

    def _tried_on_cpu(self, argument: int, attempt: int) -> str:
        try:
            if (small := self._on_cpu()) is None:
                return UNTRIED
            draws, case, base = small
            varied = draws.vary(case, base, argument, 1, attempt)
            if varied is None:
                return UNKNOWN
            usual, other = _answer(draws, case, base), _answer(draws, case, varied)
        except Exception as error:  # the user's code may raise anything
            return f"with another value the reference raised {type(error).__name__} on the CPU"
        return _unlike(other, usual)

    def _only_picks(self, argument: int) -> bool:
        """Return True if integers select what is read, so that one value may occur twice.

        An index that selects a read affects the same elements of the answer whatever its value. An index that selects a
        write affects different ones: those at its target. So the middle one of three is set to the first, and then to
        the last one, and the affected elements are compared.
        """
        if argument not in self._picking:
            try:
                self._picking[argument] = self._seen_to_pick(argument)
            except Exception:  # the user's code may raise anything
                self._picking[argument] = False
        return self._picking[argument]

    def _seen_to_pick(self, argument: int) -> bool:
        small = self._on_cpu()
        value = small and small[2][argument]
        if small is None or not isinstance(value, Tensor) or not value.dim() or value.shape[-1] < 3:
            return False
        draws, case, base = small
        usual = _answer(draws, case, base)
        row, changed = (0,) * (value.dim() - 1), list[list[Tensor]]()
        for end in (0, value.shape[-1] - 1):
            other = value.clone()
            other[(*row, value.shape[-1] // 2)] = value[(*row, end)]
            answer = _answer(draws, case, (*base[:argument], other, *base[argument + 1 :]))
            if _unlike(answer, usual):
                return False
            changed.append([a != b for a, b in zip(answer, usual, strict=True)])
        return any(bool(one.any()) for one in changed[0]) and all(map(torch.equal, *changed))

    def _on_cpu(self) -> tuple[Draws, int, Leaves] | None:
        """Return the maker of inputs on the CPU, the smallest case, and its inputs; None if these are too large."""
        draws, case, nbytes = self._smallest
        return None if nbytes > policy.OTHER_VALUES_CPU_BYTES else (draws, case, draws.make(case, "normal", 0))

    @cached_property
    def _smallest(self) -> tuple[Draws, int, int]:
        """Return the maker of inputs on the CPU, the number of the smallest case, and its bytes."""
        draws = Draws(self._inputs.draws.workload, "cpu")
        sizes = draws.sizes()
        return draws, sizes.index(min(sizes)), min(sizes)


def _answer(draws: Draws, case: int, leaves: Leaves) -> tuple[Tensor, ...]:
    """Return the tensors that the reference of a case computes from inputs."""
    with draws.placing(), draws.gradients():
        return _tensors(draws.workload.reference_on(draws.workload.cases[case])(*leaves))


def _repeats(other: Leaf, value: Leaf) -> bool:
    """Return True for integers of which some are equal now where all were different."""
    if not (isinstance(other, Tensor) and isinstance(value, Tensor)) or not _may_be_index(value):
        return False
    return all_different(own_elements(value)) and not all_different(own_elements(other))


def _some(make: Callable[[], Leaves | None]) -> Leaves:
    """Return inputs that could be made before."""
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
