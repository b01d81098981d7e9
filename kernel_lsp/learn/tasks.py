"""The tasks of a policy: kernels that are named, those in folders and captures, and variants with other sizes.

A task has a key of its own. That of a kernel is its digest, `kernel_key`; other workloads of one kernel file, and
variants, have keys made of it and of what is different. Nothing that is held out is a task, nor are its variants.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_lsp.check.files import kernel_files_among
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.judge.target import Target, make_target, make_targets
from kernel_lsp.learn.collect import may_be_collected
from kernel_lsp.learn.dataset import is_held_out
from kernel_lsp.learn.environment import target_of
from kernel_lsp.learn.variations import variations
from kernel_lsp.refine.batch_files import write_whole
from kernel_lsp.refine.journal import kernel_key
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import SUFFIX, read_capture
from kernel_lsp.workload.suite import find_problems

_FILE = "tasks.json"
_ORIGINS = ("named", "found")


@dataclass(frozen=True, slots=True)
class PolicyTask:
    """One task.

    Attributes:
        key: of the task, 64 digits.
        target: the kernel with its workload.
        kernels: digests of the kernel as it is here and, of a variant, of the one that it was made of.
        origin: a variant's change; otherwise `named`, or `found` in a folder.
        named: True if the user named it, and it is to be refused, not left out, where it cannot be used.
    """

    key: str
    target: Target
    kernels: frozenset[str]
    origin: str
    named: bool

    @property
    def is_variant(self) -> bool:
        """Return True if it was made of another task."""
        return self.origin not in _ORIGINS


@dataclass(frozen=True, slots=True)
class NoTask:
    """A kernel that is no task; `key` is empty where it has none, and `kind` is the reason in few words."""

    file: str
    kind: str
    why: str = ""
    key: str = ""


@dataclass
class Tasks:
    """The tasks of a run, and what was left out of the folders that were named."""

    tasks: list[PolicyTask] = field(default_factory=list[PolicyTask])
    left_out: list[NoTask] = field(default_factory=list[NoTask])


def reasons(left_out: Sequence[NoTask]) -> dict[str, int]:
    """Return how many were left out for what."""
    return dict(sorted(Counter(one.kind for one in left_out).items()))


def find_tasks(kernels: Sequence[str], settings: Settings, most_variants: int = 0) -> Tasks:
    """Return the tasks that a command line names.

    Args:
        kernels: `path`, `path::kernel`, a capture, or a folder: KernelBench's, one of captures, or one of kernel files.
        settings: in force.
        most_variants: of each task.

    Raises:
        ConfigurationError: a named kernel is held out, opted out, or named twice; or there is no task at all.
        SourceError, WorkloadError: a named one cannot be used.
    """
    found = Tasks()
    for name in kernels:
        if Path(name).is_dir():
            for target in _below(Path(name), settings, found):
                _add(found, target, settings, target.source.path.name, named=False)
        else:
            _add(found, _named(name, settings), settings, name, named=True)
    if not found.tasks:
        why = "; ".join(f"{count} {kind}" for kind, count in reasons(found.left_out).items())
        message = f"There is no kernel to learn on{f': {why}' if why else ''}"
        fix = "Name kernel files, or folders with some that have workloads."
        raise ConfigurationError(message, Path(kernels[0]), fix=fix)
    for task in list(found.tasks):
        _vary(found, task, settings, most_variants)
    return found


def remember(folder: Path, found: Tasks) -> None:
    """Keep in an adapter's folder where each task comes from, and what was left out for what reason."""
    tasks = {
        one.key: {
            "file": str(one.target.source.path),
            "workload": str(one.target.workload.source.path),
            "origin": one.origin,
        }
        for one in found.tasks
    }
    left = [{"file": one.file, "key": one.key, "kind": one.kind, "why": one.why} for one in found.left_out]
    write_whole(folder / _FILE, json.dumps({"tasks": tasks, "left_out": left}, indent=1))


