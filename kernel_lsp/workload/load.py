"""Loading a workload, and checking that its parts fit. Runs the user's code: for runner processes only."""

import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.modules import is_problem

if TYPE_CHECKING:
    from kernel_lsp.workload.answer import Call
    from kernel_lsp.workload.problem import Problem

Leaf = Any  # a torch.Tensor, or a bool, int or float
_CONTRACT_KEYS = ("contiguous", "aligned", "mutates", "finite")


@dataclass(frozen=True, slots=True)
class Contract:
    """What callers of the kernel guarantee, so that the judge does not test what is never asked of it.

    Attributes:
        contiguous: tensors are contiguous.
        aligned: tensors start at a multiple of this many bytes.
        mutates: names of inputs that the launch changes in place.
        finite: no NaN and no infinity in the inputs.
    """

    contiguous: bool = False
    aligned: int = 0
    mutates: tuple[str, ...] = ()
    finite: bool = False


@dataclass(frozen=True)
class Workload:
    """A loaded workload; see ARCHITECTURE.md for what each part means.

    Of a KernelBench problem the last arguments are `weights`, and its reference takes the case before them all.
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

    @property
    def calls(self) -> tuple["Call", ...]:
        """How a problem's model is built and called on each case; empty for any other workload."""
        return () if self.problem is None else tuple(self.problem.call(case) for case in self.cases)

    def reference_on(self, case: Mapping[str, Any]) -> Callable[..., Any]:
        """What says what is right on the inputs of a case."""
        return self.reference if self.problem is None else partial(self.reference, case)


def load_module(text: str, path: Path) -> ModuleType:
    """Execute `text` as the module that would be imported from `path`.

    The text need not be what is on disk. It is entered into `linecache`, so that tracebacks and `inspect.getsource`
    (which Triton compiles from) see it under its real name and line numbers.

    Raises:
        WorkloadError: the module cannot be parsed or raises while it is executed.
    """
    name = str(path)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(_module_name(path))
    module.__file__ = name
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module.__name__] = module
    with blame(path, "raised while it was imported"):
        exec(compile(text, name, "exec"), module.__dict__)
    return module


def load_workload(text: str, path: Path, device: str = "cpu", seed: int = 0) -> Workload:
    """The workload that `text` defines; of a KernelBench problem the case as written, with weights drawn from `seed`.

    Raises:
        WorkloadError: a part is missing, is of the wrong kind, or does not fit the others.
    """
    if is_problem(text):
        from kernel_lsp.workload.problem import problem_workload

        return problem_workload(text, path, device, seed)
    return workload_of(load_module(text, path), path)


def workload_of(module: ModuleType, path: Path) -> Workload:
    """The workload that an executed module defines; raises as `load_workload`."""
    inputs, reference = _function(module, path, "inputs"), _function(module, path, "reference")
    launch = _function(module, path, "launch") if hasattr(module, "launch") else None
    cases = _cases(module, path)
    for number, case in enumerate(cases):
        _fits(inputs, (), case, path, f"case {number} ({describe_case(case)}) does not fit `inputs`")
    parameters = inspect.signature(reference).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            cure = "Name each parameter: reports speak of inputs by these names."
            raise WorkloadError(f"`reference` takes {parameter}", path, _line(reference), cure)
    names = tuple(parameters)
    if launch is not None and len(inspect.signature(launch).parameters) != len(names) + 1:
        raise WorkloadError(
            f"`launch` takes {len(inspect.signature(launch).parameters)} parameters, `reference` {len(names)}",
            path,
            _line(launch),
            "`launch` takes the module first and then exactly what `reference` takes.",
        )
    tolerance = getattr(module, "TOLERANCE", None)
    if tolerance is not None and not (
        isinstance(tolerance, dict)
        and set(tolerance) <= {"atol", "rtol"}
        and all(isinstance(v, (int, float)) and v >= 0 for v in tolerance.values())
    ):
        raise WorkloadError("TOLERANCE must be a dict with non-negative numbers for `atol` and `rtol`", path)
    return Workload(
        path,
        cases,
        inputs,
        reference,
        launch,
        names,
        cast("Mapping[str, float] | None", tolerance),
        bool(getattr(module, "NONDETERMINISTIC", False)),
        _contract(module, path, names),
    )


def bind_launch(
    module: Any, path: Path, launch_text: str | None = None, launch_path: Path | None = None
) -> Callable[..., Any]:
    """What runs one version of a kernel on the inputs of a case.

    That is `launch` of the workload file in `launch_text`, or of the module itself, given the module; or else the
    module's only public function.

    Raises:
        WorkloadError: there is no `launch` and not exactly one public function.
    """
    if launch_text is not None:
        launch = getattr(load_module(launch_text, launch_path or path), "launch", None)
    else:
        launch = getattr(module, "launch", None) if isinstance(module, ModuleType) else None
    if launch is not None:
        return lambda *arguments: launch(module, *arguments)
    public = [
        value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__code__.co_filename == str(path)
        and not name.startswith("_")
        and name not in ("inputs", "reference")
    ]
    if len(public) != 1:
        names = ", ".join(f"`{f.__name__}`" for f in public) or "none"
        raise WorkloadError(
            f"there is no `launch`, and the file has not exactly one public function to call (it has {names})",
            path,
            cure="Define `launch(module, ...)` in the workload.",
        )
    return public[0]


