"""Where the hardware's results and the emulator's differ."""

from dataclasses import dataclass

import numpy as np

from tests.bench.fuzz.instance import LANES, Array, Instance


@dataclass(frozen=True)
class Example:
    """One operand set on which both differ, in hexadecimal."""

    text: str
    sources: tuple[str, ...]
    hardware: tuple[str, ...]
    emulator: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text}  {' '.join(self.sources)}  ->  {' '.join(self.hardware)}, not {' '.join(self.emulator)}"


@dataclass(frozen=True)
class Comparison:
    """One instance compared: operand sets with other bits, and the plainest of them."""

    different: int
    example: Example | None


def compare(instance: Instance, hardware: tuple[Array, ...], emulator: tuple[Array, ...]) -> Comparison:
    """Both sides' raw results of one instance, lane by lane."""
    emulator = tuple(np.broadcast_to(x, (LANES,)).astype(y.dtype) for x, y in zip(emulator, hardware, strict=True))
    different = np.zeros(LANES, bool)
    for ours, theirs in zip(emulator, hardware, strict=True):
        different |= ours != theirs
    return Comparison(int(different.sum()), _plainest(instance, different, hardware, emulator))


def _plainest(
    instance: Instance, lanes: Array, hardware: tuple[Array, ...], emulator: tuple[Array, ...]
) -> Example | None:
    """The example whose operands have the fewest bits set."""
    if not lanes.any():
        return None
    weight = np.zeros(LANES)
    for x in instance.sources:
        weight += np.bitwise_count(x.astype(np.uint64))
    lane = int(np.argmin(np.where(lanes, weight, np.inf)))
    sides = (tuple(_hexadecimal(x[lane]) for x in side) for side in (instance.sources, hardware, emulator))
    return Example(" ".join(instance.text.split()), *sides)


def _hexadecimal(value: np.generic) -> str:
    return str(int(value)) if value.dtype == np.bool_ else f"0x{int(value):0{2 * value.dtype.itemsize}x}"
