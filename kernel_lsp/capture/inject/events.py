"""Times one launch in 16 of each Triton kernel between two CUDA events, where NVIDIA's profiling library cannot be had.

An event waits in the kernel's own stream; nothing waits for it. While the GPU is idle the time has the launch's own
delay in it. A launch during which the host took long, as to compile, is left out.
"""

import os
import sys
import time

import _kernel_lsp_calls as calls
import _kernel_lsp_seen as seen

EVERY = 16
MOST_WAITING = 256
_LONG_SECONDS = 1e-3
ON = bool(os.environ.get("KERNEL_LSP_CAPTURE_EVENTS"))
_seen = {}  # name -> launches
_timed = {}  # name -> launches that were timed, their seconds, the shortest, the longest
_waiting = []


@seen.guarded
def begin(jit):
    """Return what `end` needs if this launch is to be timed, else None."""
    if seen.STATE.left > 0:
        return None
    name = jit.fn.__name__
    _seen[name] = _seen.get(name, 0) + 1
    if _seen[name] % EVERY or len(_waiting) >= MOST_WAITING or calls.in_a_graph():
        return None
    event = sys.modules["torch"].cuda.Event
    pair = event(enable_timing=True), event(enable_timing=True)
    pair[0].record()
    return name, *pair, time.perf_counter()


@seen.guarded
def end(begun):
    """Note the end of a launch that is timed."""
    name, first, last, began = begun
    last.record()
    if time.perf_counter() - began < _LONG_SECONDS:
        _waiting.append((name, first, last))
    _collect()


def _collect():
    while _waiting and _waiting[0][2].query():
        name, first, last = _waiting.pop(0)
        seconds = first.elapsed_time(last) / 1e3
        count, whole, least, most = _timed.get(name, (0, 0.0, seconds, seconds))
        _timed[name] = count + 1, whole + seconds, min(least, seconds), max(most, seconds)


def times():
    """Return, of each kernel with a time, its launches, the mean, the shortest and the longest of the timed ones."""
    _collect()
    return {name: [_seen[name], whole / count, *ends] for name, (count, whole, *ends) in _timed.items()}
