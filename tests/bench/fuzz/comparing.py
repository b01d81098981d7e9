"""Where the hardware's results and the emulator's differ, and whether the ISA allows it."""

from dataclasses import dataclass

import numpy as np

from kernel_lsp.emulate.arithmetic.formats import FORMATS, Format
from kernel_lsp.emulate.arithmetic.packed import split
from tests.bench.fuzz.instance import LANES, Array, Bound, Instance


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
    """One instance compared.

    Attributes:
        different: operand sets with other bits.
        unexplained: those of them outside what the ISA allows.
        most_ulps: the largest distance of an approximate result in units in the last place; 0 for exact ones.
        example: the plainest unexplained one.
    """

    different: int
    unexplained: int
    most_ulps: int
    example: Example | None


def compare(instance: Instance, hardware: tuple[Array, ...], emulator: tuple[Array, ...]) -> Comparison:
    """Both sides' raw results of one instance, lane by lane."""
    emulator = tuple(np.broadcast_to(x, (LANES,)).astype(y.dtype) for x, y in zip(emulator, hardware, strict=True))
    different = np.zeros(LANES, bool)
    for ours, theirs in zip(emulator, hardware, strict=True):
        different |= ours != theirs
    unexplained, ulps = different, 0
    if instance.bound is not None:
        allowed, ulps = _within(instance.bound, hardware[0], emulator[0])
        unexplained = different & ~allowed
    return Comparison(
        int(different.sum()), int(unexplained.sum()), ulps, _plainest(instance, unexplained, hardware, emulator)
    )


def _within(bound: Bound, theirs: Array, ours: Array) -> tuple[Array, int]:
    """Which lanes are close enough, and the largest distance of two numbers in units in the last place."""
    form = FORMATS[bound.form]
    if bound.lanes == 2:
        theirs, ours = (split(x, form.bits) for x in (theirs, ours))
    with np.errstate(all="ignore"):
        y, z = (form.numbers(v).astype(np.float64) for v in (theirs, ours))
        steps = np.abs(_rank(theirs, form, bound.ftz) - _rank(ours, form, bound.ftz))
        close = (steps <= bound.ulps) | (np.abs(y - z) <= np.maximum(bound.absolute, bound.relative * np.abs(z)))
    nan = np.isnan(y) | np.isnan(z)
    allowed = np.where(nan, theirs == ours, close)
    return allowed if allowed.ndim == 1 else allowed.all(axis=-1), int(np.where(nan, 0, steps).max())


def _rank(x: Array, form: Format, ftz: bool) -> Array:
    """The place of each value in the order of the format's numbers."""
    size = (x & ~form.sign).astype(np.int64)
    if ftz:
        size = np.maximum(size - (int(form.smallest_normal) - 1), 0)
    return np.where(x & form.sign != 0, -size, size)


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
