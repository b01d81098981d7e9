"""Decides how a program's GPU time is recorded: what its environment must say, or why nothing can."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_lsp.capture.native_part import RECORDER, native_part
from kernel_lsp.compiler.toolchain.toolkit import find_library
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import CannotJudgeError

INJECTION = "CUDA_INJECTION64_PATH"
"""Names the library that CUDA's driver loads into every process; other profilers use it too."""
_DRIVER_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # Linux; WSL
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ChosenLaunch:
    """The launch whose memory is kept.

    Attributes:
        kernel: part of the kernel's name, mangled or not.
        launch: which of the launches of such kernels in a process, from 1.
        most_bytes: the most memory that is kept.
    """

    kernel: str
    launch: int = 1
    most_bytes: int = _MOST_BYTES


@dataclass(frozen=True, slots=True)
class DeviceLevel:
    """How GPU time is recorded.

    Attributes:
        environment: variables for the program; none if it is not recorded.
        why: the reason for that; empty on a machine without an NVIDIA driver, where nobody expects it.
    """

    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    why: str = ""


def device_level(own: Mapping[str, str], cache: Path, snapshot: ChosenLaunch | None = None) -> DeviceLevel:
    """Return how the GPU time of a program with the environment `own` can be recorded.

    Args:
        own: the environment that it would have.
        cache: folder for the recorder's library.
        snapshot: the launch to keep, if any.
    """
    if not has_driver():
        return DeviceLevel()
    if other := own.get(INJECTION):
        return DeviceLevel(why=f"another profiler is there ({INJECTION}={other})")
    cupti = find_library("cupti")
    if cupti is None:
        return DeviceLevel(why="there is no libcupti here; `pip install nvidia-cuda-cupti` brings one")
    try:
        library = native_part(RECORDER, cache)
    except CannotJudgeError as error:
        return DeviceLevel(why=str(error))
    environment = {INJECTION: str(library), "KERNEL_LSP_CUPTI": str(cupti)}
    if snapshot is not None:
        environment["KERNEL_LSP_SNAPSHOT"] = snapshot.kernel
        environment["KERNEL_LSP_SNAPSHOT_LAUNCH"] = str(snapshot.launch)
        environment["KERNEL_LSP_SNAPSHOT_BYTES"] = str(snapshot.most_bytes)
    return DeviceLevel(environment)


def has_driver() -> bool:
    """Return True if the machine has a driver of NVIDIA's."""
    return any(path.exists() for path in _DRIVER_FILES) or bool(find_gpus())
