"""Run launches without pause for seconds, without checks, flushes or fills between them."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.runner.messages.subject_answers import Stretch
from kernel_lsp.runner.spans import WORKER
from kernel_lsp.runner.workers.stopwatch import Stopwatch, Timer


def run_for(
    watch: Stopwatch,
    launch: Callable[[], Sequence[Tensor]],
    seconds: float,
    launch_us: float,
    *,
    restore: Callable[[], None] | None = None,
    capture: bool = True,
) -> Stretch:
    """Launch repeatedly for about `seconds` by this process's clock; return the number of launches and their GPU time.

    Args:
        watch: shared by all recordings of this process.
        launch: the launch, returning its outputs.
        seconds: how long.
        launch_us: about how long one launch takes, microseconds.
        restore: puts back inputs that the launch changes, before each launch; its time counts too.
        capture: replay launches as CUDA graphs.
    """
    count = max(1, min(policy.BURST_LAUNCHES, int(policy.BURST_US / launch_us)))
    stream = watch.stream if capture else torch.cuda.default_stream()

    def enqueue() -> None:
        for _ in range(count):
            if restore is not None:
                restore()
            launch()

    burst: Callable[[], None] = enqueue
    whole, fences = Timer(), (Timer(), Timer())
    with WORKER.span("steady load", gpu=True), torch.cuda.stream(stream):
        if capture:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            enqueue()
            graph.capture_end()
            burst = graph.replay
        burst()
        watch.read_clocks(0)
        whole.mark(0, stream, captured=False)
        bursts, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            burst()
            fences[bursts % 2].mark(1, stream, captured=False)
            bursts += 1
            if bursts > 1:  # one burst always waits while another runs
                fences[bursts % 2].wait()
        whole.mark(1, stream, captured=False)
        watch.read_clocks(1)
        stream.synchronize()
    return Stretch(bursts * count, whole.elapsed_us() / 1e6, watch.clock_mhz())
