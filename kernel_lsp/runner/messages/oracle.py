"""Requests to the oracle: the worker that makes inputs and knows the right answers, and runs no candidate.

A *key* names one set of inputs, a *subject* the memory of one worker under test, a *buffer* one part of that memory.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.tensors import Argument, BufferHandle, TensorSpec
from kernel_lsp.runner.messages import Request
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
class BufferPlace:
    """Buffers of one worker under test that are filled in turn."""

    subject: str
    buffers: tuple[str, ...]


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


class OracleRole(Protocol):
    """The requests that the oracle answers."""

    def load(self, request: "LoadWorkload", /) -> LoadedWorkload: ...
    def sizes(self) -> tuple[int, ...]: ...
    def prepare(self, request: "Prepare", /) -> Made: ...
    def lay_out(self, request: "LayOut", /) -> Made: ...
    def vary(self, request: "Vary", /) -> Varied: ...
    def touch(self, request: "Touch", /) -> Made: ...
    def other_sizes(self, request: "OtherSizes", /) -> tuple[str, ...]: ...
    def rehearse(self, request: "RehearseReference", /) -> None: ...
    def attach(self, request: "Attach", /) -> None: ...
    def detach(self, request: "Detach", /) -> None: ...
    def fill(self, request: "Fill", /) -> None: ...
    def renew(self, request: "Renew", /) -> None: ...
    def compare(self, request: "Compare", /) -> Compared: ...
    def discriminate(self, request: "Discriminate", /) -> tuple[str, ...]: ...
    def rates(self) -> MemoryRates: ...
    def probe(self) -> bool: ...


class LoadWorkload(Request[OracleRole, LoadedWorkload], frozen=True, kw_only=True):
    """Load a workload and describe it.

    Attributes:
        text, path: its file.
        seed: of a problem's weights.
        keep: bytes of past inputs and expected values that may be kept, where memory is not to say so.
        beside: bytes of memory free before other sessions, and those that these reserve; None without such.
        distance, probes: our own kernels, where there is a GPU.
        builds: texts that compute what is right, with their builds; only for a captured workload of a CUDA file.
        rung: by which a captured function was found to be right elsewhere; None where that is to be found out.
    """

    text: str
    path: str
    seed: int = 0
    keep: int | None = None
    beside: tuple[int, int] | None = None
    distance: Binary | None = None
    probes: Binary | None = None
    builds: dict[str, ExtensionBuild] = msgspec.field(default_factory=dict[str, ExtensionBuild])
    rung: Rung | None = None

    def answered_by(self, role: OracleRole) -> LoadedWorkload:
        return role.load(self)


class InputSizes(Request[OracleRole, tuple[int, ...]], frozen=True, kw_only=True):
    """Return the bytes that the inputs of each case take."""

    def answered_by(self, role: OracleRole) -> tuple[int, ...]:
        return role.sizes()


class OtherSizes(Request[OracleRole, tuple[str, ...]], frozen=True, kw_only=True):
    """Add cases that the workload does not list to its own, and name them, as `workload.other_sizes` finds them.

    There are none of a KernelBench problem, or where the contract says so. All have small inputs, or those that are
    `near` the largest listed case hardly larger ones, and are chosen by chance. With `changes` each is a listed case,
    by its number, with other whole numbers; "" names those that the contract or their size excludes.
    """

    near: bool = False
    changes: tuple[tuple[int, dict[str, int]], ...] = ()

    def answered_by(self, role: OracleRole) -> tuple[str, ...]:
        return role.other_sizes(self)


class Prepare(Request[OracleRole, Made], frozen=True, kw_only=True):
    """Make inputs of a case and family under `key`.

    Errors are held to those of the baseline on the inputs `like`; without such it is measured on these first.
    """

    key: str
    case: int
    family: str
    seed: int
    like: str = ""

    def answered_by(self, role: OracleRole) -> Made:
        return role.prepare(self)


class LayOut(Request[OracleRole, Made], frozen=True, kw_only=True):
    """Keep the inputs of `base` under `key`, in the memory layout of a family; the right answer is the same."""

    key: str
    base: str
    family: str

    def answered_by(self, role: OracleRole) -> Made:
        return role.lay_out(self)


class Vary(Request[OracleRole, Varied], frozen=True, kw_only=True):
    """Keep the inputs of `base` under `key` with an argument's first value, from number `first` on, that matters."""

    key: str
    base: str
    argument: int
    seed: int
    first: int = 0

    def answered_by(self, role: OracleRole) -> Varied:
        return role.vary(self)


