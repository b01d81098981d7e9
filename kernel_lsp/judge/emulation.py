"""The records of an emulated run of a workload: findings and counters by line, or why there are none.

The worker that emulates (`runner/workers/emulator.py`) sends these as plain data; nothing here imports the emulator.
"""

from dataclasses import dataclass

from kernel_lsp.runner.emulated import EmulatedFinding, EmulatedReport, KernelTotals, LineCounters


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """One run of a workload's `launch` on the emulator, on one set of inputs.

    Attributes:
        case: the case as a person would write it.
        family: the family of its inputs.
        input_bytes: of all inputs.
        findings: what went wrong, by line.
        counters: what memory and branches cost, by line.
        totals: what each kernel did.
        seconds: processor time of the run in the worker, which does not grow when others keep the machine busy.
        computed: operations of torch that computed something from tensors as large as the inputs.
    """

    case: str
    family: str
    input_bytes: int
    findings: tuple[EmulatedFinding, ...] = ()
    counters: tuple[LineCounters, ...] = ()
    totals: tuple[KernelTotals, ...] = ()
    seconds: float = 0.0
    computed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotEmulated:
    """Why a kernel was not emulated: a sentence that names the instruction, and the line that asks for it, if known."""

    reason: str
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Emulation:
    """All emulated runs of one version of a kernel; `needs_gpu` is set where they ended for want of a GPU."""

    runs: tuple[EmulatedRun, ...] = ()
    needs_gpu: NotEmulated | None = None


def placed_message(finding: EmulatedFinding) -> str:
    """Return the message of a finding after its line, if that is known."""
    return f"line {finding.line}: {finding.message}" if finding.line else finding.message


def read_run(case: str, family: str, input_bytes: int, said: EmulatedReport) -> EmulatedRun:
    """Return the record of one run on a case and family, whose inputs take this many bytes."""
    told = (said.findings, said.counters, said.totals, said.seconds, said.computed)
    return EmulatedRun(case, family, input_bytes, *told)
