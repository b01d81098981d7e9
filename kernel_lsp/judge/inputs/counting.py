"""Counts the sets of inputs that the baseline is run on, for whoever waits."""

from collections.abc import Callable, Sequence

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness

OnInputs = Callable[[int, int, int], None]
"""Is called before each set of inputs with the number of its case, how many were tried, and how many are planned."""


def unobserved(case: int, tried: int, planned: int) -> None:
    """Do nothing: nobody waits."""


class InputCount:
    """Tells an observer of each set of inputs; those that are tried while time is left are not planned."""

    def __init__(self, on_inputs: OnInputs) -> None:
        self._on_inputs = on_inputs
        self._tried = self._planned = 0

    def plan(self, harness: Harness, first: Sequence[object], cases: Sequence[int], last: Sequence[object]) -> None:
        """Plan families that come first and last, and between them changed inputs and arguments of each case."""
        arguments = min(len(harness.workload.arguments), policy.VARIED_ARGUMENTS)
        self._planned = len(first) + len(cases) * (1 + arguments) + len(last)

    def begin(self, case: int) -> None:
        """Tell of the next set of inputs, one of this case."""
        self._planned = max(self._planned, self._tried + 1)
        self._on_inputs(case, self._tried, self._planned)
        self._tried += 1
