"""The records of a check: the result of examining one file, which is stored, and the report shown to the user."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.judge.verdict import Check, KernelResources
from kernel_lsp.rules.ignores import Silenced
from kernel_lsp.rules.rule import Needs
from kernel_lsp.source.kernel import Language, base_name
from kernel_lsp.store.store import Document


@dataclass(frozen=True, slots=True)
class CheckStep:
    """The present step of a check, in a few words, and the share of its work that is done, from 0 to 1."""

    doing: str
    share: float = 0.0


OnStep = Callable[[CheckStep], None]


@dataclass(frozen=True, slots=True)
class CaseTime:
    """The time of one case: the median per launch and its 95 % interval, in microseconds."""

    case: str
    us: float
    interval: tuple[float, float]


WORKLOAD = "workload"
"""Name of the check of a workload whose kernels are not run."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of building, running and emulating one file, before silencing and comparison with a baseline.

    Attributes:
        findings: with paths relative to the kernel file's folder, so that they hold for a copy elsewhere.
        checks: checks of its runs, passed, failed or skipped with the reason.
        resources: compile facts of the kernels the workload launches.
        assumed: kernels that no workload launches: the types assumed for each, or why it was not compiled.
        done: the steps that were done, and with them the rules that were checked.
        times: by case; None if it was not timed.
        lasting: True if the same texts always give the same result; False, for one, after a process died.
        emulation: its runs on the emulator, with paths as in `findings`; None without any.
        lines: where the file's lines of code stood, see `source.code_lines`.
        built_for: see `FileReport`.
    """

    findings: tuple[Diagnostic, ...]
    checks: tuple[Check, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    done: tuple[Needs, ...] = (Needs.NOTHING,)
    times: tuple[CaseTime, ...] | None = None
    lasting: bool = True
    emulation: Emulation | None = None
    lines: tuple[int, ...] = ()
    built_for: str = ""


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on one kernel file.

    Attributes:
        path: the file.
        language: CUDA or Triton.
        arch: the architecture it was to be built for.
        kernels: names of its kernels.
        diagnostics: findings with the place in the user's file; `code` is the id of the rule. Errors fail the check.
        silenced: findings that a comment or the settings silence.
        checks: checks of its runs, passed, failed or skipped with the reason.
        resources: compile facts of the kernels the workload launches.
        assumed: kernels that no workload launches: the types assumed for each, or why it was not compiled.
        times: by case; None if it was not timed.
        workloads: its workload files.
        emulation: its runs on the emulator; None if this check had none.
        seconds: wall time of this check.
        remembered: True if nothing changed since an earlier check, whose findings these are.
        device: the model of the GPU that it was checked on; None without one.
        not_built_for: architectures and GPUs that the settings name and that it was not built for.
        guessed_folders: include folders that nobody has named and that headers were found in.
        built_for: the architecture it was built for instead, as nobody had chosen one and it needs another; else empty.
    """

    path: Path
    language: Language
    arch: str
    kernels: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    silenced: tuple[Silenced, ...] = ()
    checks: tuple[Check, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    times: tuple[CaseTime, ...] | None = None
    workloads: tuple[Path, ...] = ()
    emulation: Emulation | None = None
    seconds: float = 0.0
    remembered: bool = False
    device: str | None = None
    not_built_for: tuple[str, ...] = ()
    guessed_folders: tuple[Path, ...] = ()
    built_for: str = ""

    @property
    def never_launched(self) -> tuple[str, ...]:
        """Return the kernels that its workload launches in no case; empty if that is unknown."""
        launched = {base_name(kernel.name).rpartition("::")[2] for kernel in self.resources}
        known = bool(self.workloads) and bool(launched)
        return tuple(n for n in dict.fromkeys(self.kernels) if known and n.rpartition("::")[2] not in launched)

    @property
    def not_compiled(self) -> tuple[Assumed, ...]:
        """Return the kernels that did not compile for assumed types."""
        return tuple(one for one in self.assumed if not one.compiled)

    @property
    def ok(self) -> bool:
        """Return True if there are no errors; warnings do not count."""
        return self.passes(strict=False)

    def passes(self, *, strict: bool) -> bool:
        """Return True if there are no errors and, if `strict`, no warnings."""
        failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        return all(d.severity not in failing for d in self.diagnostics)


_EXAMINATION = TypeAdapter(Examination)


def packed(examination: Examination) -> Document:
    """Return an examination as JSON values."""
    return _EXAMINATION.dump_python(examination, mode="json")


def unpacked(document: Mapping[str, object] | None) -> Examination | None:
    """Return an examination from JSON values; None if there are none, or they do not fit."""
    try:
        return None if document is None else _EXAMINATION.validate_python(document)
    except ValidationError:
        return None


def movable(found: Diagnostic, folder: Path) -> Diagnostic:
    """Return a finding with its path relative to `folder`."""
    path = Path(found.path)
    base = folder.absolute() if path.is_absolute() else folder
    return replace(found, path=os.path.relpath(path, base))


def moved_runs(emulation: Emulation, folder: Path, *, back: bool) -> Emulation:
    """Return runs with their paths relative to `folder`, or with `back` the other way."""
    base = str(folder.absolute())

    def move(path: str) -> str:
        if not path:  # the machine code names no place
            return path
        return os.path.normpath(os.path.join(base, path)) if back else os.path.relpath(path, base)  # noqa: PTH118

    runs = tuple(
        replace(
            run,
            findings=tuple(
                replace(one, path=move(one.path), other=one.other and (move(one.other[0]), one.other[1]))
                for one in run.findings
            ),
            counters=tuple(replace(one, path=move(one.path)) for one in run.counters),
        )
        for run in emulation.runs
    )
    return replace(emulation, runs=runs)


def placed(found: Diagnostic, folder: Path) -> Diagnostic:
    """Return a finding made by `movable`, in `folder` as the user writes it."""
    return replace(found, path=os.path.normpath(folder / found.path))
