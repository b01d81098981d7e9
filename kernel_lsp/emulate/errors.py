"""What stops an emulation: an instruction that only a GPU can run, or a launch that makes no sense."""

from pathlib import Path

from kernel_lsp.errors import CannotJudgeError, KernelLspError


class NeedsGpu(CannotJudgeError):  # noqa: N818  (a verdict rather than a mistake)
    """The kernel uses something that is not emulated, so that its values are unknown without a GPU.

    Attributes:
        instruction: the PTX instruction, or what else it was (`device malloc`).
    """

    def __init__(self, instruction: str, line: int | None = None, path: Path | None = None) -> None:
        self.instruction = instruction
        super().__init__(f"{instruction} is not emulated.", path, line, "Run it on a GPU.")


class EmulationError(KernelLspError):
    """A launch that cannot be run as asked: no such kernel, wrong parameter size, malformed PTX."""
