"""Workload files: finds those of a kernel, and reads their facts without running them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.errors import DraftError, SourceError, WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import read_source, source_suffixes
from kernel_lsp.source.modules import is_answer, is_problem
from kernel_lsp.source.python import is_python, python_ast
from kernel_lsp.workload.capture import find_captures, is_capture, read_capture

DRAFT = "# kernel-lsp: draft"
"""Beginning of the line that marks a workload as a draft, which is not used."""
REFERENCE = "reference"
"""Name of the function that says what is right, and of the check that is skipped where there is none."""
REQUIRED = ("CASES", "inputs", REFERENCE)
_OF_ANSWER = ("_cuda", "_triton", "_new", "_kernel")
_OF_KERNELBENCH = re.compile(r"level_?(\d+)_problem_?(\d+)(?!\d)")
_TEMPLATE = "It needs CASES, inputs, reference and launch; `kernel-lsp explain workload` says how to write them."


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    """A workload file, not yet loaded.

    Attributes:
        source: the Python file; the kernel file itself for a Triton file that holds its own workload.
        kernel_path: the kernel file it is for.
        in_kernel_file: True if both are the same file.
        has_launch: True if it defines `launch`.
        problem: True if it is a problem of KernelBench's: `Model`, `get_inputs` and `get_init_inputs` in place of
            `reference`, `inputs` and `CASES`.
        captured: whether it is a capture: what a program was seen to do, and no text of its author's.
        has_reference: False if it does not say what is right; then its kernels are run, and outputs not compared.
    """

    source: SourceFile
    kernel_path: Path
    in_kernel_file: bool
    has_launch: bool
    problem: bool = False
    captured: bool = False
    has_reference: bool = True


def workload_path(kernel_file: Path) -> Path:
    """Return the path where a kernel file's workload is looked for first."""
    return kernel_file.with_name(f"{kernel_file.stem}_workload.py")


def find_workload(
    kernel: SourceFile,
    explicit: Path | None = None,
    texts: Mapping[Path, str] | None = None,
    problems: Path | None = None,
    folders: Sequence[Path] = (),
) -> WorkloadFile | None:
    """Return the workload of a kernel file: the one named, its own, its sibling, or one that names it; None without
    any.

    If there are several (see `find_workloads`, with the same arguments), the first is returned only if it is
    `explicit`, the file's own, its `STEM_workload.py` or its problem.

    Raises:
        DraftError: it is a draft.
        WorkloadError: the file found or named cannot be read or parsed, or lacks a required part; or there are several,
            and nothing tells which is meant.
    """
    found = find_workloads(kernel, explicit, texts, problems, folders)
    own = {kernel.path, workload_path(kernel.path)}
    if len(found) > 1 and not (found[0].problem or found[0].source.path in own):
        names = ", ".join(str(one.source.path) for one in found)
        fix = "Name one with --workload; `kernel-lsp check` runs each of them."
        raise WorkloadError(f"there are {len(found)} workloads for this kernel file: {names}", kernel.path, fix=fix)
    return found[0] if found else None


