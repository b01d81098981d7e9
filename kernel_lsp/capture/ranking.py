"""Which kernels a program's time goes into, as far as that was seen."""

from dataclasses import dataclass

from kernel_lsp.capture.seen import Launched, Seen

TRIED = 1.5
"""How much faster a kernel is taken to become, for what the program would gain."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One kernel.

    Attributes:
        kernel: what was seen of it.
        share: of the host time within the functions that launch kernels, of 0 to 1; None where its was not seen.
        gain: how much faster all of that would be, were this function `TRIED` times as fast; None as `share`.
    """

    kernel: Launched
    share: float | None
    gain: float | None


def ranking(seen: Seen) -> tuple[Ranked, ...]:
    """Every kernel, those of the largest share first; kernels that one function launches have its share together."""
    total = sum({(k.file, k.function or k.name): k.seconds for k in seen.kernels}.values())
    return tuple(_ranked(kernel, total) for kernel in seen.kernels)


def faster(share: float, factor: float = TRIED) -> float:
    """How many times faster a program is when a `share` of its time becomes `factor` times as fast (Amdahl's law)."""
    return 1 / (1 - share * (1 - 1 / factor))


def _ranked(kernel: Launched, total: float) -> Ranked:
    if not kernel.seconds or not total:
        return Ranked(kernel, None, None)
    share = kernel.seconds / total
    return Ranked(kernel, share, faster(share))
