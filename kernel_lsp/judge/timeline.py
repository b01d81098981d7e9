"""The wall time of one judgement, by stage."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernel_lsp.runner.spans import SpanLog


@dataclass
class Timeline:
    """Wall seconds by stage; some stages run side by side. `spans` takes when each ran, for the trace.

    The trace starts at `traced_from`, by `time.monotonic_ns`, and has the session's `opening` if it shows that.
    """

    spans: SpanLog = field(default_factory=SpanLog)
    traced_from: int = field(default_factory=time.monotonic_ns)
    opening: dict[str, float] = field(default_factory=dict[str, float])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Count the time of the block under `name`."""
        begun = time.perf_counter()
        try:
            with self.spans.span(name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    def finished(self) -> dict[str, float]:
        """Return all stages, and `total` since the start."""
        return self.seconds | {"total": time.perf_counter() - self.started}
