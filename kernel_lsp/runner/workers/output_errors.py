"""Measure errors of outputs against the right answers, and derive the allowed errors from the baseline's."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_lsp.device.shared_buffer import dtype_name, torch_dtype
from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.runner.messages import OTHER_ANSWER
from kernel_lsp.runner.messages.oracle_answers import BaselineError, OutputDistance
from kernel_lsp.runner.workers import comparison, error_bounds
from kernel_lsp.runner.workers.comparison import Distance, Measure
from kernel_lsp.runner.workers.dependence import growth_of_sums, terms_by_output
from kernel_lsp.runner.workers.error_bounds import Bounds, Sums
from kernel_lsp.runner.workers.input_sets import Expected, InputSets


@dataclass(frozen=True, slots=True)
class Allowance:
    """The types and errors of the baseline's outputs on a set of inputs, and the bounds derived from them.

    Attributes:
        dtypes: by output, its type.
        scales: by output, what errors are measured by.
        distances: by output, the baseline's error.
        bounds: by output, the errors allowed.
    """

    dtypes: tuple[torch.dtype, ...]
    scales: tuple[float, ...]
    distances: tuple[Distance, ...]
    bounds: tuple[Bounds, ...]

    @property
    def errors(self) -> tuple[BaselineError, ...]:
        """Return the baseline's errors."""
        return tuple(BaselineError(distance.max, distance.rms) for distance in self.distances)


@dataclass(frozen=True, slots=True)
class MeasuredOutputs:
    """The error of each output; `blank` is True if one of them holds 0xFF bytes that might be right."""

    distances: tuple[OutputDistance, ...]
    blank: bool

    @property
    def right(self) -> bool:
        """True where no output is wrong."""
        return all(distance.index is None for distance in self.distances)


Bits = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...]]
"""Type and shape of each output, and its checksum: they tell outputs apart."""


