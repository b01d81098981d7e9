"""Turns a capture into the draft of an ordinary workload file; its author must write the reference."""

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.capture import CHOOSERS, GRID, Capture, CapturedCase, Described, is_dense, leaves_of
from kernel_lsp.workload.spec import DRAFT

_NARROW_RANGE = 1e-12


def adopted_name(capture: Capture) -> str:
    """Return the name of the workload file that a capture is written out as."""
    return f"{Path(capture.kernel).stem}_{capture.plain_name}_workload.py"


def adopted_workload(capture: Capture, folder: Path) -> SourceFile:
    """Return the text of a workload file in `folder`: a capture's cases, inputs, contract and launch in plain Python.

    It is a draft: the capture's reference was the function itself, and the author must now write one.
    """
    kernel = Path(capture.kernel)
    first = capture.cases[0]
    names = [leaf.name for leaf in leaves_of(first)]
    head = (
        f"{DRAFT}, made from a capture. Write `reference`, then remove this line.\n"
        f'"""`{capture.function}` of {kernel.name} as {capture.program} called it, {capture.calls} times in all."""\n\n'
        f"import torch\n{_imports(first)}\n"
        f"KERNEL = {os.path.relpath(kernel, folder.resolve())!r}\n"
        f"CASES = [\n{''.join(map(_case, capture.cases))}]\n{_contract(capture)}"
    )
    said = 'raise NotImplementedError("A capture does not say what is right: say it here in PyTorch.")'
    parts = [
        head,
        _function(f"inputs({', '.join(_parameters(capture))})", [*_inputs(capture), f"return {_tuple(names)}"]),
        _function(f"reference({', '.join(names)})", [said]),
        _function(f"launch({', '.join(['module', *names])})", _launch(capture, first)),
    ]
    return SourceFile(folder / adopted_name(capture), "\n\n".join(parts))


def _function(head: str, lines: list[str]) -> str:
    return f"def {head}:\n" + "".join(f"    {line}\n" for line in lines)


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)" if len(names) == 1 else f"({', '.join(names)})"


def _imports(case: CapturedCase) -> str:
    return "import triton.language as tl\n" if "'kind': 'triton'" in repr(case.arguments) else ""


def _case(case: CapturedCase) -> str:
    said: list[str] = []
    for leaf in leaves_of(case):
        described = leaf.described
        if described["kind"] == "tensor":
            said.append(f"{leaf.name}={tuple(described['shape'])}")
            said += [] if is_dense(described) else [f"{leaf.name}_stride={tuple(described['stride'])}"]
        else:
            said.append(f"{leaf.name}={_constant(described)}")
    return f"    dict({', '.join(said)}),  # {case.count} calls\n"


def _constant(described: Described) -> str:
    if described["kind"] == "dtype":
        return f"torch.{described['value']}"
    return str(described["value"]) if described["kind"] in ("int", "float") else repr(described["value"])


def _contract(capture: Capture) -> str:
    tensors = [
        leaf.described for case in capture.cases for leaf in leaves_of(case) if leaf.described["kind"] == "tensor"
    ]
    aligned = min((one["align"] for one in tensors), default=0)
    said = ["contiguous=True"] if all(map(is_dense, tensors)) else []
    said += [f"aligned={aligned}", *([f"mutates={capture.mutated!r}"] if capture.mutated else [])]
    return f"CONTRACT = dict({', '.join(said)})  # as it was seen: loosen it if callers do more\n"


def _parameters(capture: Capture) -> Iterator[str]:
    """Yield the parameters of `inputs`: shapes and constants by the leaves' names, and strides if not contiguous."""
    for leaf in leaves_of(capture.cases[0]):
        yield leaf.name
    for leaf in _strided(capture):
        yield f"{leaf}_stride=None"


