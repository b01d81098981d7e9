"""The regression baseline of a repository, `.kernel-lsp/baseline.json`: the accepted costs of its kernels.

One file per repository, sorted and with one figure per line, so that a review shows every change. It is read and
written whole; an update replaces the files that were checked and drops those that no longer exist.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_lsp.check.places import kernel_place
from kernel_lsp.check.record import CaseTime
from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.rules import regression
from kernel_lsp.rules.rule import Rule
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel

BASELINE = Path(".kernel-lsp/baseline.json")
REGISTER_UNIT = 8
"""Registers per thread are allocated in units of this many (256 for a warp of 32)."""
SLOWER = 1.05
"""Smallest ratio of times that is reported: between days and processes they differ by a few per cent."""

_VERSION = 1
_ROOTS = (str(BASELINE), ".git", "pyproject.toml")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelRecord(_Record):
    """One kernel for one architecture; `code` is the hash of its machine code."""

    code: str | None
    registers: int
    spill_bytes: int | None
    occupancy: float | None


class TimeRecord(_Record):
    """One case on one model of GPU, in microseconds."""

    us: float
    interval: tuple[float, float]


class FileRecord(_Record):
    """One file for one architecture: kernels by name, times by model of GPU and case."""

    kernels: dict[str, KernelRecord]
    times: dict[str, dict[str, TimeRecord]] = {}

    @property
    def codes(self) -> dict[str, str | None]:
        """Return the hash of each kernel's machine code, by kernel name."""
        return {name: kernel.code for name, kernel in self.kernels.items()}


class Baseline(_Record):
    """All files by their path from the repository's root, then by architecture."""

    version: int = _VERSION
    files: dict[str, dict[str, FileRecord]] = {}

    def find(self, name: str, arch: str) -> FileRecord | None:
        """Return the record of a file for an architecture; None if there is none."""
        return self.files.get(name, {}).get(arch)


@dataclass(frozen=True, slots=True)
class Measured:
    """The new figures of one file: its kernels for `arch`, and its times on a GPU if it was timed."""

    name: str
    arch: str
    resources: Sequence[KernelResources]
    device: str | None = None
    times: Sequence[CaseTime] | None = None


def find_root(path: Path) -> Path:
    """Return the folder of a file's baseline: the nearest above it with a baseline, a `.git` or a `pyproject.toml`.

    Without any of these it is the working folder.
    """
    above = path.resolve().parents
    return next((folder for folder in above if any((folder / name).exists() for name in _ROOTS)), Path.cwd())


def name_in(root: Path, path: Path) -> str:
    """Return a file's path relative to the root, with `/`."""
    return Path(os.path.relpath(path.resolve(), root.resolve())).as_posix()


def read_baseline(root: Path) -> Baseline:
    """Return the baseline below `root`; an empty one if there is none.

    Raises:
        ConfigurationError: it cannot be read, or a newer version wrote it.
    """
    path = root / BASELINE
    fix = "Restore it from the repository, or delete it and record it again with `kernel-lsp check --update-baseline`."
    try:
        baseline = Baseline.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Baseline()
    except OSError as error:
        raise ConfigurationError(f"the baseline cannot be read: {error.strerror}", path, fix=fix) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"the baseline cannot be used: {first['msg']}", path, fix=fix) from None
    if baseline.version > _VERSION:
        raise ConfigurationError("the baseline was written by a newer version of kernel-lsp", path, fix="Update it.")
    return baseline


def updated(baseline: Baseline, root: Path, files: Iterable[Measured]) -> Baseline:
    """Return the baseline with `files` recorded anew; the records of other architectures are kept.

    Times are kept if the machine code is unchanged, and dropped if it changed and was not timed.
    """
    found = {name: dict(archs) for name, archs in baseline.files.items() if (root / name).is_file()}
    for file in files:
        kernels = {
            kernel.name: KernelRecord(
                code=kernel.code,
                registers=kernel.registers,
                spill_bytes=kernel.spill_bytes,
                occupancy=None if kernel.occupancy is None else round(kernel.occupancy, 4),
            )
            for kernel in file.resources
        }
        before = found.get(file.name, {}).get(file.arch)
        record = FileRecord(kernels=kernels)
        times = dict(before.times) if before is not None and before.codes == record.codes else {}
        if file.device is not None and file.times is not None:
            times[file.device] = {
                time.case: TimeRecord(us=_short(time.us), interval=(_short(time.interval[0]), _short(time.interval[1])))
                for time in file.times
            }
        if kernels:
            found.setdefault(file.name, {})[file.arch] = FileRecord(kernels=kernels, times=times)
    return Baseline(files=found)


def write_baseline(baseline: Baseline, root: Path) -> Path:
    """Write the baseline atomically and return its path.

    Raises:
        ConfigurationError: it cannot be written.
    """
    path = root / BASELINE
    text = json.dumps(baseline.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    temporary: str | None = None
    try:
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="new-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        message = f"the baseline cannot be written: {error.strerror}"
        raise ConfigurationError(message, path, fix="Check its folder's rights.") from None
    return path


def needs_timing(record: FileRecord | None, resources: Sequence[KernelResources], device: str) -> bool:
    """Return True if a file must be timed to be compared with its baseline, because its machine code has changed."""
    return record is not None and device in record.times and record.codes != {k.name: k.code for k in resources}


def regressions(
    source: SourceFile,
    kernels: Sequence[Kernel],
    resources: Sequence[KernelResources],
    record: FileRecord,
    times: Sequence[CaseTime] | None = None,
    device: str | None = None,
) -> list[Diagnostic]:
    """Return a diagnostic for each regression since `record`, at its kernel's name; for a whole case at the first
    one.
    """
    found: list[Diagnostic] = []
    for now in resources:
        before = record.kernels.get(now.name)
        if before is None:
            continue
        line, column, end = kernel_place(source, kernels, now.name)
        for rule, message in _worse(now, before):
            found.append(rule.at(str(source.path), line, message, column=column, end=end))
    recorded: Mapping[str, TimeRecord] = record.times.get(device, {}) if device else {}
    for time in times or ():
        old = recorded.get(time.case)
        if old is not None and time.interval[0] > SLOWER * old.interval[1]:
            line, column, end = kernel_place(source, kernels, resources[0].name if resources else "")
            message = (
                f"case {time.case} takes {time.us:.4g} us where {old.us:.4g} us is recorded on {device}: "
                f"{(time.us / old.us - 1) * 100:.0f} % slower"
            )
            found.append(regression.SLOWER.at(str(source.path), line, message, column=column, end=end))
    return found


def _worse(now: KernelResources, before: KernelRecord) -> Iterable[tuple[Rule, str]]:
    if _units(now.registers) > _units(before.registers):
        yield (
            regression.REGISTERS,
            f"`{now.name}` takes {now.registers} registers a thread; {before.registers} are recorded",
        )
    if now.spill_bytes is not None and now.spill_bytes > (before.spill_bytes or 0):
        yield (
            regression.SPILLS,
            f"`{now.name}` spills {now.spill_bytes} bytes a thread; {before.spill_bytes or 0} are recorded",
        )
    if now.occupancy is not None and before.occupancy is not None and now.occupancy < before.occupancy - 0.001:
        limit = f", limited by {now.limiter}" if now.limiter else ""
        yield (
            regression.OCCUPANCY,
            f"`{now.name}` has an occupancy of {now.occupancy:.0%}{limit}; {before.occupancy:.0%} is recorded",
        )


def _units(registers: int) -> int:
    return -(-registers // REGISTER_UNIT)


def _short(us: float) -> float:
    return float(f"{us:.4g}")
