"""Reads GPUs through the driver's management library (NVML): properties, state, load. Never makes a CUDA context."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_lsp.device.architectures import ARCHITECTURES, nearest_arch
from kernel_lsp.device.host_memory import host_memory

_REASONS = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "thermal (software)",
    0x0000000000000040: "thermal (hardware)",
    0x0000000000000080: "power brake",
}


SLOWED_BY_HARDWARE = frozenset({"hardware slowdown", "thermal (hardware)", "power brake"})
"""Reasons for which the GPU protects itself: times taken meanwhile are worthless."""


_WORD_BITS = 64  # of NVML's masks of cores


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: index in NVML and `nvidia-smi`.
        name: name in the driver.
        uuid: its UUID.
        arch: its architecture, as compilers name it.
        driver: version of the driver.
        memory_bytes: its whole memory.
        multiprocessors: their number; None if the driver does not tell.
    """

    index: int
    name: str
    uuid: str
    arch: str
    driver: str
    memory_bytes: int
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU at one moment: clock in MHz, power in W, temperature in degrees Celsius; None if unknown.

    `others_percent` is the share of time that processes other than ours recently kept the multiprocessors busy; unknown
    in a container, where process ids differ from the driver's.
    """

    sm_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttle: tuple[str, ...]
    others_percent: int | None


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """The power draw of a GPU at one moment: watts, limit, joules since the driver was loaded, throttle reasons.

    None where the driver does not tell.
    """

    watts: float | None
    limit_w: float | None
    energy_j: float | None
    throttle: tuple[str, ...]


def find_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs that this process may use, by CUDA_VISIBLE_DEVICES; empty without a driver or NVML's bindings."""
    nvml = _nvml()
    if nvml is None:
        return ()
    driver = str(nvml.nvmlSystemGetDriverVersion())
    gpus: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        arch = f"sm_{major}{minor}"
        gpus.append(
            Gpu(
                index,
                str(nvml.nvmlDeviceGetName(handle)),
                str(nvml.nvmlDeviceGetUUID(handle)),
                arch,
                driver,
                _memory(nvml, handle)[0],
                _multiprocessors(nvml, handle, arch),
            )
        )
    return _visible(tuple(gpus), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Return the whole memory of a GPU and what is free of it, bytes; the machine's, where it has none of its own."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.total), int(info.free)
    except nvml.NVMLError_NotSupported:  # as of GB10, which shares the processor's
        return host_memory()


def _multiprocessors(nvml: Any, handle: Any, arch: str) -> int | None:
    """Return the number of multiprocessors, from the driver's number of cores; None if it does not tell."""
    try:
        return int(nvml.nvmlDeviceGetNumGpuCores(handle)) // ARCHITECTURES[nearest_arch(arch)].cores or None
    except nvml.NVMLError:
        return None


class Faults:
    """Collects the Xid events of one GPU: the driver's numbers for faults, hangs and broken memory."""

    def __init__(self, gpu: Gpu) -> None:
        self._nvml = nvml = _nvml()
        self._events: Any = None
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError:  # some GPUs and containers do not report them
            self.close()

    def drain(self) -> tuple[int, ...]:
        """Return the numbers of the events since the last call, in order."""
        found: list[int] = []
        while self._events is not None:
            try:
                found.append(int(self._nvml.nvmlEventSetWait(self._events, 0).eventData))
            except self._nvml.NVMLError:  # no further event
                break
        return tuple(found)

    def close(self) -> None:
        """Stop listening."""
        if self._events is not None:
            self._nvml.nvmlEventSetFree(self._events)
            self._events = None


def cores_near(gpu: Gpu) -> frozenset[int]:
    """Return those of this process's cores that are on the NUMA node of `gpu`; all of them where that is unknown."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    ours = os.sched_getaffinity(0)
    words = _questions(nvml, gpu)(nvml.nvmlDeviceGetCpuAffinity, max(ours) // _WORD_BITS + 1) or ()
    near = {word * _WORD_BITS + bit for word, mask in enumerate(words) for bit in range(_WORD_BITS) if mask >> bit & 1}
    return frozenset(near & ours or ours)


def uses(gpu: Gpu, pid: int) -> bool:
    """Return True if a process still has a context on the GPU; False in containers, whose process ids differ."""
    nvml = _nvml()
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return any(process.pid == pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError:
        return False


def read_state(gpu: Gpu, ours: frozenset[int]) -> GpuState:
    """Return the state of `gpu` now; `ours` are the process ids that do not count as others."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    ask = _questions(nvml, gpu)
    power = ask(nvml.nvmlDeviceGetPowerUsage)
    running = {process.pid for process in ask(nvml.nvmlDeviceGetComputeRunningProcesses) or ()}
    samples = (ask(nvml.nvmlDeviceGetProcessUtilization, 0) or ()) if running & ours else ()
    return GpuState(
        ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        None if power is None else power / 1000,
        ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        _throttle(ask(nvml.nvmlDeviceGetCurrentClocksEventReasons)),
        _others(samples, ours) if running & ours else None,
    )


def free_bytes(gpu: Gpu) -> int:
    """Return the free memory of `gpu` in bytes."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    return _memory(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))[1]


def busy_percent(gpu: Gpu, pids: frozenset[int], since: float) -> int | None:
    """Return the highest percentage of time that processes kept `gpu` busy in any sample after `since`.

    `since` is in seconds since 1970. None if the driver has no sample, as in a container, where process ids differ.
    """
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    try:
        if not pids & {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}:
            return None
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, int(since * 1e6))
    except nvml.NVMLError:  # also if there is no sample
        return None
    return max((int(s.smUtil) for s in samples if s.pid in pids), default=0)


def read_load(gpu: Gpu) -> GpuLoad:
    """Return the power draw of `gpu`: of this moment if the GPU tells it, else of the last second."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    ask = _questions(nvml, gpu)
    fields = ask(nvml.nvmlDeviceGetFieldValues, [nvml.NVML_FI_DEV_POWER_INSTANT]) or ()
    now = [field.value.uiVal for field in fields if field.nvmlReturn == nvml.NVML_SUCCESS]
    power = now[0] if now else ask(nvml.nvmlDeviceGetPowerUsage)
    limit, energy = ask(nvml.nvmlDeviceGetEnforcedPowerLimit), ask(nvml.nvmlDeviceGetTotalEnergyConsumption)
    return GpuLoad(
        None if power is None else power / 1000,
        None if limit is None else limit / 1000,
        None if energy is None else energy / 1000,
        _throttle(ask(nvml.nvmlDeviceGetCurrentClocksEventReasons)),
    )


def read_throttle(gpu: Gpu) -> tuple[str, ...]:
    """Return the reasons that slow `gpu` down now."""
    nvml = _nvml()
    assert nvml is not None, "a Gpu record comes from a working NVML"
    return _throttle(_questions(nvml, gpu)(nvml.nvmlDeviceGetCurrentClocksEventReasons))


def _throttle(reasons: int | None) -> tuple[str, ...]:
    return tuple(name for bit, name in _REASONS.items() if (reasons or 0) & bit)


def _questions(nvml: Any, gpu: Gpu) -> Callable[..., Any]:
    """Return a function that queries NVML about a GPU and returns None for queries that the GPU does not support."""
    handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)

    def ask(question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None

    return ask


def _others(samples: Any, ours: frozenset[int]) -> int:
    """Return the busiest sample of the last two seconds, in percent, of processes that are not ours."""
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
    """Return the bindings, initialised once; None without a driver or the bindings."""
    if not _loaded:
        try:
            import pynvml

            pynvml.nvmlInit()
            _loaded.append(pynvml)
        except Exception:
            _loaded.append(None)
    return _loaded[0]