def find_workloads(
    kernel: SourceFile,
    explicit: Path | None = None,
    texts: Mapping[Path, str] | None = None,
    problems: Path | None = None,
    folders: Sequence[Path] = (),
) -> tuple[WorkloadFile, ...]:
    """Return all workloads of a kernel file; only `explicit`, if given.

    Order: the kernel file itself when it is Python and defines the three required names, or is a problem of
    KernelBench's, which then is the only one; `STEM_workload.py` beside it; for a file with `ModelNew` its problem,
    alone: `STEM_problem.py` beside it, the neighbour of the same name without `_cuda`, `_triton`, `_new` or `_kernel`,
    or what a name such as `level_1_problem_19_sample_0_kernel.py` tells, `level1/19_*.py` in `problems`; any other
    `*_workload.py` beside it or below `folders` whose `KERNEL` names the file, as a path from the workload's own
    folder; `STEM_workload.py` below `folders` without a `KERNEL`. Where there is none of these, all captures of the
    file (see `workload.capture.find_captures`). `texts` holds files that are to be taken as they are there.

    Raises:
        DraftError: one of them is a draft.
        WorkloadError: a file found or named cannot be read or parsed, or lacks a required part.
    """
    texts = texts or {}
    if explicit is not None:
        return (_read(explicit, kernel, texts),)
    found: list[WorkloadFile] = []
    if is_python(kernel.path):
        names = top_level(_parse(kernel))
        if all(name in names for name in REQUIRED):
            _refuse_draft(kernel)
            found.append(WorkloadFile(kernel, kernel.path, in_kernel_file=True, has_launch="launch" in names))
        elif is_problem(kernel.text):
            return (WorkloadFile(kernel, kernel.path, in_kernel_file=True, has_launch=False, problem=True),)
    sibling = workload_path(kernel.path)
    if not found and (sibling in texts or sibling.is_file()):
        found.append(_read(sibling, kernel, texts))
    if not found and is_python(kernel.path) and is_answer(kernel.text):
        for path in _problem_paths(kernel.path, problems):
            if (text := _text(path, texts)) is not None and is_problem(text):
                return (_read(path, kernel, texts),)
    read = {one.source.path.resolve() for one in found}
    for other in _declared_workloads(kernel.path, folders):
        if other.resolve() not in read:
            read.add(other.resolve())
            found.append(_read(other, kernel, texts))
    return tuple(found) or tuple(_read(path, kernel, texts) for path in find_captures(kernel.path, folders))


def find_launch(kernel: SourceFile) -> SourceFile | None:
    """Return the file beside a candidate with a `launch` of its own; None without one. Only its `launch` is used.

    That is `STEM_workload.py`, or else a neighbour whose `KERNEL` names the file. It need not be a whole workload.

    Raises:
        WorkloadError: it cannot be read or parsed, or is a draft.
    """
    for path in (workload_path(kernel.path), *_declared_workloads(kernel.path)):
        if path.is_file():
            source = _read_source(path, {})
            _refuse_draft(source)
            return source if "launch" in top_level(_parse(source)) else None
    return None


def require_workload(
    kernel: SourceFile,
    explicit: Path | None = None,
    texts: Mapping[Path, str] | None = None,
    problems: Path | None = None,
    folders: Sequence[Path] = (),
) -> WorkloadFile:
    """Return the workload as `find_workload`, but raise if there is none.

    Raises:
        WorkloadError: there is none, or as `find_workload`.
    """
    found = find_workload(kernel, explicit, texts, problems, folders)
    if found is not None:
        return found
    if is_python(kernel.path) and is_answer(kernel.text):
        raise WorkloadError(
            "no problem was found for this `ModelNew`",
            kernel.path,
            fix=f"Put Model, get_inputs and get_init_inputs into {kernel.path.stem}_problem.py beside it, name a file "
            "that has them with --workload, or say with the setting kernelbench.root where KernelBench's lie.",
        )
    raise WorkloadError(
        "no workload was found for this kernel",
        kernel.path,
        fix=f"Write {kernel.path.stem}_workload.py beside it, or name one with --workload. {_TEMPLATE}",
    )


def _problem_paths(answer: Path, problems: Path | None) -> Iterator[Path]:
    """Yield the paths where an answer's problem may lie, the likeliest first."""
    yield answer.with_name(f"{answer.stem}_problem.py")
    for suffix in _OF_ANSWER:
        if answer.stem.removesuffix(suffix) not in ("", answer.stem):
            yield answer.with_name(f"{answer.stem.removesuffix(suffix)}.py")
    if problems is not None and (named := _OF_KERNELBENCH.search(answer.stem)):
        yield from sorted((problems / f"level{named[1]}").glob(f"{named[2]}_*.py"))


def _text(path: Path, texts: Mapping[Path, str]) -> str | None:
    """Return a file's text; None if it cannot be read."""
    try:
        return texts[path] if path in texts else read_source(path).text
    except SourceError:
        return None


