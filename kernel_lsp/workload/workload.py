"""A loaded workload, and calls of its functions. For runner processes only."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.contract import Contract
from kernel_lsp.workload.execute import blame

if TYPE_CHECKING:
    from kernel_lsp.workload.call import Call
    from kernel_lsp.workload.captured import CapturedFunction
    from kernel_lsp.workload.problem import Problem

Leaf = Any  # as `leaves.Leaf`: this module is imported where torch may be missing


@dataclass(frozen=True)
class Workload:
    """A loaded workload; see docs/workloads.md for what each part means.

    Without a `reference` of its author's, `has_reference` is False, and `reference` raises.

    Of a KernelBench problem the last arguments are `weights`. Its reference takes the case before them all, and so does
    that of a captured workload.
    """

    path: Path
    cases: tuple[dict[str, Any], ...]
    inputs: Callable[..., Any]
    reference: Callable[..., Any]
    launch: Callable[..., Any] | None
    argument_names: tuple[str, ...]
    tolerance: Mapping[str, float] | None = None
    nondeterministic: bool = False
    contract: Contract = field(default_factory=Contract)
    weights: tuple[str, ...] = ()
    problem: "Problem | None" = None
    captured: "CapturedFunction | None" = None
    has_reference: bool = True

    @property
    def calls(self) -> tuple["Call", ...]:
        """Return the calls that build and run a problem's model on each case; empty for other workloads."""
        return () if self.problem is None else tuple(self.problem.call(case) for case in self.cases)

    def reference_on(self, case: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the reference for the inputs of a case."""
        takes_case = self.problem is not None or self.captured is not None
        return partial(self.reference, case) if takes_case else self.reference


def make_inputs(workload: Workload, case: Mapping[str, Any]) -> tuple[Leaf, ...]:
    """Return the result of `inputs` for one case; a single value counts as a tuple of one.

    Raises:
        WorkloadError: it raises, returns something else than tensors and constants, or does not fit `reference`.
    """
    import torch

    with blame(workload.path, f"`inputs` raised for case {describe_case(case)}"):
        made = workload.inputs(**case)
    leaves: tuple[Leaf, ...] = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    for position, leaf in enumerate(leaves):
        if made is None or not isinstance(leaf, (torch.Tensor, bool, int, float, str, torch.dtype, type(None))):
            raise WorkloadError(
                f"`inputs` returned a {type(leaf).__name__} at position {position} for case {describe_case(case)}",
                workload.path,
                line_of(workload.inputs),
                "Return tensors, numbers, bools, strings, None and element types such as torch.float16 only.",
            )
    takes, name = workload.reference_on(case), "reference"
    if not workload.has_reference and workload.launch is not None:
        takes, name = partial(workload.launch, None), "launch"
    must_fit(takes, leaves, {}, workload.path, f"what `inputs` returns does not fit `{name}`")
    return leaves


def in_float64(reference: Callable[..., Any], leaves: Sequence[Leaf], blaming: blame) -> Any:
    """Return a reference's result for copies of leaves, in float64 if all of its operations support it.

    Raises:
        WorkloadError: it raises, as `blaming` says.
    """
    import torch

    def widened(leaf: Leaf) -> Leaf:
        wide = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(torch.float64, copy=True) if wide else copied(leaf)

    def copied(leaf: Leaf) -> Leaf:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    with blaming:
        with suppress(RuntimeError):  # unsupported in float64, or the user's error: then it is raised again
            return reference(*map(widened, leaves))
        return reference(*map(copied, leaves))


def as_outputs(workload_path: Path, returned: object, what: str) -> tuple[Leaf, ...]:
    """Return the tensors in the result of `reference` or `launch`; `what` names the function in the error.

    An output that is None beside others becomes a tensor without elements.

    Raises:
        WorkloadError: nothing was returned, or something that is not a tensor.
    """
    import torch

    from kernel_lsp.workload.leaves import returned_leaves

    outputs: tuple[Leaf, ...] = returned_leaves(returned)
    for position, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise WorkloadError(
                f"`{what}` returned a {type(output).__name__} at position {position}, not a tensor",
                workload_path,
                fix="Return the output tensor, or a tuple of output tensors.",
            )
    return outputs


def describe_case(case: Mapping[str, Any]) -> str:
    """Return a case as a person would write it: `rows=4096, cols=8191`."""
    return ", ".join(f"{key}={value}" for key, value in case.items()) or "(no parameters)"


def must_fit(
    function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any], path: Path, what: str
) -> None:
    """Check that a function takes these arguments.

    Raises:
        WorkloadError: it does not; `what` begins the message.
    """
    try:
        inspect.signature(function).bind(*positional, **named)
    except TypeError as error:
        raise WorkloadError(f"{what}: {error}", path, line_of(function)) from None


def file_of(function: Callable[..., Any], otherwise: Path) -> Path:
    """Return the file that defines a function; `otherwise` if it has no code."""
    code = getattr(function, "__code__", None)
    return Path(code.co_filename) if code else otherwise


def line_of(function: Callable[..., Any]) -> int | None:
    """Return the line on which a function begins; None if it has no code."""
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code else None