class Touch(Request[OracleRole, Made], frozen=True, kw_only=True):
    """Keep the inputs of `base` under `key` with fresh values in a few places and in one whole slice."""

    key: str
    base: str
    seed: int

    def answered_by(self, role: OracleRole) -> Made:
        return role.touch(self)


class RehearseReference(Request[OracleRole, None], frozen=True, kw_only=True):
    """Run the reference on the inputs of `key`, and get ready to compare outputs with its answers."""

    key: str

    def answered_by(self, role: OracleRole) -> None:
        role.rehearse(self)


class Attach(Request[OracleRole, None], frozen=True, kw_only=True):
    """Open an allocation of a worker under test, which holds buffers of `nbytes` each, one after another."""

    subject: str
    buffers: tuple[str, ...]
    nbytes: int
    handle: BufferHandle

    def answered_by(self, role: OracleRole) -> None:
        role.attach(self)


class Detach(Request[OracleRole, None], frozen=True, kw_only=True):
    """Close buffers of a worker; all of them if none is named."""

    subject: str
    buffers: tuple[str, ...] = ()

    def answered_by(self, role: OracleRole) -> None:
        role.detach(self)


class Fill(Request[OracleRole, None], frozen=True, kw_only=True):
    """Write the inputs of `key` into buffers of a worker, with guard bytes around each."""

    subject: str
    buffers: tuple[str, ...]
    key: str

    def answered_by(self, role: OracleRole) -> None:
        role.fill(self)


class Renew(Request[OracleRole, None], frozen=True, kw_only=True):
    """Draw fresh inputs, and write the i-th draw into the i-th buffer of each place.

    Values are those that `Prepare` makes with the same case, family and seed. They are not stored.
    """

    case: int
    family: str
    seeds: tuple[int, ...]
    places: tuple[BufferPlace, ...]

    def answered_by(self, role: OracleRole) -> None:
        role.renew(self)


class Compare(Request[OracleRole, Compared], frozen=True, kw_only=True):
    """Compare a worker's published outputs for the inputs of `key`, which lie in `buffer`, with the right answer.

    The errors of the `baseline` set the bounds for candidates. `untouched` is False if the buffer holds other inputs by
    now, so that its contents cannot be checked.
    """

    subject: str
    buffer: str
    key: str
    outputs: tuple[TensorSpec, ...]
    baseline: bool = False
    untouched: bool = True

    def answered_by(self, role: OracleRole) -> Compared:
        return role.compare(self)


class Discriminate(Request[OracleRole, tuple[str, ...]], frozen=True, kw_only=True):
    """Return the names of trivial answers that would pass as right for `key`; those tried are `among` these, if given.

    `other` are inputs with another answer; `outputs` the types of the baseline's outputs.
    """

    key: str
    other: str
    outputs: tuple[str, ...]
    among: tuple[str, ...] | None = None

    def answered_by(self, role: OracleRole) -> tuple[str, ...]:
        return role.discriminate(self)


class MeasureRates(Request[OracleRole, MemoryRates], frozen=True, kw_only=True):
    """Measure how fast the GPU's memory is read, written and copied."""

    def answered_by(self, role: OracleRole) -> MemoryRates:
        return role.rates()


class Probe(Request[OracleRole, bool], frozen=True, kw_only=True):
    """Return True if the GPU still computes correctly."""

    def answered_by(self, role: OracleRole) -> bool:
        return role.probe()
