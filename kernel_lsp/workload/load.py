"""Loads a workload, and checks that its parts fit together. Runs the user's code: for runner processes only."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.modules import is_problem
from kernel_lsp.source.python import names_read, python_ast
from kernel_lsp.workload.capture import is_capture
from kernel_lsp.workload.contract import read_contract
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.spec import top_level
from kernel_lsp.workload.workload import Workload, describe_case, line_of, must_fit


def load_workload(text: str, path: Path, device: str = "cpu", seed: int = 0) -> Workload:
    """Return the workload that `text` defines, or that its capture holds.

    For a KernelBench problem that is the case as written, with weights from `seed`.

    Raises:
        WorkloadError: a part is missing, is of the wrong kind, or does not fit the others.
    """
    if is_problem(text):
        from kernel_lsp.workload.problem import problem_workload  # few workers need it

        return problem_workload(text, path, device, seed)
    if is_capture(text):
        from kernel_lsp.workload.captured import captured_workload

        return captured_workload(text, path)
    workload = workload_of(load_module(text, path), path)
    if not workload.has_reference and "reference" in top_level(python_ast(text)):
        raise WorkloadError("`reference` is gone when the file has been executed", path, fix="Leave it defined.")
    return workload


def workload_of(module: ModuleType, path: Path) -> Workload:
    """Return the workload that an executed module defines; raises as `load_workload`."""
    inputs = _function(module, path, "inputs")
    launch = _function(module, path, "launch") if hasattr(module, "launch") else None
    has_reference = hasattr(module, "reference")
    if launch is not None and not has_reference:
        reference = _unsaid(launch, path)
    else:
        reference = _function(module, path, "reference")
    cases = _cases(module, path)
    for number, case in enumerate(cases):
        must_fit(inputs, (), case, path, f"case {number} ({describe_case(case)}) does not fit `inputs`")
    parameters = inspect.signature(reference).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            fix = "Name each parameter: reports speak of inputs by these names."
            raise WorkloadError(f"`reference` takes {parameter}", path, line_of(reference), fix)
    names = tuple(parameters)
    if launch is not None and len(inspect.signature(launch).parameters) != len(names) + 1:
        taken = ", ".join(inspect.signature(launch).parameters)
        raise WorkloadError(
            f"`launch` takes ({taken}), but `reference` takes ({', '.join(names)})",
            path,
            line_of(launch),
            f"Let `launch` take the module first and then the same: launch({', '.join(('module', *names))}).",
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
        read_contract(getattr(module, "CONTRACT", {}), path, names, cases),
        has_reference=has_reference,
    )


def _unsaid(launch: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """Return what stands for the `reference` that a workload does not have: it takes what `launch` does, and raises."""

    def reference(*_: object) -> object:
        raise WorkloadError("there is no `reference`: nothing says what is right", path)

    taken = inspect.signature(launch)
    vars(reference)["__signature__"] = taken.replace(parameters=[*taken.parameters.values()][1:])
    return reference


def bind_launch(
    module: Any, path: Path, launch_text: str | None = None, launch_path: Path | None = None
) -> Callable[..., Any]:
    """Return the function that runs one version of a kernel on the inputs of a case.

    That is `launch` of the workload file in `launch_text`, or of the module itself, as a `partial` given the module; or
    else the module's only public function.

    Raises:
        WorkloadError: there is no `launch` and not exactly one public function.
    """
    if launch_text is not None:
        launch = launch_of(launch_text, launch_path or path)
    else:
        launch = getattr(module, "launch", None) if isinstance(module, ModuleType) else None
    if launch is not None:
        return partial(launch, module)
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
            fix="Define `launch(module, ...)` in the workload.",
        )
    return public[0]


def launch_of(text: str, path: Path) -> Callable[..., Any] | None:
    """Return the `launch` of a workload file, or that of a capture; None if the file has none."""
    if is_capture(text):
        from kernel_lsp.workload.captured import bind_captured

        return bind_captured(text, path)
    return getattr(load_module(text, path), "launch", None)


def ignores_its_module(launch: Callable[..., Any]) -> bool:
    """Return True if a function's source never uses its first parameter."""
    try:
        tree = python_ast(textwrap.dedent(inspect.getsource(launch)))
    except (OSError, TypeError, SyntaxError):
        return False
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return False
    taken = [*function.args.posonlyargs, *function.args.args]
    return bool(taken) and taken[0].arg not in names_read(function)


def call_the_module(name: str) -> str:
    """Return the advice for a `launch` that runs something other than its first parameter, called `name`."""
    return (
        f"`{name}`, the first parameter of `launch`, is the file that is judged: call what it has, such as "
        f"`{name}.NAME(...)`, and nothing that was imported in its place."
    )


def _function(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    value = getattr(module, name, None)
    if value is None:
        raise WorkloadError(f"the workload does not define `{name}`", path)
    if not callable(value):
        raise WorkloadError(f"`{name}` is a {type(value).__name__}, not a function", path)
    try:
        inspect.signature(value)
    except ValueError:
        fix = f"Write `def {name}(...)` around it."
        raise WorkloadError(f"the parameters of `{name}` cannot be told", path, fix=fix) from None
    return value


def _cases(module: ModuleType, path: Path) -> tuple[dict[str, Any], ...]:
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, (list, tuple)) or not cases:
        raise WorkloadError("CASES must be a list of at least one dict", path, fix="For example [dict(rows=64)].")
    for number, case in enumerate(cases):
        if not isinstance(case, dict) or not all(isinstance(key, str) for key in case):
            raise WorkloadError(f"CASES[{number}] is not a dict of parameters for `inputs`", path)
    return tuple(cast("Sequence[dict[str, Any]]", cases))
