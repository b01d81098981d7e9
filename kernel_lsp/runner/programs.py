"""Records of a user's whole program that ran on the emulator; each of its processes writes one to a file.

Nothing here imports torch or numpy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kernel_lsp.runner.emulated import EmulatedFinding

EMULATE = "KERNEL_LSP_EMULATE"
"""Environment variable that makes every Python process of a captured program see the emulator as a GPU of this name."""
MOST_TESTS = 8
"""Number of tests that are named for one finding; more are not needed to find it again."""
_SUFFIX = ".emulated.json"
_UNABLE = ".unable"


@dataclass
class ProgramFinding:
    """A fault of a kernel, in all launches of one process.

    Attributes:
        finding: the fault, with the values of its first occurrence.
        file: the kernel's file.
        launches: number of launches with it.
        tests: the tests that made them, in order; empty if no test runner named them.
    """

    finding: EmulatedFinding
    file: str
    launches: int = 0
    tests: list[str] = field(default_factory=list[str])


@dataclass
class ProgramKernel:
    """A kernel that a process launched.

    Attributes:
        name: name of its function.
        file: its file; empty if it was generated.
        line: line of its function, from 1.
        launches: number of launches that ran to their end.
    """

    name: str
    file: str
    line: int
    launches: int = 0


@dataclass
class NotRun:
    """Work that the emulator could not do; the test that asked for it was skipped.

    Attributes:
        kernel: the kernel's name.
        file: its file; empty if unknown.
        line: where it asked for what is missing; 0 if unknown.
        why: one sentence.
        launches: number of launches that did not run.
        tests: the tests that made them, in order; empty if no test runner named them.
    """

    kernel: str
    file: str
    line: int
    why: str
    launches: int = 0
    tests: list[str] = field(default_factory=list[str])


@dataclass
class EmulatedProcess:
    """One process of a program.

    Attributes:
        arch: the architecture that kernels were compiled for.
        seconds: processor time of the emulator.
        kernels: what was launched.
        findings: what went wrong, each kind once at each place.
        not_run: what the emulator could not do.
        uncompiled: number of calls of `torch.compile`, whose functions ran as they stand.
    """

    arch: str
    seconds: float = 0.0
    kernels: list[ProgramKernel] = field(default_factory=list[ProgramKernel])
    findings: list[ProgramFinding] = field(default_factory=list[ProgramFinding])
    not_run: list[NotRun] = field(default_factory=list[NotRun])
    uncompiled: int = 0


def write_process(process: EmulatedProcess, folder: Path, number: int) -> None:
    """Write the record of the process with this number; a reader finds the old one or the new one."""
    partial = folder / f"{number}.partial"
    partial.write_bytes(msgspec.json.encode(process))
    partial.replace(folder / f"{number}{_SUFFIX}")


def read_processes(folder: Path) -> tuple[EmulatedProcess, ...]:
    """Return the records in a folder."""
    paths = sorted(folder.glob(f"*{_SUFFIX}"))
    return tuple(msgspec.json.decode(path.read_bytes(), type=EmulatedProcess) for path in paths)


def read_unable(folder: Path) -> tuple[str, ...]:
    """Return why processes could not see the emulator, each reason once; `capture/inject/sitecustomize.py` says so."""
    said: Sequence[str] = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*{_UNABLE}"))]
    return tuple(dict.fromkeys(said))


class ProgramCounts:
    """Adds up findings and launches; what is alike is one entry with the sum of its counts.

    Attributes:
        process: the record that grows.
    """

    def __init__(self, arch: str) -> None:
        self.process = EmulatedProcess(arch)
        self._known: dict[tuple[object, ...], ProgramFinding | ProgramKernel | NotRun] = {}

    def add_kernel(self, kernel: ProgramKernel) -> None:
        """Add launches of a kernel."""
        known = self._known.setdefault((kernel.name, kernel.file, kernel.line), kernel)
        assert isinstance(known, ProgramKernel), "keys of other records are longer"
        if known is kernel:
            self.process.kernels.append(kernel)
        else:
            known.launches += kernel.launches

    def add_finding(self, found: ProgramFinding) -> None:
        """Add a finding; one of the same kind at the same place keeps the values of the first."""
        one = found.finding
        key = (one.kind, one.path, one.line, one.kernel, one.space, one.access, found.file)
        known = self._known.setdefault(key, found)
        assert isinstance(known, ProgramFinding), "no other record has so long a key"
        if known is found:
            self.process.findings.append(found)
            return
        known.finding = replace(known.finding, count=known.finding.count + one.count)
        known.launches += found.launches
        _name(known.tests, found.tests)

    def add_not_run(self, work: NotRun) -> None:
        """Add launches that could not be emulated."""
        known = self._known.setdefault((work.kernel, work.file, work.line, work.why), work)
        assert isinstance(known, NotRun), "keys of other records have another length"
        if known is work:
            self.process.not_run.append(work)
            return
        known.launches += work.launches
        _name(known.tests, work.tests)


def _name(tests: list[str], more: Iterable[str]) -> None:
    tests += [test for test in more if test not in tests]
    del tests[MOST_TESTS:]


def added_up(processes: Sequence[EmulatedProcess]) -> EmulatedProcess:
    """Return all processes of a program as one."""
    counts = ProgramCounts(processes[0].arch if processes else "")
    for process in processes:
        counts.process.seconds += process.seconds
        counts.process.uncompiled += process.uncompiled
        for kernel in process.kernels:
            counts.add_kernel(kernel)
        for found in process.findings:
            counts.add_finding(found)
        for work in process.not_run:
            counts.add_not_run(work)
    return counts.process