def make_inputs(workload: Workload, case: Mapping[str, Any]) -> tuple[Leaf, ...]:
    """Call `inputs` for one case; a single value counts as a tuple of one.

    Raises:
        WorkloadError: it raises, returns something else than tensors and numbers, or does not fit `reference`.
    """
    import torch

    with blame(workload.path, f"`inputs` raised for case {describe_case(case)}"):
        made = workload.inputs(**case)
    leaves: tuple[Leaf, ...] = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, (torch.Tensor, bool, int, float)):
            raise WorkloadError(
                f"`inputs` returned a {type(leaf).__name__} at position {position} for case {describe_case(case)}",
                workload.path,
                _line(workload.inputs),
                "Return tensors, ints, floats and bools only.",
            )
    _fits(workload.reference_on(case), leaves, {}, workload.path, "what `inputs` returns does not fit `reference`")
    return leaves


def as_outputs(workload_path: Path, returned: object, what: str) -> tuple[Leaf, ...]:
    """The tensors that `reference` or `launch` returned; `what` names the function in the error.

    Raises:
        WorkloadError: nothing was returned, or something that is not a tensor.
    """
    import torch

    outputs: tuple[Leaf, ...] = (
        tuple(cast("Sequence[Leaf]", returned)) if isinstance(returned, (tuple, list)) else (returned,)
    )
    for position, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise WorkloadError(
                f"`{what}` returned a {type(output).__name__} at position {position}, not a tensor",
                workload_path,
                cure="Return the output tensor, or a tuple of output tensors.",
            )
    return outputs


def describe_case(case: Mapping[str, Any]) -> str:
    """A case as a person would write it: `rows=4096, cols=8191`."""
    return ", ".join(f"{key}={value}" for key, value in case.items()) or "(no parameters)"


class blame:  # noqa: N801 - reads as a phrase at its call sites
    """Context in which any exception becomes a `WorkloadError` at the line of `path` that caused it."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (WorkloadError, KeyboardInterrupt)):
            return
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self._path)]
        line = frames[-1] if frames else None
        if isinstance(error, SyntaxError) and error.filename == str(self._path):
            line = error.lineno
        said = str(error).strip().splitlines()
        message = f"{self._what}: {type(error).__name__}" + (f": {said[0]}" if said else "")
        raise WorkloadError(message, self._path, line) from error


def _module_name(path: Path) -> str:
    """The file's stem, unless it belongs to another file: `copy.py` must not become the `copy` that torch imports."""
    taken = sys.modules.get(path.stem)
    return path.stem if taken is None or getattr(taken, "__file__", None) == str(path) else f"{path.stem}_"


def _function(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    value = getattr(module, name, None)
    if value is None:
        raise WorkloadError(f"the workload does not define `{name}`", path)
    if not callable(value):
        raise WorkloadError(f"`{name}` is a {type(value).__name__}, not a function", path)
    try:
        inspect.signature(value)
    except ValueError:
        cure = f"Write `def {name}(...)` around it."
        raise WorkloadError(f"the parameters of `{name}` cannot be told", path, cure=cure) from None
    return value


def _cases(module: ModuleType, path: Path) -> tuple[dict[str, Any], ...]:
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, (list, tuple)) or not cases:
        raise WorkloadError("CASES must be a list of at least one dict", path, cure="For example [dict(rows=64)].")
    for number, case in enumerate(cases):
        if not isinstance(case, dict) or not all(isinstance(key, str) for key in case):
            raise WorkloadError(f"CASES[{number}] is not a dict of parameters for `inputs`", path)
    return tuple(cast("Sequence[dict[str, Any]]", cases))


def _contract(module: ModuleType, path: Path, names: tuple[str, ...]) -> Contract:
    declared = getattr(module, "CONTRACT", {})
    if not isinstance(declared, dict) or not set(declared) <= set(_CONTRACT_KEYS):
        raise WorkloadError(f"CONTRACT must be a dict with keys among {', '.join(_CONTRACT_KEYS)}", path)
    fields = cast("dict[str, Any]", declared)
    mutates, aligned = fields.get("mutates", ()), fields.get("aligned", 0)
    if not isinstance(mutates, (list, tuple)):
        raise WorkloadError("CONTRACT's `mutates` must be a list of names of inputs", path)
    if not isinstance(aligned, int) or aligned < 0:
        raise WorkloadError("CONTRACT's `aligned` must be a number of bytes", path)
    unknown = [name for name in mutates if name not in names]
    if unknown:
        raise WorkloadError(f"CONTRACT mutates `{unknown[0]}`, which `reference` does not take", path)
    return Contract(bool(fields.get("contiguous", False)), aligned, tuple(mutates), bool(fields.get("finite", False)))


def _fits(
    function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any], path: Path, what: str
) -> None:
    try:
        inspect.signature(function).bind(*positional, **named)
    except TypeError as error:
        raise WorkloadError(f"{what}: {error}", path, _line(function)) from None


def _line(function: Callable[..., Any]) -> int | None:
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code else None
