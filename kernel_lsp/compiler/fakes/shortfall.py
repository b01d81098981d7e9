"""Tells errors caused by the substitutes for a GPU apart from errors of the code that runs on them.

Worker processes only. The substitutes are the emulator, the fake GPU of `compiler.fakes.gpu` and torch's operations on
the CPU. None of them can do all that a GPU can; an operation they lack says nothing about a kernel.
"""

import sys
import sysconfig
import traceback
from pathlib import Path

import kernel_lsp
from kernel_lsp.errors import CannotJudgeError, WorkloadError

_OURS = Path(kernel_lsp.__file__).parent
_EMULATOR = (
    f"{_OURS / 'emulate'}/",
    *(f"{_OURS / 'runner' / 'workers' / name}" for name in ("emulated_", "emulator.py")),
)
_ARGUMENTS = str(_OURS / "device" / "arguments.py")  # it checks the user's arguments, here as on a GPU
_FAKES = "kernel_lsp.compiler.fakes."
_NO_DEVICE = ("torch/cuda/", "torch/backends/")
_NOT_ON_THE_CPU = ("not implemented for '", "from the 'CPU' backend")


def shortfall(error: BaseException) -> CannotJudgeError | None:
    """Return why only a GPU can run the code that raised `error`; None where that code itself is to blame."""
    if isinstance(error, CannotJudgeError):
        return error
    if isinstance(error, WorkloadError):
        return None  # ours, about a request of the user's code
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith(_FAKES):
        return _needs_gpu(f"`{error.name}` of `torch.cuda`'s {type(error.obj).__name__.strip('_')}")
    said = str(error).strip().splitlines()
    words = type(error).__name__ + (f": {said[0]}" if said else "")
    if isinstance(error, (NotImplementedError, RuntimeError)) and any(part in str(error) for part in _NOT_ON_THE_CPU):
        return _needs_gpu(f"an operation of torch's that the CPU does not have ({words})")
    place = _place(error)
    if place is None:
        return None
    if place.startswith(_EMULATOR):
        return CannotJudgeError(f"the emulator itself failed ({words})", fix="Run it on a GPU.")
    return _needs_gpu(f"a function of {Path(place).stem} in torch ({words})")


def _needs_gpu(what: str) -> CannotJudgeError:
    return CannotJudgeError(f"{what} is not emulated", fix="Run it on a GPU.")


def _place(error: BaseException) -> str | None:
    """Return the file of the emulator or of torch's CUDA module that raised; None where the user's code did."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        name = frame.filename
        if name == _ARGUMENTS:
            return None
        if name.startswith(_EMULATOR) or any(part in name for part in _NO_DEVICE):
            return name
        if not name.startswith((*_libraries(), "<")):
            return None
    return None


def _libraries() -> tuple[str, ...]:
    """Return the folders of code that neither the user nor the emulator has written."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "numpy", "triton"))
    folders = [str(Path(file).parent) for file in files if file]
    return (f"{_OURS}/", sysconfig.get_paths()["stdlib"], *folders)
