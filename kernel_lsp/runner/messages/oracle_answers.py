"""The answers of the oracle, to the requests of `messages.oracle`."""

from dataclasses import dataclass, field
from typing import Literal

from kernel_lsp.device.tensors import Argument
from kernel_lsp.workload.call import Call
from kernel_lsp.workload.capture import Rung


@dataclass(frozen=True, slots=True)
class CallerContract:
    """The guarantees that the workload's callers give; see `kernel_lsp.workload.contract.Contract`.

    `promises` maps an input's name to a text about its values that completes "NAME is ...".
    """

    contiguous: bool = False
    aligned: int = 0
    mutates: tuple[str, ...] = ()
    finite: bool = False
    listed_sizes: bool = False
    promises: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class LoadedWorkload:
    """A loaded workload.

    Attributes:
        cases: each as a person would write it.
        arguments: names of the leaves of its inputs, weights last.
        decisive: numbers of the cases that decide.
        advisory: numbers of those that are tried for information only.
        scaled: why a case is smaller than written; empty if none is.
        weights: names of a problem's weights.
        renews_weights: True where weights as constructed cannot be judged by.
        calls: by case, how a problem's model is built and called.
        large: True where judging needs much of the GPU's memory.
        nondeterministic: True where the workload declares that runs may differ.
        contract: what callers guarantee.
        right: how the reference of a captured workload is computed; empty for a workload that somebody wrote.
        rung: by which rung of its ladder; None for such a one.
        free, takes: bytes of memory that the choice of cases rests on; of these those that judging may take, or 0.
    """

    cases: tuple[str, ...]
    arguments: tuple[str, ...]
    decisive: tuple[int, ...]
    advisory: tuple[int, ...] = ()
    scaled: str = ""
    weights: tuple[str, ...] = ()
    renews_weights: bool = False
    calls: tuple[Call, ...] = ()
    large: bool = False
    nondeterministic: bool = False
    contract: CallerContract = field(default_factory=CallerContract)
    right: str = ""
    rung: Rung | None = None
    free: int = 0
    takes: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """The memory layout of new inputs: `nbytes` of memory, of which `input_bytes` belong to their elements."""

    arguments: tuple[Argument, ...]
    nbytes: int
    input_bytes: int


@dataclass(frozen=True, slots=True)
class Varied:
    """Inputs with another value of one argument.

    Attributes:
        made: the inputs; None where no other value is known.
        matters: True where the right answer is another one.
        why: what kept the argument from being varied; empty if nothing did.
        next: number of the value that may be tried after this one; 0 if one is enough.
    """

    made: Made | None = None
    matters: bool = False
    why: str = ""
    next: int = 0


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """The error of one output.

    Attributes:
        max, rms: largest and root-mean-square error, in units of rounding.
        wrong: elements beyond what is allowed, out of `total`.
        index: position of the first of them; None if there is none.
        expected, actual: its values, as text.
        allowed: the bound that it exceeds, in units.
        diffuse: True where no element exceeds its bound and the root mean square exceeds its own.
    """

    max: float
    rms: float
    wrong: int
    total: int
    index: tuple[int, ...] | None = None
    expected: str = ""
    actual: str = ""
    allowed: float = 0.0
    diffuse: bool = False


@dataclass(frozen=True, slots=True)
class BaselineError:
    """The baseline's error on one output, in units of rounding."""

    max: float
    rms: float


@dataclass(frozen=True, slots=True)
class TrampledInput:
    """A write past an end of an input: which input, on which side, at what distance and how many bytes."""

    input: str
    side: Literal["before", "past"]
    away: int
    count: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of outputs with the right answer.

    Attributes:
        mismatch: how outputs differ in kind from the reference's, as a sentence; empty if they do not.
        distances: by output.
        fingerprints: by output, a checksum that differs where bits do.
        baseline: by output, the baseline's errors.
        blank: True where an output holds 0xFF bytes that might be right.
        finite: True where all expected values are finite.
        changed_inputs: inputs that were changed though nothing allows it.
        trampled: writes past ends of inputs.
    """

    mismatch: str = ""
    distances: tuple[OutputDistance, ...] = ()
    fingerprints: tuple[int, ...] = ()
    baseline: tuple[BaselineError, ...] = ()
    blank: bool = False
    finite: bool = True
    changed_inputs: tuple[str, ...] = ()
    trampled: tuple[TrampledInput, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """Bytes per second of the GPU's memory; see `kernel_lsp.judge.measure.roofline.Bandwidth`."""

    copy: float
    read: float
    write: float
    peak: float
