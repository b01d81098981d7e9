"""Figures as people read them: three significant digits and the unit that fits."""

import math

_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
_ENERGIES = ((1e3, "J"), (1.0, "mJ"), (1e-3, "µJ"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


_PLAN = 90  # characters of a plan that are shown


def time_text(us: float) -> str:
    """A time given in microseconds: `850 ns`, `29.0 µs`, `1.42 ms`, `3.10 s`."""
    scale, unit = next(((scale, unit) for scale, unit in _TIMES if us >= scale), _TIMES[-1])
    return f"{_digits(us / scale)} {unit}"


def size_text(count: int) -> str:
    """A size given in bytes: `0 B`, `48 KiB`, `1.50 MiB`."""
    scale, unit = next(((scale, unit) for scale, unit in _SIZES if count >= scale), (1, "B"))
    return f"{count // scale} {unit}" if count % scale == 0 else f"{_digits(count / scale)} {unit}"


def bandwidth_text(count: int, us: float) -> str:
    """Bytes moved in some microseconds, in decimal GB/s: `3,310 GB/s`."""
    gbs = count / us / 1e3
    return f"{gbs:,.0f} GB/s" if gbs >= 100 else f"{_digits(gbs)} GB/s"


def energy_text(millijoules: float) -> str:
    """An energy given in millijoules: `850 µJ`, `12.4 mJ`, `1.20 J`."""
    scale, unit = next(((scale, unit) for scale, unit in _ENERGIES if millijoules >= scale), _ENERGIES[-1])
    return f"{_digits(millijoules / scale)} {unit}"


def percent_text(share: float) -> str:
    """A share between 0 and 1: `88 %`."""
    return f"{share * 100:.0f} %"


def speedup_text(speedup: float) -> str:
    """A ratio of times: `1.42x`."""
    return f"{speedup:.2f}x" if abs(speedup - 1) >= 0.05 else f"{speedup:.3f}x"


def interval_text(interval: tuple[float, float]) -> str:
    """An interval of a ratio: `1.40-1.44`; with a third decimal where it is narrow or near 1."""
    low, high = interval
    digits = 3 if high - low < 0.01 or abs(low - 1) < 0.05 else 2
    return f"{low:.{digits}f}-{high:.{digits}f}"


def seconds_text(seconds: float) -> str:
    """A wall time: `3 ms`, `0.42 s`, `12.5 s`, `2:05`."""
    if seconds >= 100:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02}"
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"


def count_text(count: int, noun: str) -> str:
    """A number of things with a plural in `s`: `1 kernel`, `12,480 launches`, `launches` being given as `launch`."""
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def _digits(value: float) -> str:
    """Three significant digits, but never fewer than all those before the point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def talking_text(turn: int, turns: int, tokens: int, rate: float, plan: str = "") -> str:
    """Where a conversation with a model stands (`refine.progress.Talking`); empty where there is none."""
    if not turn:
        return ""
    planned = f" · plan: {plan if len(plan) <= _PLAN else plan[: _PLAN - 3] + '...'}" if plan else ""
    return f"turn {turn} of {turns} · {tokens:,} tokens · {rate:.0f} tokens/s{planned}"
