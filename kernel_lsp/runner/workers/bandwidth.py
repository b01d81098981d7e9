"""Measure the memory bandwidth of this process's GPU."""

from collections.abc import Callable

import torch

from kernel_lsp import policy
from kernel_lsp.device.driver import check, cu


def measure_bandwidth() -> dict[str, float]:
    """Return the fields of a `Bandwidth`, in bytes per second, each the best of six tries.

    The rates for reading and for writing are never below that for copying.
    """
    size = min(policy.BANDWIDTH_BYTES, torch.cuda.mem_get_info()[0] // 8) // 4 * 4
    source = torch.ones(size // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * size / _least_seconds(lambda: target.copy_(source))
    read = size / _least_seconds(source.sum)
    write = size / _least_seconds(target.zero_)
    return {"copy": copy, "read": max(read, copy), "write": max(write, copy), "peak": _peak()}


def _least_seconds(do: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(policy.BANDWIDTH_REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        do()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return min(times)


def _peak() -> float:
    """Return the peak rate: two transfers a clock on each line of the bus ("CUDA C++ Best Practices Guide")."""
    asked = cu.CUdevice_attribute
    device = check(cu.cuDeviceGet(torch.cuda.current_device()), "finding the device")
    khz, bits = (
        check(cu.cuDeviceGetAttribute(attribute, device), "asking for the memory's clock and bus")
        for attribute in (
            asked.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            asked.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
        )
    )
    return 2 * 1e3 * khz * bits / 8
