"""Errors that stop an emulation: instructions that only a GPU can run, faults of the emulator, impossible launches."""

from pathlib import Path

from kernel_lsp.emulate.program import Location, PtxInstruction
from kernel_lsp.errors import CannotJudgeError, KernelLspError

_FIX = "Run it on a GPU."


class NeedsGpu(CannotJudgeError):  # noqa: N818  (a verdict rather than a mistake)
    """The kernel uses something that is not emulated, so that its values are unknown without a GPU.

    Attributes:
        instruction: the PTX instruction, or another feature (`device malloc`).
    """

    def __init__(self, instruction: str, line: int | None = None, path: Path | None = None) -> None:
        self.instruction = instruction
        super().__init__(f"{instruction} is not emulated.", path, line, _FIX)


class EmulatorFault(CannotJudgeError):  # noqa: N818  (a verdict rather than a mistake)
    """The emulator cannot read or execute code that a GPU may well be able to run: no statement about the kernel."""

    def __init__(self, message: str, line: int | None = None, path: Path | None = None) -> None:
        super().__init__(message, path, line, _FIX)


class Unfinished(Exception):  # noqa: N818  (neither a mistake nor a failure)
    """The blocks of a sample cannot continue: something depends on writes of blocks that were left out."""


class LaunchError(KernelLspError):
    """A launch that every GPU would refuse."""


def placed(error: CannotJudgeError, location: Location | None) -> CannotJudgeError:
    """Return the error with the place of the instruction that raised it, in the kernel's file, unless it names one."""
    if error.line is None and location is not None:
        error.path, error.line = Path(location.own.file), location.own.line
    return error


def internal(error: Exception, instruction: PtxInstruction | None) -> CannotJudgeError:
    """Return an exception of the emulator's own code as a fault that names the instruction, if known."""
    said = str(error).strip().splitlines()
    what = "" if instruction is None else f" at `{instruction.opcode}`"
    reason = type(error).__name__ + (f": {said[0]}" if said else "")
    fault = EmulatorFault(f"the emulator itself failed{what} ({reason})")
    return placed(fault, None if instruction is None else instruction.location)
