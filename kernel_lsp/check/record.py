"""The records of a check: what examining one file found, which is kept, and the report that a person gets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernel_lsp.check.places import base_name
from kernel_lsp.compiler.assumed import Assumed
from kernel_lsp.compiler.binary import Diagnostic, Severity
from kernel_lsp.judge.emulation import Emulation
from kernel_lsp.judge.verdict import Check, KernelResources
from kernel_lsp.rules.ignores import Silenced
from kernel_lsp.rules.rule import Needs
from kernel_lsp.source.kernel import Language
from kernel_lsp.store.store import Document


@dataclass(frozen=True, slots=True)
class CaseTime:
    """How long one case takes as it stands: the median of a launch and its 95 % interval, in microseconds."""

    case: str
    us: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Examination:
    """What building, running and emulating one file found, before anything is silenced or compared with a baseline.

    Attributes:
        findings: with paths relative to the kernel file's folder, so that they hold wherever the files lie.
        checks: what was checked on its runs, and what was skipped and why.
        resources: compile facts of the kernels the workload launches.
        assumed: what kernels that no workload launches were compiled for, and why others were not.
        done: what was done to it, and so which rules had the chance to speak.
        times: by case, where it was timed.
        lasting: whether examining the same texts again would find the same; a process that died says nothing lasting.
    """

    findings: tuple[Diagnostic, ...]
    checks: tuple[Check, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    done: tuple[Needs, ...] = (Needs.NOTHING,)
    times: tuple[CaseTime, ...] | None = None
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class FileReport:
    """What is known of one kernel file.

    Attributes:
        path: the file.
        language: CUDA or Triton.
        arch: the architecture it was built for.
        kernels: names of its kernels.
        diagnostics: findings with the place in the user's file; `code` is the id of the rule. Errors fail the check.
        silenced: findings that a comment or the settings silence.
        checks: what was checked on its runs, and what was skipped and why.
        resources: compile facts of the kernels the workload launches.
        assumed: what kernels that no workload launches were compiled for, and why others were not.
        times: by case, where it was timed.
        workloads: its workload files.
        emulation: what its runs on the emulator showed; None where there were none in this check.
        seconds: wall time of this check.
        remembered: whether nothing had changed since an earlier check, whose findings these are.
        device: the model of the GPU that it was checked on; None without one.
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

    @property
    def never_launched(self) -> tuple[str, ...]:
        """The kernels that its workload launches in no case; none where that is not known."""
        launched = {base_name(kernel.name).rpartition("::")[2] for kernel in self.resources}
        known = bool(self.workloads) and bool(launched)
        return tuple(n for n in dict.fromkeys(self.kernels) if known and n.rpartition("::")[2] not in launched)

    @property
    def not_compiled(self) -> tuple[Assumed, ...]:
        """The kernels that would not compile for the types that were assumed of them."""
        return tuple(one for one in self.assumed if not one.compiled)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings are not."""
        return self.passes(strict=False)

    def passes(self, *, strict: bool) -> bool:
        """Whether nothing is wrong, and when `strict` nothing doubtful either."""
        failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        return all(d.severity not in failing for d in self.diagnostics)


_EXAMINATION = TypeAdapter(Examination)


def packed(examination: Examination) -> Document:
    """An examination as JSON values."""
    return _EXAMINATION.dump_python(examination, mode="json")


def unpacked(document: Mapping[str, object] | None) -> Examination | None:
    """An examination from JSON values; None where there are none, or none that fit."""
    try:
        return None if document is None else _EXAMINATION.validate_python(document)
    except ValidationError:
        return None


def movable(found: Diagnostic, folder: Path) -> Diagnostic:
    """A finding with its path relative to `folder`."""
    path = Path(found.path)
    base = folder.absolute() if path.is_absolute() else folder
    return replace(found, path=os.path.relpath(path, base))


def placed(found: Diagnostic, folder: Path) -> Diagnostic:
    """A finding made by `movable`, in `folder` as the user writes it."""
    return replace(found, path=os.path.normpath(folder / found.path))
