"""The approach of a candidate: how its machine code uses memory, threads and arithmetic units.

Two candidates of one approach differ in details, two of different ones in structure. It is read from the PTX of all
kernels of a candidate, so that names, comments and layout of its text do not matter.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from kernel_lsp.compiler.builds.built import Built

_MEMORY = {
    "asynchronous copies": r"\bcp\.(?:async|reduce\.async)\b",
    "shared memory": r"\b(?:ld|st)(?:\.\w+)*\.shared\b",
    "wide accesses": r"\b(?:ld|st)(?:\.\w+)*\.global(?:[.:]\w+)*\.v\d\b",
}
_THREADS = {
    "blocks together": r"\b(?:atom|red)(?:\.\w+)*\.global\b|\bbarrier\.cluster\b",
    "warps together": r"\b(?:shfl|redux|vote|match)\.sync\b",
    "threads of a block together": r"\bbar(?:rier)?\.(?:cta\.)?(?:sync|red)\b",
}
_ARITHMETIC = {
    "tensor cores": r"\b(?:w?mma|wgmma|tcgen05)\.(?:\w+\.)*(?:mma|mma_async|sync)\b",
    "packed arithmetic": r"\b(?:add|mul|fma|max|min)(?:\.\w+)*\.(?:bf16x2|f16x2|f32x2)\b",
}


class Approach(NamedTuple):
    """The approach of a candidate, on three axes; the most telling of what it does counts on each.

    Attributes:
        memory: `asynchronous copies`, `shared memory`, `wide accesses` or `single accesses`.
        threads: `blocks together`, `warps together`, `threads of a block together` or `threads by themselves`.
        arithmetic: `tensor cores`, `packed arithmetic` or `scalar arithmetic`.
    """

    memory: str
    threads: str
    arithmetic: str

    def __str__(self) -> str:
        """Return it in words."""
        return ", ".join(self)


def approach_of(built: Built) -> Approach | None:
    """Return the approach of a build; None where its compiler keeps no PTX, or nothing was compiled."""
    texts = [image.ptx for image in built.images if image.ptx]
    if not texts:
        return None
    return Approach(
        _first(_MEMORY, texts) or "single accesses",
        _first(_THREADS, texts) or "threads by themselves",
        _first(_ARITHMETIC, texts) or "scalar arithmetic",
    )


def _first(known: dict[str, str], texts: Iterable[str]) -> str | None:
    return next((name for name, form in known.items() if any(re.search(form, text) for text in texts)), None)