class OutputErrors:
    """Measures outputs, and remembers by key the bounds and the checksums that were right."""

    def __init__(self, inputs: InputSets, factor: float, slack: float, *, plain: bool) -> None:
        """Take the inputs and right answers; for the other parameters see `error_bounds.relative_bounds`."""
        self._inputs, self._factor, self._slack, self._plain = inputs, factor, slack, plain
        self._allowances: dict[str, Allowance] = {}
        self._right: defaultdict[str, dict[Bits, MeasuredOutputs]] = defaultdict(dict)
        self._terms_by_case: dict[int, tuple[float, ...]] = {}
        self.measure: Measure | None = None

    def forget(self, key: str) -> None:
        """Forget the checksums that were right for `key`, because its inputs have changed."""
        self._right.pop(key, None)

    def allow_as(self, key: str, like: str) -> None:
        """Use the bounds of `like` for outputs on `key`, if the baseline was measured there."""
        if like in self._allowances:
            self._allowances[key] = self._allowances[like]

    def allowance(self, key: str) -> Allowance:
        """Return the bounds for outputs on the inputs of `key`; the baseline was measured on them before."""
        return self._allowances[key]

    def rehearse(self, key: str) -> None:
        """Find the right answers to the inputs of `key`, and compare them with themselves.

        The first comparison loads the GPU's code for it, which takes half a second: `of_baseline` finds it there.
        """
        for truth, _ in zip(self._inputs.expected(key).outputs, self._terms(key), strict=True):
            self.by_scale(truth, truth, Bounds(math.inf, math.inf))

    def of_baseline(self, key: str, specs: Sequence[TensorSpec], outputs: Sequence[Tensor]) -> MeasuredOutputs | str:
        """Measure the baseline's outputs and derive the bounds for other versions.

        Returns the errors, or a sentence on why outputs and right answers cannot be compared.
        """
        self.forget(key)
        workload, coarse = self._inputs.draws.workload, self._inputs[key].coarse
        if not workload.has_reference:
            self._inputs.take_as_right(key, outputs)
        expected = self._inputs.expected(key)
        if mismatch := _shapes_differ(outputs, expected):
            return mismatch
        growth = growth_of_sums(self._inputs.leaves(key)) if coarse and not self._plain else 0.0
        distances: list[Distance] = []
        scales: list[float] = []
        bounds: list[Bounds] = []
        for actual, truth, terms in zip(outputs, expected.outputs, self._terms(key), strict=True):
            table = error_bounds.table_bounds(actual.dtype, whole_model=workload.problem is not None)
            scale, found = self.by_scale(actual, truth, table)
            if found.first_wrong is not None and self._within_declared(actual, truth):
                found = Distance(found.max, found.rms, None, 0)
            scales.append(scale)
            distances.append(found)
            bounds.append(
                error_bounds.relative_bounds(
                    Bounds(found.max, found.rms),
                    self._factor,
                    actual.dtype,
                    self._slack,
                    sums=Sums(terms, actual.numel(), growth),
                    plain=self._plain,
                    coarse=coarse,
                )
            )
        dtypes = tuple(actual.dtype for actual in outputs)
        self._allowances[key] = Allowance(dtypes, tuple(scales), tuple(distances), tuple(bounds))
        return _measured(distances, specs, outputs, expected)

    def of_candidate(
        self, key: str, specs: Sequence[TensorSpec], outputs: Sequence[Tensor], prints: tuple[int, ...]
    ) -> MeasuredOutputs | str:
        """Return the errors of a candidate's outputs against the bounds, or a sentence as `of_baseline` does.

        Outputs whose checksums (`prints`) were right for the same inputs before are not measured again.
        """
        bits = (tuple((spec.dtype, spec.shape) for spec in specs), prints)
        if (known := self._right[key].get(bits)) is not None:
            return known
        expected, allowed = self._inputs.expected(key), self._allowances[key]
        if mismatch := _shapes_differ(outputs, expected) or _types_differ(outputs, allowed.dtypes):
            return mismatch
        found = [
            comparison.distance(*compared, self.measure)
            for compared in zip(outputs, expected.outputs, allowed.scales, allowed.bounds, strict=True)
        ]
        measured = _measured(found, specs, outputs, expected)
        if measured.right:
            self._right[key][bits] = measured
        return measured

    def by_scale(self, actual: Tensor, truth: Tensor, allowed: Bounds) -> tuple[float, Distance]:
        """Return the scale that errors are measured by, and the baseline's error.

        If some values are far larger than the rest, the rest sets the scale. That fails where the rest is only the
        rounding error of such values; then all values set it.
        """
        if actual.is_floating_point() and (brink := comparison.brink(truth, actual.dtype)) < math.inf:
            of_rest = comparison.scale(truth, actual.dtype, brink)
            found = comparison.distance(actual, truth, of_rest, allowed, self.measure)
            if found.first_wrong is None:
                return of_rest, found
        scale = comparison.scale(truth, actual.dtype)
        return scale, comparison.distance(actual, truth, scale, allowed, self.measure)

    def passing(
        self, key: str, other: str, dtypes: Sequence[str], among: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return the names of trivial answers that would pass as right for `key`; `dtypes` are the outputs' types.

        Tried are zeros, the mean everywhere, each input of matching size, and the right answer to the inputs of
        `other`; only those `among` the names given, if any are.
        """
        truth = self._inputs.expected(key)
        foreign = self._inputs.expected(other) if among is None or OTHER_ANSWER in among else truth
        if not any(t.numel() for t in truth.outputs):
            return ()  # an empty answer cannot be wrong
        answers: dict[str, Callable[[int, Tensor], Tensor | None]] = {
            "all zeros": lambda _, t: torch.zeros_like(t),
            OTHER_ANSWER: lambda number, _: foreign.outputs[number],
        }
        if any(t.numel() > 1 for t in truth.outputs):  # the mean of one number is that number
            answers["the mean everywhere"] = lambda _, t: torch.full_like(t, comparison.mean(t))
        names = self._inputs.draws.workload.argument_names
        for name, leaf in zip(names, self._inputs.leaves(key), strict=True):
            if isinstance(leaf, Tensor):
                answers[f"a copy of `{name}`"] = lambda _, t, leaf=leaf: (
                    leaf.reshape(t.shape) if leaf.numel() == t.numel() else None
                )
        kinds = [torch_dtype(name) for name in dtypes]
        tried = answers if among is None else [name for name in answers if name in among]
        return tuple(name for name in tried if self._passes(key, truth, kinds, answers[name]))

    def _passes(
        self,
        key: str,
        truth: Expected,
        dtypes: Sequence[torch.dtype],
        answer: Callable[[int, Tensor], Tensor | None],
    ) -> bool:
        allowed = self._allowances[key]
        for number, expected in enumerate(truth.outputs):
            if not expected.numel():
                continue
            tensor = answer(number, expected)
            if tensor is None or tensor.shape != expected.shape:
                return False
            scale, bounds = allowed.scales[number], allowed.bounds[number]
            found = comparison.distance(tensor.to(dtypes[number]), expected, scale, bounds, self.measure)
            if found.first_wrong is not None:
                return False
        return True

    def _terms(self, key: str) -> tuple[float, ...]:
        """Return for each output the number of terms of its elements, as found on the first inputs of the case.

        Not measured if the baseline is PyTorch alone: bounds are wide then in any case, and references take long.
        """
        case, outputs = self._inputs[key].case, self._inputs.expected(key).outputs
        if self._plain or not self._inputs.draws.workload.has_reference:
            return (1.0,) * len(outputs)
        if case not in self._terms_by_case:
            leaves = self._inputs.leaves(key)
            self._terms_by_case[case] = terms_by_output(
                lambda leaves: self._inputs.reference(case, leaves), leaves, outputs, self.measure
            )
            self._inputs.free_temporaries()
        return self._terms_by_case[case]

    def _within_declared(self, actual: Tensor, truth: Tensor) -> bool:
        tolerance = self._inputs.draws.workload.tolerance
        if tolerance is None or not actual.is_floating_point():
            return False
        close = torch.isclose(
            actual.double(), truth.double(), tolerance.get("rtol", 0.0), tolerance.get("atol", 0.0), equal_nan=True
        )
        return bool(close.all())


def _shapes_differ(outputs: Sequence[Tensor], expected: Expected) -> str:
    if len(outputs) != len(expected.outputs):
        return f"`launch` returned {len(outputs)} outputs where the reference has {len(expected.outputs)}"
    for number, (actual, truth) in enumerate(zip(outputs, expected.outputs, strict=True)):
        if actual.shape != truth.shape:
            return f"output {number} has shape {list(actual.shape)} where the reference has {list(truth.shape)}"
    return ""


def _types_differ(outputs: Sequence[Tensor], wanted: Sequence[torch.dtype]) -> str:
    for number, (actual, dtype) in enumerate(zip(outputs, wanted, strict=True)):
        if actual.dtype is not dtype:
            own, other = dtype_name(actual.dtype), dtype_name(dtype)
            return f"output {number} has type {own} where the baseline's has {other}"
    return ""


def _measured(
    distances: Sequence[Distance], specs: Sequence[TensorSpec], outputs: Sequence[Tensor], expected: Expected
) -> MeasuredOutputs:
    blank = any(
        not (actual.is_floating_point() and expected.finite) and comparison.holds_blank(actual) for actual in outputs
    )
    return MeasuredOutputs(tuple(_as_answer(*pair) for pair in zip(distances, specs, strict=True)), blank)


def _as_answer(distance: Distance, spec: TensorSpec) -> OutputDistance:
    first = distance.first_wrong
    return OutputDistance(
        max=distance.max,
        rms=distance.rms,
        wrong=distance.wrong,
        total=spec.numbers,
        index=None if first is None else comparison.unravel(first, spec.shape),
        expected=distance.expected,
        actual=distance.actual,
        allowed=distance.allowed,
        diffuse=distance.diffuse,
    )
