"""Reads what the processes of a shadow run wrote. Nothing here imports torch."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class ShadowDifference:
    """How one output of one call differs from what the original made of the same arguments.

    Attributes:
        function: the function of the kernel's file.
        call: number of the call, from 1, among those of this function in this process.
        output: `output 0`, or ``argument `x` `` for what is changed in place.
        why: what differs other than elements; empty if they alone may.
        wrong: number of elements beyond what is allowed.
        elements: number of elements.
        units: the largest error in the judge's units of rounding; None if it is infinite or no number.
        allowed: the largest that is allowed; 0 for what must be equal.
        index: the first wrong element, else the worst one.
        actual: its value by the variant.
        expected: its value by the original.
    """

    function: str
    call: int
    output: str
    why: str = ""
    wrong: int = 0
    elements: int = 0
    units: float | None = None
    allowed: float = 0.0
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""


@dataclass(frozen=True)
class ShadowFunction:
    """One function that launches kernels, and gave way to the variant's.

    Attributes:
        name: its name.
        calls: number of calls.
        by_variant: number of calls whose result was the variant's.
        compared: number of calls done by both.
        wrong: number of those that differ.
        failed: the call in which the variant raised, and how; the original did it and all later ones.
        skipped: reason -> number of calls that were to be compared and could not be.
    """

    name: str
    calls: int = 0
    by_variant: int = 0
    compared: int = 0
    wrong: int = 0
    failed: str = ""
    skipped: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ShadowProcess:
    """One process of a program that imported the kernel's file.

    Attributes:
        program: its name.
        seconds: from its start to its last record.
        why: why the variant could not be imported; empty if it was.
        functions: the functions that gave way.
        missing: names of functions that launch kernels, which the variant lacks; the original's were used.
        outside: kernel -> number of launches by none of these functions.
        worst: the largest difference, in parts of what is allowed; None if nothing was compared.
        wrong: of each function the first wrong one.
        steps: number of steps.
        segments: of each timed segment its side (`original`, `variant`), steps and seconds, in order.
        device: the GPU's name; empty without one.
        errors: our own errors.
    """

    program: str
    seconds: float = 0.0
    why: str = ""
    functions: tuple[ShadowFunction, ...] = ()
    missing: tuple[str, ...] = ()
    outside: dict[str, int] = field(default_factory=dict[str, int])
    worst: ShadowDifference | None = None
    wrong: tuple[ShadowDifference, ...] = ()
    steps: int = 0
    segments: tuple[tuple[str, int, float], ...] = ()
    device: str = ""
    errors: tuple[str, ...] = ()


def read_shadows(folder: Path) -> tuple[ShadowProcess, ...]:
    """Return the records in a folder."""
    paths = sorted(folder.glob("*.shadow.json"))
    return tuple(msgspec.json.decode(path.read_bytes(), type=ShadowProcess) for path in paths)
