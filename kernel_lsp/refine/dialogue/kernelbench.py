"""Check answers in the format of KernelBench (Ouyang et al., arXiv 2502.10517): `Model` is read, `ModelNew` written.

Models trained on it answer with a whole Python file. The rules for such a file follow Kevin's protocol (Baronio et al.,
arXiv 2507.11948, section 3): own kernels, no library layers, no way around the two.
"""

import ast
from collections.abc import Iterator
from typing import Literal

from kernel_lsp.refine.dialogue.answer import RejectedAnswer
from kernel_lsp.source.python import python_ast

Style = Literal["cuda", "triton"]

# Classes and functions of torch.nn that hold or initialise parameters without computing anything.
_ALLOWED_NN = frozenset(
    (
        "Module",
        "Parameter",
        "ParameterList",
        "ParameterDict",
        "ModuleList",
        "ModuleDict",
        "Sequential",
        "Buffer",
        "init",
    )
)
_NN = ("nn", "torch.nn")
_FUNCTIONAL = ("F", "nn.functional", "torch.nn.functional")


def check_model_new(code: str, style: Style) -> ast.Module:
    """Return the syntax tree of an answer's code, after checking the rules of the format.

    Raises:
        RejectedAnswer: it does not; the text names the rule and the line.
    """
    try:
        tree = python_ast(code)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise RejectedAnswer(f"The code is not valid Python{where}: {error.msg}.") from None
    new = find_class(tree, "ModelNew")
    if new is None:
        raise RejectedAnswer("The code does not define a class `ModelNew`.")
    if any(_dotted(base) == "Model" for base in new.bases):
        raise RejectedAnswer(
            f"Line {new.lineno}: `ModelNew` must not inherit from `Model`; derive it from `nn.Module`."
        )
    if style == "cuda":
        if "__global__" not in code:
            raise RejectedAnswer("The code holds no CUDA kernel: there is no `__global__` function in it.")
        if not any(_dotted(call.func).rpartition(".")[2] == "load_inline" for call in _calls(tree)):
            raise RejectedAnswer("The code does not build its kernel: it calls no `load_inline(`.")
    elif not any(is_kernel(node) for node in ast.walk(tree)):
        raise RejectedAnswer("The code holds no Triton kernel: there is no function under `@triton.jit` in it.")
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.TryStar):
            raise RejectedAnswer(f"Line {node.lineno}: `try` is not allowed; a kernel that fails must be seen to fail.")
        if isinstance(node, ast.Pass):
            raise RejectedAnswer(f"Line {node.lineno}: `pass` is not allowed; write every body out.")
    for line, name in _library_layers(tree):
        what = "only parameters, containers and `nn.init` may be taken from torch.nn"
        raise RejectedAnswer(f"Line {line}: `{name}` is not allowed; {what}.")
    return tree


def find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """Return the last class of this name at the top of a file, as Python itself would use it."""
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def find_method(made: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """Return the method of this name, or None."""
    return next((node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def is_kernel(node: ast.AST) -> bool:
    """Return True for a function under `@triton.jit`, autotuned or not."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any(_dotted(d.func if isinstance(d, ast.Call) else d) in ("triton.jit", "jit") for d in node.decorator_list)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _library_layers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield uses of torch.nn that compute something, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = _dotted(node.value)
            if base in _FUNCTIONAL or (base in _NN and node.attr not in _ALLOWED_NN | {"functional"}):
                yield node.lineno, f"{base}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("torch.nn", "torch.nn.functional"):
            for alias in node.names:
                if node.module == "torch.nn.functional" or alias.name not in _ALLOWED_NN | {"functional"}:
                    yield node.lineno, f"{node.module}.{alias.name}"


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` as written; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""
