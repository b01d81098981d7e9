"""The memory roofline of a launch: it must read each input once and write each output once."""

from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.runner.messages.oracle_answers import MemoryRates


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The memory bandwidth of a GPU, in bytes per second.

    Attributes:
        copy: measured, read plus written by a large copy.
        read: measured, by a large sum.
        write: measured, by a large fill.
        peak: by its highest clock and the width of its bus; 0 where the driver does not say.
    """

    copy: float
    read: float
    write: float
    peak: float

    @classmethod
    def measured(cls, rates: MemoryRates) -> "Bandwidth":
        """Return the record made from a worker's measurement."""
        return cls(rates.copy, rates.read, rates.write, rates.peak)

    @property
    def limit(self) -> float:
        """Return an upper bound on the bandwidth, in bytes per second."""
        measured = max(self.copy, self.read)  # the last writes of a copy may still be in the cache
        return self.peak if self.peak > measured else policy.PEAK_BANDWIDTH_FACTOR * measured

    def seconds(self, read: int, written: int) -> float:
        """Return the least seconds for these bytes: equal parts of both at the copy rate, the rest at its own rate."""
        common = min(read, written)
        return 2 * common / self.copy + (read - common) / self.read + (written - common) / self.write