def _read(path: Path, kernel: SourceFile, texts: Mapping[Path, str]) -> WorkloadFile:
    source = kernel if path == kernel.path else _read_source(path, texts)
    if is_capture(source.text):
        read_capture(source.text, path)
        return WorkloadFile(source, kernel.path, in_kernel_file=False, has_launch=True, captured=True)
    names = top_level(_parse(source))
    if is_python(kernel.path) and is_problem(source.text):
        return WorkloadFile(source, kernel.path, in_kernel_file=path == kernel.path, has_launch=False, problem=True)
    missing = [name for name in REQUIRED if name not in names]
    has_reference, has_launch = "reference" in names, "launch" in names
    if missing and (missing != ["reference"] or not has_launch):
        raise WorkloadError(f"the workload does not define {' and '.join(missing)}", path, fix=_TEMPLATE)
    _refuse_draft(source)
    return WorkloadFile(
        source,
        kernel.path,
        in_kernel_file=path == kernel.path,
        has_launch=has_launch,
        has_reference=has_reference,
    )


def require_reference(workload: WorkloadFile) -> None:
    """Raise if a workload does not say what is right.

    Raises:
        WorkloadError: it has no `reference`.
    """
    if not workload.has_reference:
        fix = "Write `reference`, which takes what `inputs` returns and computes the right outputs in PyTorch."
        raise WorkloadError(
            "the workload has no `reference`: nothing says what is right", workload.source.path, fix=fix
        )


def _read_source(path: Path, texts: Mapping[Path, str]) -> SourceFile:
    try:
        return SourceFile(path, texts[path]) if path in texts else read_source(path)
    except SourceError as error:
        message = f"the workload cannot be read: {error.message}"
        raise WorkloadError(message, path, error.line, "Name a file of Python text in UTF-8.") from None


def _refuse_draft(source: SourceFile) -> None:
    if (number := draft_line(source.text)) is not None:
        fix = "Read it, make it say what the kernel is for, then remove this line."
        raise DraftError("the workload is a draft, not accepted yet", source.path, number, fix)


def draft_line(text: str) -> int | None:
    """Return the line, from 1, that marks a workload as a draft; None if none does."""
    if DRAFT not in text:
        return None
    return next((number for number, line in enumerate(text.splitlines(), 1) if line.startswith(DRAFT)), None)


def _parse(source: SourceFile) -> ast.Module:
    try:
        return python_ast(source.text)
    except SyntaxError as error:
        raise WorkloadError(f"Python cannot parse this file: {error.msg}", source.path, error.lineno) from None


def top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return what a module binds by statements of its own, by name."""
    names: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            names |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
    return names


def _declared_workloads(kernel: Path, folders: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield the workloads that belong to a kernel file by `KERNEL`, or below `folders` also by their name."""
    own, beside = kernel.resolve(), kernel.parent.resolve()
    for path in sorted(kernel.parent.glob("*_workload.py")):
        if (named := _declared_kernel(path)) is not None and (beside / named).resolve() == own:
            yield path
    for path in (path for folder in folders for path in sorted(folder.rglob("*_workload.py"))):
        named = _declared_kernel(path)
        if (named is None and path.name == workload_path(kernel).name) or (
            named is not None and (path.parent.resolve() / named).resolve() == own
        ):
            yield path


def kernel_file_of(workload: SourceFile) -> Path | None:
    """Return the kernel file that a workload is for: the one that its `KERNEL` or its name tells; None without one."""
    path = workload.path
    if (declared := declared_kernel(workload)) is not None:
        named = [path.parent / declared]
    else:
        stem = path.stem.removesuffix("_workload")
        named = [path.with_name(stem + suffix) for suffix in source_suffixes()] if stem != path.stem else []
    return next((file for file in named if file.is_file()), None)


def declared_kernel(source: SourceFile) -> str | None:
    """Return the value of `KERNEL = "file"` in a workload; None if it has none, or cannot be parsed."""
    try:
        node = top_level(_parse(source)).get("KERNEL")
    except WorkloadError:
        return None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


def _declared_kernel(path: Path) -> str | None:
    """Return `declared_kernel` of a file; None if it cannot be read."""
    try:
        return declared_kernel(read_source(path))
    except SourceError:
        return None