def as_begun(folder: Path, found: Tasks) -> Tasks:
    """Return tasks without those that were left out when the run in a folder was begun; all if none was."""
    try:
        known = json.loads((folder / _FILE).read_text(encoding="utf-8"))["left_out"]
        left = {str(one["key"]): NoTask(one["file"], one["kind"], one["why"], one["key"]) for one in known}
    except (OSError, ValueError, KeyError, TypeError):
        return found
    return Tasks(
        [one for one in found.tasks if one.key not in left],
        [*found.left_out, *(left[one.key] for one in found.tasks if one.key in left)],
    )


def _named(name: str, settings: Settings) -> Target:
    return _of_capture(Path(name), settings) if name.endswith(SUFFIX) else target_of(name, settings)


def _of_capture(path: Path, settings: Settings) -> Target:
    kernel = Path(read_capture(read_source(path).text, path).kernel)
    return make_target(kernel, None, path, None, settings.kernelbench.root, settings.workloads)


def _below(folder: Path, settings: Settings, found: Tasks) -> Iterator[Target]:
    """Yield the targets in a folder; what cannot be one is left out."""
    captures = sorted(folder.glob(f"*{SUFFIX}"))
    if any(any(at.glob("level[0-9]*/")) for at in (folder / "KernelBench", folder)):
        paths = [problem.path for problem in find_problems(folder)]
    elif captures:
        paths = captures
    else:
        paths = [source.path for source in kernel_files_among([folder])]
    for path in paths:
        try:
            if path in captures:
                yield _of_capture(path, settings)
            else:
                yield from make_targets(path, problems=settings.kernelbench.root, folders=settings.workloads)
        except KernelLspError as error:
            found.left_out.append(NoTask(str(path), "without a workload that can be used", str(error)))


def _add(found: Tasks, target: Target, settings: Settings, name: str, *, named: bool) -> None:
    key = kernel_key(target.baseline)
    same = next((one for one in found.tasks if one.key == key), None)
    if _is_other_workload(same, target):
        key = _digest(key, target.workload.source.text)
        same = next((one for one in found.tasks if one.key == key), None)
    kernel = kernel_key(target.baseline)
    if is_held_out(kernel, settings.learn.held_out):
        fix = "Leave it out; it is kept to compare models on. `learn.held_out` is the share of kernels that are."
        problem = ConfigurationError("This kernel is held out of training", target.source.path, fix=fix)
        left = NoTask(name, "held out")
    elif same is not None:
        problem = ConfigurationError(f"This kernel is the same as {same.target.source.path}", target.source.path)
        left = NoTask(name, "the same as others")
    elif not (settings.learn.collect and may_be_collected(target.source.path.parent)):
        message = "`learn.collect` keeps this project's kernels out of training"
        problem = ConfigurationError(message, target.source.path)
        left = NoTask(name, "of projects that opted out")
    else:
        found.tasks.append(PolicyTask(key, target, frozenset({kernel}), "named" if named else "found", named))
        return
    if named:
        raise problem
    found.left_out.append(left)


def _is_other_workload(same: PolicyTask | None, target: Target) -> bool:
    """Return True if a task is of the same file as a target, and has another workload."""
    return (
        same is not None
        and same.target.source.path.resolve() == target.source.path.resolve()
        and same.target.workload.source.path.resolve() != target.workload.source.path.resolve()
    )


def _vary(found: Tasks, task: PolicyTask, settings: Settings, most: int) -> None:
    """Add a task's variants; where the kernel file holds its sizes they are kernels too, which may be held out."""
    others = {kernel for one in found.tasks for kernel in one.kernels if one is not task}
    for variant in variations(task.target, most):
        kernel = kernel_key(variant.target.baseline)
        key = _digest(task.key, variant.change)
        name = f"{variant.target.source.path.name} ({variant.change})"
        if is_held_out(kernel, settings.learn.held_out):
            found.left_out.append(NoTask(name, "held out", key=key))
        elif kernel not in task.kernels and kernel in others:
            found.left_out.append(NoTask(name, "the same as others", key=key))
        else:
            kernels = task.kernels | {kernel}
            found.tasks.append(PolicyTask(key, variant.target, kernels, variant.change, named=False))


def _digest(key: str, more: str) -> str:
    return hashlib.sha256(f"{key} {more}".encode()).hexdigest()
