"""The roof that memory puts over a launch: it must read each input once and write each output once."""

from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.runner.messages.oracle import MemoryRates


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What the memory of a GPU gives, in bytes per second.

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
        """Return the record of a worker's measurement."""
        return cls(rates.copy, rates.read, rates.write, rates.peak)

    @property
    def limit(self) -> float:
        """What nothing can exceed."""
        measured = max(self.copy, self.read)  # the end of what is written may still be in the cache
        return self.peak if self.peak > measured else policy.PEAK_BANDWIDTH_FACTOR * measured

    def seconds(self, read: int, written: int) -> float:
        """How long so many bytes take at least: what is read and written alike as a copy, the rest at its own rate."""
        common = min(read, written)
        return 2 * common / self.copy + (read - common) / self.read + (written - common) / self.write
