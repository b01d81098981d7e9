"""Drafts calls of Triton kernels: through the file's one public function, else from their parameters."""

import ast
import re

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel, Parameter
from kernel_lsp.source.python import python_ast
from kernel_lsp.workload.language import Argument, Drafted, Plan, WorkloadPart, value_of

_OUTPUT = re.compile(r"(?i)^(out\w*|y\w*|dst\w*|res\w*|o|c|z|ret\w*|hist\w*)$")


class _Triton:
    def draft(self, source: SourceFile, kernel: Kernel) -> Drafted:
        wrapper = _wrapper(source.text)
        if wrapper is not None:
            return Drafted([_of_wrapper(*given) for given in _parameters(wrapper)], None)
        return Drafted([_of_triton(p) for p in kernel.parameters], lambda plan: _triton_launch(kernel, plan))


def _of_triton(parameter: Parameter) -> Argument:
    name = parameter.name
    if parameter.constexpr or name.isupper():
        return Argument(name, "constant", value="1024" if re.search(r"(?i)block|size|tile", name) else "1")
    if re.search(r"(?i)stride", name):
        return Argument(name, "constant")
    short = re.sub(r"(?i)_?ptrs?$", "", name) or name
    if short == name and re.match(
        r"(?i)n_|num|.*(rows|cols|size|len|elements|dim|hidden|vocab|heads|seq)$|^[bmnkhd]$", name
    ):
        return Argument(name, "extent")
    if short == name and re.match(r"(?i)scale|alpha|beta|p$|eps", name):
        return Argument(name, "number", value=value_of(name))
    return Argument(name, "output" if _OUTPUT.match(short) else "input")


def _triton_launch(kernel: Kernel, plan: Plan) -> list[str]:
    first = next((a for a in plan.of("input")), None)
    width = f"1 << ({plan.shape[-1]} - 1).bit_length()"
    given: list[str] = []
    grid = plan.shape[0]
    for a in plan.arguments:
        if a.role != "constant":
            given.append(a.name)
        elif not a.value:
            given.append(f"{first.name}.stride(0)" if first else "1")
        elif "block" in a.name.lower() and len(plan.shape) == 2:
            given.append(f"{a.name}={width}")
        else:
            grid = f"({plan.shape[0]} + {a.value} - 1) // {a.value}" if "block" in a.name.lower() else grid
            given.append(f"{a.name}={a.value}")
    return [f"module.{kernel.name}[({grid},)]({', '.join(given)})"]


def _wrapper(text: str) -> ast.FunctionDef | None:
    """Return the only public function that is not a kernel; None if there is not exactly one."""
    try:
        nodes = python_ast(text).body
    except SyntaxError:
        return None
    public = [n for n in nodes if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    plain = [n for n in public if not any("jit" in ast.unparse(d) for d in n.decorator_list)]
    return plain[0] if len(plain) == 1 else None


def _parameters(wrapper: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    given = [*wrapper.args.posonlyargs, *wrapper.args.args]
    defaults = [None] * (len(given) - len(wrapper.args.defaults)) + list(wrapper.args.defaults)
    return list(zip(given, defaults, strict=True))


def _of_wrapper(argument: ast.arg, default: ast.expr | None) -> Argument:
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    if isinstance(default, ast.Constant) and isinstance(default.value, int | float):
        return Argument(argument.arg, "number", value=repr(default.value))
    if kind in ("int", "float", "bool"):
        return Argument(argument.arg, "number", value={"int": "1", "bool": "True"}.get(kind, value_of(argument.arg)))
    return Argument(argument.arg, "input")


PART: WorkloadPart = _Triton()
