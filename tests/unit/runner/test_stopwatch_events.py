"""Events of a captured graph are renewed behind the capture: who asked for them then records what nobody reads."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.runner.workers import stopwatch  # noqa: E402 - after what it needs
from kernel_lsp.runner.workers.stopwatch import Timer  # noqa: E402 - likewise


class Driver:
    """Events, and a captured graph of one stream whose nodes record events or take time."""

    def __init__(self) -> None:
        self.nodes: list[float | str] = []
        self.times: dict[str, float] = {}
        self.alive: list[str] = []
        self.CUresult = SimpleNamespace(CUDA_SUCCESS=0)
        self.CUgraphNode = int

    def cuEventCreate(self, _flags: int) -> tuple[int, str]:  # noqa: N802 - the driver's name
        self.alive.append(f"event {len(self.alive)}")
        return 0, self.alive[-1]

    def cuEventDestroy(self, event: str) -> tuple[int]:  # noqa: N802
        self.alive.remove(event)
        return (0,)

    def cuEventRecordWithFlags(self, event: str, _stream: int, _flags: int) -> tuple[int]:  # noqa: N802
        self.nodes.append(event)
        return (0,)

    def cuGraphEventRecordNodeSetEvent(self, node: int, event: str) -> tuple[int]:  # noqa: N802
        assert isinstance(self.nodes[node], str), "a node that records an event"
        self.nodes[node] = event
        return (0,)

    def cuEventElapsedTime(self, start: str, end: str) -> tuple[int, float]:  # noqa: N802
        return 0, self.times[end] - self.times[start]

    def replay(self) -> None:
        now = 0.0
        for node in self.nodes:
            if isinstance(node, str):
                assert node in self.alive
                self.times[node] = now
            else:
                now += node


def test_who_records_the_start_of_a_launch_again_is_timed_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(stopwatch, "cu", driver)
    monkeypatch.setattr("kernel_lsp.device.driver.cu", driver)
    timer, stream = Timer(), SimpleNamespace(cuda_stream=7)
    timer.mark(0, stream, captured=True)  # type: ignore[arg-type]
    started = driver.nodes[0]
    driver.nodes += [0.004, started, 0.096]  # a part of the work, the start once more, and the rest
    timer.mark(1, stream, captured=True)  # type: ignore[arg-type]
    driver.replay()
    assert timer.elapsed_us() == pytest.approx(96.0)
    timer.renew(0, 0)
    timer.renew(1, 4)
    driver.replay()
    assert timer.elapsed_us() == pytest.approx(100.0)
    del timer
    assert driver.alive == []
