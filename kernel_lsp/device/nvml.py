"""GPUs as the driver's management library sees them: what is there, how warm, how busy. Never makes a CUDA context."""

import os
from dataclasses import dataclass
from typing import Any

_REASONS = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "thermal (software)",
    0x0000000000000040: "thermal (hardware)",
    0x0000000000000080: "power brake",
}
HARDWARE_SLOWDOWN = frozenset({"hardware slowdown", "thermal (hardware)", "power brake"})


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `index` is NVML's, `memory_bytes` its whole memory, `arch` as compilers name it."""

    index: int
    name: str
    uuid: str
    arch: str
    driver: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """A moment of one GPU. Clocks in MHz, power in W, temperature in degrees Celsius.

    `others_percent` is the share of time that processes other than `ours` kept the GPU's multiprocessors busy lately.
    """

    sm_clock_mhz: int
    power_w: float
    temperature_c: int
    throttle: tuple[str, ...]
    others_percent: int


def find_gpus() -> tuple[Gpu, ...]:
    """All GPUs that this process may use, by CUDA_VISIBLE_DEVICES; empty without a driver or NVML's bindings."""
    nvml = _nvml()
    if nvml is None:
        return ()
    driver = str(nvml.nvmlSystemGetDriverVersion())
    gpus: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        gpus.append(
            Gpu(
                index,
                str(nvml.nvmlDeviceGetName(handle)),
                str(nvml.nvmlDeviceGetUUID(handle)),
                f"sm_{major}{minor}",
                driver,
                int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
        )
    return _visible(tuple(gpus), os.environ.get("CUDA_VISIBLE_DEVICES"))


def read_state(gpu: Gpu, ours: frozenset[int]) -> GpuState:
    """The state of `gpu` now; `ours` are the process ids that do not count as others."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    return GpuState(
        int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        tuple(name for bit, name in _REASONS.items() if bits & bit),
        _others(nvml, handle, ours),
    )


def _others(nvml: Any, handle: Any, ours: frozenset[int]) -> int:
    """Busiest recent sample, in percent, of processes that are not ours; 0 where the driver keeps no such samples."""
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except nvml.NVMLError:
        return 0
    latest = max((s.timeStamp for s in samples), default=0)
    window = 2_000_000  # microseconds
    return max((int(s.smUtil) for s in samples if s.pid not in ours and latest - s.timeStamp < window), default=0)


def _visible(gpus: tuple[Gpu, ...], chosen: str | None) -> tuple[Gpu, ...]:
    if chosen is None:
        return gpus
    by_name = {str(g.index): g for g in gpus} | {g.uuid: g for g in gpus}
    return tuple(by_name[name.strip()] for name in chosen.split(",") if name.strip() in by_name)


_loaded: list[Any] = []


def _nvml() -> Any:
    """The bindings, initialised once; None where there is no driver or they are not installed."""
    if not _loaded:
        try:
            import pynvml

            pynvml.nvmlInit()
            _loaded.append(pynvml)
        except Exception:
            _loaded.append(None)
    return _loaded[0]
