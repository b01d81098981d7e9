"""A fake driver: Triton compiles kernels as for a real GPU and hands compilations and launches to a receiver.

Worker processes only. Works with Triton 3.6 and 3.7.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import torch
from triton import knobs
from triton._C.libtriton import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import max_shared_mem
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver as active_driver
from triton.runtime.jit import JITFunction

from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.triton.since import ArchitectureError, refusing
from kernel_lsp.device.architectures import BLOCK_THREADS, REGISTERS, WARP, arch_number
from kernel_lsp.device.device import Device
from kernel_lsp.errors import CannotJudgeError

_OF_ARCHITECTURE = frozenset(
    ("arch", "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "max_num_imprecise_acc_default")
)
"""Options of Triton's that it sets by the architecture."""
_LEAST_REGISTERS = 16  # the fewest that hardware gives a thread


class Receiver(Protocol):
    """Receives what Triton compiles and launches; the result of `load` is the kernel's handle in the other calls."""

    def load(self, symbol: str, cubin: bytes) -> Any:
        """Receive a compiled kernel and return its handle."""

    def loaded(self, kernel: Any, ptx: str | None, ttgir: str | None) -> None:
        """Receive the PTX and the TTGIR of a loaded kernel; None where there is none."""

    def launch(
        self, source: Any, metadata: Any, kernel: Any, grid: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Receive a launch; `arguments` has a value for every parameter of the function, compile-time ones too."""

    def benchmark(self, call: Callable[[], object]) -> None:
        """Replace a timing run of the autotuner's: all runs report the same time."""


@contextlib.contextmanager
def received_by(
    receiver: Receiver, device: Device, *, shared_bytes: int | None = None, prefer_later: bool = False
) -> Generator[None]:
    """Make Triton, within the context, compile for `device` and launch into `receiver`.

    Args:
        receiver: gets kernels and launches.
        device: the GPU.
        shared_bytes: of shared memory that a block may have; if None, as many as on the device.
        prefer_later: True to refuse kernels that a later architecture runs as other code: see `since`.
    """

    def loaded(module: object, function: Any, name: str, metadata_group: dict[str, str], hash: str) -> None:  # noqa: A002
        paths = (
            next((path for file, path in metadata_group.items() if file.endswith(end)), None)
            for end in (".ptx", ".ttgir")
        )
        receiver.loaded(function, *(Path(path).read_text(encoding="utf-8") if path else None for path in paths))

    def bench(call: Callable[[], object], **_: object) -> list[float]:
        receiver.benchmark(call)
        return [1.0, 1.0, 1.0]

    before = active_driver._active  # pyright: ignore[reportPrivateUsage]
    active_driver.set_active(_driver(receiver, device, shared_bytes))
    max_shared_mem.cache_clear()  # Triton asks once and remembers the answer
    knobs.runtime.kernel_load_end_hook.add(loaded)
    try:
        with (
            refusing(prefer=prefer_later),
            mock.patch.object(Autotuner, "do_bench", property(lambda _: bench)),
            # Made-up timings must not reach the file in which the autotuner caches real ones.
            mock.patch.object(Autotuner, "check_disk_cache", lambda _, key, configs, bench: bench() and False),
            mock.patch.object(nvidia.cublas, "CublasLt", _Blas),
        ):
            yield
    finally:
        knobs.runtime.kernel_load_end_hook.remove(loaded)
        max_shared_mem.cache_clear()
        active_driver._active = before  # pyright: ignore[reportPrivateUsage]


class _Blas:
    """Stands for Triton's handle of cuBLAS, which its tutorials make when they are imported."""

    def __init__(self, _workspace: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise CannotJudgeError(f"`{name}` of cuBLAS is not emulated", fix="Run it on a GPU.")


@contextlib.contextmanager
def compiling_for_later(receiver: Receiver, devices: Sequence[Device]) -> Generator[None]:
    """Make Triton, within `received_by`, compile what the GPU there lacks something for as for one of these, in turn.

    A kernel so compiled is launched, and found again, as if it were for that GPU.
    """
    functions: Any = JITFunction
    compile_once = functions._do_compile

    def compile_kernel(function: Any, key: Any, signature: Any, device: Any, constexprs: Any, options: Any, *rest: Any):
        try:
            return compile_once(function, key, signature, device, constexprs, options, *rest)
        except (CompilationError, ArchitectureError):
            kept = {name: value for name, value in vars(options).items() if name not in _OF_ARCHITECTURE}
            for later in devices:
                number = arch_number(later.arch)
                with received_by(receiver, later), contextlib.suppress(CompilationError, ArchitectureError):
                    allowed = function.device_caches[number][3].parse_options(kept)
                    kernel = compile_once(function, key, signature, number, constexprs, allowed, *rest)
                    function.device_caches[device][0][key] = kernel
                    return kernel
            raise

    with mock.patch.object(functions, "_do_compile", compile_kernel):
        yield


def _driver(receiver: Receiver, device: Device, shared_bytes: int | None) -> Any:
    """Return a Triton driver for a GPU that is not there."""
    target = GPUTarget("cuda", arch_number(device.arch), WARP)
    properties = {
        "max_shared_mem": shared_bytes or device.limits.block_shared_bytes,
        "max_num_regs": REGISTERS,
        "multiprocessor_count": device.multiprocessors,
        "warpSize": WARP,
        "sm_clock_rate": 1000 * device.clock_mhz,
        "mem_clock_rate": round(device.bandwidth * 8 / 2 / device.bus_bits / 1000),  # kHz, of two transfers each
        "mem_bus_width": device.bus_bits,
    }

    def load_binary(name: str, cubin: bytes, _shared: int, _device: int) -> tuple[int, object, int, int, int]:
        """Return module, function, registers and spills per thread, and most threads; host code uses these numbers."""
        registers = next((facts.registers for facts in read_cubin(cubin) if facts.entry == name), _LEAST_REGISTERS)
        return 1, receiver.load(name, cubin), max(registers, _LEAST_REGISTERS), 0, BLOCK_THREADS

    utils = SimpleNamespace(get_device_properties=lambda _: properties, load_binary=load_binary)
    return SimpleNamespace(
        utils=utils,
        launcher_cls=lambda source, metadata: _launcher(receiver, source, metadata),
        is_active=lambda: True,
        map_python_to_cpp_type=lambda kind: kind,
        get_current_target=lambda: target,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        # Functions cache their compilations by device number: each architecture gets its own.
        get_current_device=lambda: target.arch,
        set_current_device=lambda _: None,
        get_current_stream=lambda _: 0,
        get_device_interface=lambda: torch.cuda,
    )


def _launcher(receiver: Receiver, source: Any, metadata: Any) -> Callable[..., None]:
    def launch(x: int, y: int, z: int, stream: int, kernel: Any, *rest: Any) -> None:
        # Packed metadata, launch metadata and two hooks precede the arguments.
        receiver.launch(source, metadata, kernel, (x, y, z), rest[4:])

    return launch