def _strided(capture: Capture) -> list[str]:
    every = [leaf for case in capture.cases for leaf in leaves_of(case) if leaf.described["kind"] == "tensor"]
    return list(dict.fromkeys(leaf.name for leaf in every if not is_dense(leaf.described)))


def _inputs(capture: Capture) -> Iterator[str]:
    strided = _strided(capture)
    for leaf in leaves_of(capture.cases[0]):
        if leaf.described["kind"] != "tensor":
            continue
        yield f"{leaf.name} = {_made(leaf.name, leaf.described)}"
        if leaf.name in strided:
            name = leaf.name
            yield f"if {name}_stride is not None:"
            yield (
                f"    {name} = torch.empty_strided({name}.shape, {name}_stride, dtype={name}.dtype, "
                f'device="cuda").copy_({name})'
            )


def _made(name: str, described: Described) -> str:
    dtype = f"torch.{described['dtype']}"
    if "quantiles" in described:
        quantiles = [float(value) for value in described["quantiles"]]
        mean = sum(quantiles) / len(quantiles)
        spread = (sum((value - mean) ** 2 for value in quantiles) / len(quantiles)) ** 0.5
        if spread <= _NARROW_RANGE:
            return f'torch.full({name}, {mean:.6g}, device="cuda", dtype={dtype})'
        scaled = f'{spread:.4g} * torch.randn({name}, device="cuda") + {mean:.4g}'
        if quantiles[0] >= 0 or quantiles[-1] <= 0:  # of one sign, as variances are
            scaled = f"({scaled}).clamp({quantiles[0]:.6g}, {quantiles[-1]:.6g})"
            return f"{scaled}.to({dtype})"
        return f"({scaled}).to({dtype})"
    if "least" in described and described["dtype"] != "bool":
        drawn = f'torch.randint({described["least"]}, {described["most"] + 1}, {name}, device="cuda", dtype={dtype})'
        return f"{drawn}.flatten().sort().values.reshape({name})" if described["ascending"] else drawn
    if described["dtype"] == "bool":
        return f'torch.rand({name}, device="cuda") < 0.5'
    return f'torch.randn({name}, device="cuda").to({dtype})'


def _launch(capture: Capture, case: CapturedCase) -> list[str]:
    named = is_python(Path(capture.kernel))  # a binding may have no names
    given = ", ".join(
        f"{name}={_given(name, one)}" if named else _given(name, one)
        for name, one in case.arguments.items()
        if not (capture.is_kernel and name == GRID)
    )
    if capture.is_kernel:
        return [
            f"kernel = module.{capture.function}",
            f"while type(kernel).__name__ in {CHOOSERS}:  # what they chose is among the arguments",
            "    kernel = kernel.fn",
            f"kernel[{_given(GRID, case.arguments[GRID])}]({given})",
            f"return {_tuple(list(capture.mutated))}",
        ]
    if (alone := capture.launched) is not None:
        called = f"module[{capture.function!r}][{alone.grid}, {alone.block}, {alone.shared}]"
        return [f"{called}({given})", f"return {_tuple(list(capture.mutated))}"]
    lines = [
        f"returned = module.{capture.function}({given})",
        "returned = returned if isinstance(returned, (tuple, list)) else (returned,)",
        "outputs = [output for output in returned if isinstance(output, torch.Tensor)]",
    ]
    lines += [
        f"if all(output.data_ptr() != {name}.data_ptr() for output in outputs):\n        outputs.append({name})"
        for name in capture.mutated
    ]
    return [*lines, "return tuple(outputs)"]


def _given(name: str, described: Described) -> str:
    match described["kind"]:
        case "like":
            return str(described["name"])
        case "triton":
            return f"tl.dtype({described['value']!r})"
        case "tuple" | "list" as kind:
            items = ", ".join(_given(f"{name}_{i}", item) for i, item in enumerate(described["items"]))
            return f"[{items}]" if kind == "list" else f"({items},)" if described["items"] else "()"
        case _:
            return name
