"""Requests to the oracle: the worker that makes inputs and knows the right answers, and runs no candidate.

A *key* names one set of inputs, a *subject* the memory of one worker under test, a *buffer* one part of that memory.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.tensors import BufferHandle, TensorSpec
from kernel_lsp.runner.messages import Request
from kernel_lsp.runner.messages.oracle_answers import Compared, LoadedWorkload, Made, MemoryRates, Varied
from kernel_lsp.workload.capture import Rung


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """Buffers of one worker under test that are filled in turn."""

    subject: str
    buffers: tuple[str, ...]


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
