"""Inputs made from seeds: the same case, family and seed give the same bits in any process on one machine."""

import contextlib
from collections.abc import Generator as Yields

import torch
from torch import Generator, Tensor

from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload import families
from kernel_lsp.workload.leaves import Leaves, tensors
from kernel_lsp.workload.other_values import other_value
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.workload import Workload, describe_case, make_inputs


@contextlib.contextmanager
def placing(device: str) -> Yields[None]:
    """Run the user's code within this: without gradients, and on the CPU where `device` is that."""
    with Instead() if device == "cpu" else contextlib.nullcontext(), torch.no_grad():
        yield


class Draws:
    """Makes a workload's inputs and keeps none of them."""

    def __init__(self, workload: Workload, device: str) -> None:
        """Take a loaded workload; `device` is `cuda`, or `cpu` where the GPU is only stood in for."""
        self.workload, self._device = workload, device

    def placing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context that the workload's own functions run in; see `placing`."""
        return placing(self._device)

    def make(self, case: int, family: str, seed: int) -> Leaves:
        """Return the inputs of a case with the values of a family.

        Raises:
            WorkloadError: the workload's `inputs` raises, or makes tensors elsewhere than on the GPU.
        """
        chosen, generator = families.FAMILIES[family], self.generator(seed + 1)
        with self.placing():
            leaves = self.fresh(case, seed)
            given = self._given(leaves)
            if chosen.of_weights:
                return (*leaves[:given], *families.apply(chosen, leaves[given:], generator))
            return (*families.apply(chosen, leaves[:given], generator), *leaves[given:])

    def vary(self, case: int, base: Leaves, argument: int, seed: int) -> Leaves | None:
        """Return inputs of a case with another value of one argument; None where none is known."""
        with self.placing():
            fresh = self.fresh(case, seed)
            other = other_value(
                base[argument], fresh[argument] if argument < len(fresh) else None, self.generator(seed)
            )
            if argument >= self._given(base) and isinstance(value := base[argument], Tensor):
                other = families.renewed(value, self.generator(seed))
        return None if other is None else (*base[:argument], other, *base[argument + 1 :])

    def touch(self, case: int, base: Leaves, seed: int) -> Leaves:
        """Return inputs of a case that differ from `base` in a few places."""
        with self.placing():
            fresh, given = self.fresh(case, seed), self._given(base)
            return (*families.touched(base[:given], fresh[:given], self.generator(seed + 1)), *base[given:])

    def fresh(self, case: int, seed: int) -> Leaves:
        """Return inputs of a case as the workload makes them; to be called within `placing`."""
        constants = self.workload.cases[case]
        if self.workload.problem is not None:  # the first time its module is executed, and might draw random numbers
            self.workload.problem.call(constants)
        torch.manual_seed(seed)
        leaves = make_inputs(self.workload, constants)
        for tensor in tensors(leaves):
            if tensor.device.type != self._device:
                raise WorkloadError(
                    f"`inputs` made a tensor on {tensor.device} for case {describe_case(constants)}",
                    self.workload.path,
                    cure='Make inputs with device="cuda".',
                )
        return leaves

    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each case's inputs, found without making them where `inputs` allows that."""
        found: list[int] = []
        for case in self.workload.cases:
            try:
                with Instead("meta"), torch.no_grad():
                    leaves = make_inputs(self.workload, case)
            except WorkloadError:  # it looks at values, which shapes alone do not have
                with self.placing():
                    leaves = make_inputs(self.workload, case)
            found.append(sum(tensor.nbytes for tensor in tensors(leaves)))
        return tuple(found)

    def generator(self, seed: int) -> Generator:
        """Return random numbers that follow from a seed."""
        return Generator(device=self._device).manual_seed(seed)

    def _given(self, leaves: Leaves) -> int:
        """Return how many of the leaves are inputs; the rest are weights."""
        return len(leaves) - len(self.workload.weights)
