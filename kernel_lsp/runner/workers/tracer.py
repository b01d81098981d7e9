"""What the GPU did while something ran: kernels, copies and fills with their streams and times. Worker processes only.

CUPTI's activity records, through torch's profiler. What is needed of it is bound here, before any candidate is loaded.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

_T = TypeVar("_T")
_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_synchronize, _read, _profile = torch.cuda.synchronize, json.loads, profile


def trace(work: Callable[[], _T], file: Path) -> tuple[_T, dict[str, Any]]:
    """Do `work` and wait for the GPU; what `work` returned, and what the GPU did. `file` is written and removed.

    The second is `operations`, and `failed`: why there are none, if the profiler says so. An operation is `kind`,
    `name` (C++ names as declarations), `stream`, `start_us` and `us` in microseconds, and where known `grid`, `block`,
    `nbytes`. What `work` raises is passed on.
    """
    profiler = _profile(activities=[ProfilerActivity.CUDA])
    try:
        profiler.start()
    except RuntimeError as error:
        return work(), {"operations": [], "failed": str(error)}
    try:
        done = work()
        _synchronize()
    finally:
        profiler.stop()
    try:
        profiler.export_chrome_trace(str(file))
        events = _read(file.read_text(encoding="utf-8"))["traceEvents"]
    finally:
        file.unlink(missing_ok=True)
    return done, {"operations": [_operation(e) for e in events if e.get("cat") in _KINDS], "failed": None}


def _operation(event: dict[str, Any]) -> dict[str, Any]:
    told = event["args"]
    return {
        "kind": _KINDS[event["cat"]],
        "name": event["name"],
        "stream": told.get("stream", 0),
        "start_us": event["ts"],
        "us": event["dur"],
        "grid": told.get("grid"),
        "block": told.get("block"),
        "nbytes": told.get("bytes"),
    }
