"""Add up the time in which something goes on, however many times at once."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class BusyTime:
    """The seconds in which at least one block of `running` was open; `clock` returns the time in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open, self._since, self._seconds = 0, 0.0, 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds so far."""
        return self._seconds + (self._clock() - self._since if self._open else 0.0)

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the time of the block."""
        if not self._open:
            self._since = self._clock()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._seconds += self._clock() - self._since
