"""Record the state of the GPU during a measurement."""

from collections.abc import Sequence

from kernel_lsp import policy
from kernel_lsp.device.nvml import busy_percent, read_state
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.verdict import DeviceState, ModelServerState
from kernel_lsp.model.gate import Quiet, Quieted
from kernel_lsp.runner.sessions import members


def device_state(
    harness: Harness, series: Series, pids: frozenset[int], servers: Sequence[Quieted] = ()
) -> DeviceState:
    """Return the GPU's state while `series` was measured.

    Args:
        harness: with the GPU.
        series: the blocks.
        pids: processes of ours.
        servers: model servers that were kept off the GPU.
    """
    assert harness.gpu is not None, "only what was timed has a device state"
    states: list[ModelServerState] = []
    for quieted in servers:
        theirs = frozenset(members(quieted.server.pid) if quieted.server.pid else ())
        busy = busy_percent(harness.gpu, theirs, quieted.since + policy.QUIET_SAMPLE_SECONDS)
        states.append(
            ModelServerState(name=quieted.server.name, pid=quieted.server.pid, how=quieted.how, busy_percent=busy)
        )
        if quieted.how is not Quiet.BUSY:
            pids |= theirs  # the driver's samples reach back to the time when the server still generated
    state = read_state(harness.gpu, pids)
    busy_server = any(s.how is Quiet.BUSY for s in servers)
    return DeviceState(
        name=harness.gpu.name,
        uuid=harness.gpu.uuid,
        arch=harness.gpu.arch,
        driver=harness.gpu.driver,
        sm_clock_mhz=(min(series.clocks), max(series.clocks)) if series.clocks else None,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttle=tuple(sorted(series.throttle | set(state.throttle))),
        others_busy_percent=state.others_percent,
        shared=(state.others_percent or 0) > policy.SHARED_BUSY_PERCENT or busy_server,
        copy_bandwidth_gbs=harness.bandwidth.copy / 1e9 if harness.bandwidth else None,
        read_bandwidth_gbs=harness.bandwidth.read / 1e9 if harness.bandwidth else None,
        model_servers=tuple(states),
    )
