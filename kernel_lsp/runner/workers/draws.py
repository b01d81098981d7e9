"""Make inputs from seeds: the same case, family and seed give the same bits in any process on one machine."""

import contextlib
import random
from collections.abc import Generator as Yields
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Generator, Tensor

from kernel_lsp import policy
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers.torch_types import seed_random_numbers
from kernel_lsp.workload import families
from kernel_lsp.workload.contract import NOTHING
from kernel_lsp.workload.host_tensors import HostTensors
from kernel_lsp.workload.leaves import Leaves, tensors
from kernel_lsp.workload.other_sizes import extent, other_sizes, sizes_near_the_largest
from kernel_lsp.workload.other_values import other_values
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.shapes import Shapes
from kernel_lsp.workload.structure import Structure, broken_promise, common, observe
from kernel_lsp.workload.workload import Workload, describe_case, line_of, make_inputs

_OBSERVED = (0x5EED0, 0x5EED1)
"""Seeds of the two draws that structure is looked for in."""


@contextlib.contextmanager
def placing(device: str) -> Yields[None]:
    """Run the user's code in the block without gradients, and on the CPU if `device` is `cpu`."""
    with Instead() if device == "cpu" else contextlib.nullcontext(), torch.no_grad():
        yield


class Draws:
    """Makes a workload's inputs and stores none of them."""

    def __init__(self, workload: Workload, device: str) -> None:
        """Take a loaded workload; `device` is `cuda`, or `cpu` where kernels are emulated."""
        self.workload, self._device = workload, device
        self._structures: dict[int, tuple[Structure, ...]] = {}
        self._promises = tuple(map(workload.contract.promise, workload.argument_names))
        self._held: set[int] = set()  # cases whose inputs were found to fulfil the contract
        self._sizes: list[int] = []  # of the first cases, which are many times asked for and never change

    @property
    def on_gpu(self) -> bool:
        """Return True where kernels run on a GPU, and are not emulated."""
        return self._device == "cuda"

    def placing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context that the workload's own functions run in; see `placing`."""
        return placing(self._device)

    def gradients(self) -> contextlib.AbstractContextManager[object]:
        """Return the context that the reference runs in: with gradients, except for a model."""
        return torch.set_grad_enabled(self.workload.problem is None)

    def make(self, case: int, family: str, seed: int) -> Leaves:
        """Return the inputs of a case with the values of a family.

        Raises:
            WorkloadError: the workload's `inputs` raises, or makes tensors elsewhere than on the GPU.
        """
        chosen, generator = families.FAMILIES[family], self.generator(seed + 1)
        with self.placing():
            if chosen.change is None:
                return self.fresh(case, seed)
            known, leaves = self._structure(case), self.fresh(case, seed)
            given = self._given(leaves)
            if chosen.of_weights:
                return (*leaves[:given], *families.apply(chosen, leaves[given:], generator, known[given:]))
            return (*families.apply(chosen, leaves[:given], generator, known[:given]), *leaves[given:])

    def vary(self, case: int, base: Leaves, argument: int, seed: int, attempt: int) -> Leaves | None:
        """Return inputs of a case with another value of one argument.

        Args:
            case: the case.
            base: its inputs, of which all others stay as they are.
            argument: number of the one.
            seed: of random numbers.
            attempt: which of the other values that may be tried, counted from 0; None is returned after the last.
        """
        with self.placing():
            value, structure, generator = base[argument], self._structure(case)[argument], self.generator(seed)
            if argument >= self._given(base) and families.is_changed(value):
                others = iter(families.apply(families.WEIGHTS, (value,), generator, (structure,)))
            else:
                fresh = self.fresh(case, seed)
                drawn = fresh[argument] if argument < len(fresh) and _fits(base, fresh, value) else None
                extents = [extent for tensor in tensors(base) for extent in tensor.shape]
                others = other_values(value, drawn, structure, generator, extents)
            other = next(islice(others, attempt, None), None)
        return None if other is None else (*base[:argument], other, *base[argument + 1 :])

    def touch(self, case: int, base: Leaves, seed: int) -> Leaves:
        """Return inputs of a case that differ from `base` in a few places; weights change by values of like size."""
        with self.placing():
            given, known, generator = self._given(base), self._structure(case), self.generator(seed + 1)
            weights = families.apply(families.WEIGHTS, base[given:], generator, known[given:])
            return families.touched(base, (*self.fresh(case, seed)[:given], *weights), generator, known)

    def fresh(self, case: int, seed: int) -> Leaves:
        """Return inputs of a case as the workload makes them; call it within `placing`."""
        constants = self.workload.cases[case]
        if self.workload.problem is not None:  # its module is executed first, and may draw random numbers
            self.workload.problem.call(constants)
        seed_random_numbers(seed)
        host = HostTensors()
        written = self.workload.problem is None and self.workload.captured is None  # by an author, who names devices
        with host if written and not self.on_gpu else contextlib.nullcontext():
            leaves = make_inputs(self.workload, constants)
        for tensor in tensors(leaves):
            host.require_gpu(tensor, f"what `inputs` made for case {describe_case(constants)}", self.workload.path)
            if tensor.device.type != self._device:
                raise WorkloadError(
                    f"`inputs` made a tensor on {tensor.device} for case {describe_case(constants)}",
                    self.workload.path,
                    fix='Make inputs with device="cuda".',
                )
        self._hold_to_contract(case, leaves)
        return leaves

    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each case's inputs, found without allocating them if `inputs` allows that."""
        for case in self.workload.cases[len(self._sizes) :]:
            try:
                with Shapes(), torch.no_grad():
                    leaves = make_inputs(self.workload, case)
            except WorkloadError:  # it reads values, which shapes alone do not have
                with self.placing():
                    leaves = make_inputs(self.workload, case)
            self._sizes.append(sum(tensor.nbytes for tensor in tensors(leaves)))
        return tuple(self._sizes)

    def add_other_sizes(self) -> tuple[str, ...]:
        """Add cases that the workload does not list and that have small inputs to its own, and name them."""
        workload = self.workload
        if workload.problem is not None or workload.contract.listed_sizes:
            return ()
        cases = other_sizes(workload.cases, workload.contract.multiples)
        small = [case for case in cases if self._is_within(case, policy.OTHER_SIZES_INPUT_BYTES)]
        return self._add(sorted(small[: policy.OTHER_SIZES], key=extent))  # a long run may not end in time: it is last

    def add_sizes_near_the_largest(self) -> tuple[str, ...]:
        """Add cases near the largest listed one to the workload's own, by chance, and name them."""
        workload = self.workload
        if workload.problem is not None or workload.contract.listed_sizes:
            return ()
        cases = sizes_near_the_largest(workload.cases, workload.contract.multiples)
        most = int(policy.NEAR_SIZES_BYTES_RATIO * max(self.sizes()))
        random.SystemRandom().shuffle(cases)
        return self._add([case for case in cases if self._is_within(case, most)][: policy.NEAR_SIZES])

    def add_changed(self, changes: Sequence[tuple[int, Mapping[str, int]]]) -> tuple[str, ...]:
        """Add listed cases with other numbers in them to the workload's own, and name them; "" for what is left out."""
        workload, contract = self.workload, self.workload.contract
        if workload.problem is not None or workload.captured is not None or contract.listed_sizes:
            return ("",) * len(changes)
        most = int(policy.NEAR_SIZES_BYTES_RATIO * max(self.sizes()))
        names: list[str] = []
        for number, changed in changes:
            case = {**workload.cases[number], **changed}
            fits = all(value % contract.multiples.get(key, 1) == 0 for key, value in changed.items())
            names += self._add([case]) if fits and self._is_within(case, most) else [""]
        return tuple(names)

    def _add(self, cases: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
        self.workload = replace(self.workload, cases=(*self.workload.cases, *cases))
        return tuple(map(describe_case, cases))

    def _is_within(self, case: Mapping[str, object], nbytes: int) -> bool:
        """Return True if `inputs` raises nothing for a case, and makes no more than these bytes."""
        with contextlib.suppress(WorkloadError), Shapes(), torch.no_grad():
            leaves = make_inputs(self.workload, case)
            return sum(tensor.nbytes for tensor in tensors(leaves)) <= nbytes
        return extent(case) <= nbytes  # it may look at values, which shapes do not have

    def generator(self, seed: int) -> Generator:
        """Return a random generator with this seed."""
        return Generator(device=self._device).manual_seed(seed)

    def _structure(self, case: int) -> tuple[Structure, ...]:
        """Return the structure that the inputs of a case always have; call it within `placing`.

        It is derived from the same draws in any process, so that a seed gives the same inputs there.
        """
        if case not in self._structures:
            first, second = (observe(self.fresh(case, seed)) for seed in _OBSERVED)
            seen = common(first, second)
            self._structures[case] = tuple(one.with_promise(p) for one, p in zip(seen, self._promises, strict=False))
        return self._structures[case]

    def _hold_to_contract(self, case: int, leaves: Leaves) -> None:
        """Check once for each case that the inputs fulfil the contract.

        Raises:
            WorkloadError: they are not.
        """
        if case in self._held:
            return
        workload = self.workload
        for name, promise, leaf in zip(workload.argument_names, self._promises, leaves, strict=False):
            if not isinstance(leaf, (Tensor, bool, int, float)):  # nothing but that it is fixed can be promised of it
                continue
            tensor = leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)
            if promise is not NOTHING and (broken := broken_promise(promise, tensor)):
                made = describe_case(workload.cases[case])
                raise WorkloadError(
                    f"CONTRACT says that `{name}` is {promise.said}, but for case {made} it is {broken}",
                    workload.path,
                    line_of(workload.inputs),
                    "Fix `inputs`, or what CONTRACT says.",
                )
        self._held.add(case)

    def _given(self, leaves: Leaves) -> int:
        """Return the number of leaves that are inputs; the others are weights."""
        return len(leaves) - len(self.workload.weights)


def _fits(base: Leaves, fresh: Leaves, value: object) -> bool:
    """Return True if a value of another draw fits these inputs: integers may be indices into longer tensors."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return True
    return [tensor.shape for tensor in tensors(base)] == [tensor.shape for tensor in tensors(fresh)]
