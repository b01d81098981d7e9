"""Workloads as files: where one is found for a kernel, and what can be said of it without running it."""

import ast
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile

REQUIRED = ("CASES", "inputs", "reference")
_TEMPLATE = "It needs CASES, inputs, reference and launch; see the README's section on workloads."


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    """A workload as it stands in a file.

    Attributes:
        source: the Python file; the kernel file itself for a Triton file that holds its own workload.
        kernel_path: the kernel file it is for.
        in_kernel_file: whether both are the same file.
        has_launch: whether it defines `launch`.
    """

    source: SourceFile
    kernel_path: Path
    in_kernel_file: bool
    has_launch: bool


def find_workload(kernel: SourceFile, explicit: Path | None = None) -> WorkloadFile | None:
    """The workload of a kernel file: the one named, the file's own, its sibling, or a neighbour that names it.

    Order: `explicit`; the kernel file itself when it is Python and defines the three required names;
    `STEM_workload.py` beside it; any other `*_workload.py` beside it whose `KERNEL` names the file.

    Raises:
        WorkloadError: the file found or named cannot be read or parsed, or lacks a required part.
    """
    if explicit is not None:
        return _read(explicit, kernel)
    if kernel.path.suffix == ".py":
        names = _top_level(_parse(kernel))
        if all(name in names for name in REQUIRED):
            return WorkloadFile(kernel, kernel.path, in_kernel_file=True, has_launch="launch" in names)
    sibling = kernel.path.with_name(f"{kernel.path.stem}_workload.py")
    if sibling.is_file():
        return _read(sibling, kernel)
    for other in sorted(kernel.path.parent.glob("*_workload.py")):
        if _declared_kernel(other) == kernel.path.name:
            return _read(other, kernel)
    return None


def require_workload(kernel: SourceFile, explicit: Path | None = None) -> WorkloadFile:
    """Like `find_workload`, for work that cannot go on without one.

    Raises:
        WorkloadError: there is none, or as `find_workload`.
    """
    found = find_workload(kernel, explicit)
    if found is None:
        raise WorkloadError(
            "no workload was found for this kernel",
            kernel.path,
            cure=f"Write {kernel.path.stem}_workload.py beside it, or name one with --workload. {_TEMPLATE}",
        )
    return found


def _read(path: Path, kernel: SourceFile) -> WorkloadFile:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorkloadError(f"the workload cannot be read: {error.strerror}", path, cure="Check the path.") from None
    except UnicodeDecodeError:
        raise WorkloadError("the workload is not UTF-8 text", path, cure="Save it as UTF-8.") from None
    source = SourceFile(path, text)
    names = _top_level(_parse(source))
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise WorkloadError(f"the workload does not define {' and '.join(missing)}", path, cure=_TEMPLATE)
    return WorkloadFile(source, kernel.path, in_kernel_file=path == kernel.path, has_launch="launch" in names)


def _parse(source: SourceFile) -> ast.Module:
    try:
        return ast.parse(source.text)
    except SyntaxError as error:
        raise WorkloadError(f"Python cannot parse this file: {error.msg}", source.path, error.lineno) from None


def _top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    names: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            names |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
    return names


def _declared_kernel(path: Path) -> str | None:
    """Value of `KERNEL = "file"` in a neighbour; a neighbour that cannot be read is not this kernel's workload."""
    try:
        node = _top_level(ast.parse(path.read_text(encoding="utf-8"))).get("KERNEL")
    except (OSError, UnicodeDecodeError, SyntaxError):
        return None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None
