"""Requests to a worker that runs one version of a kernel.

A *slab* is the memory of one set of inputs, by its name. A *recording* is a segment of launches made ready for timing,
each launch on a slab of its own where memory allows.
"""

from typing import Literal, Protocol

import msgspec

from kernel_lsp import policy
from kernel_lsp.compiler.binary import Binary
from kernel_lsp.compiler.host.record import ExtensionBuild
from kernel_lsp.device.tensors import Argument, SlabHandle
from kernel_lsp.runner.emulated import SampledRun
from kernel_lsp.runner.messages import Request
from kernel_lsp.runner.messages.subject_answers import (
    Changes,
    LaunchFile,
    Loaded,
    Published,
    Ran,
    Recorded,
    Segment,
    Stretch,
    Traced,
)
from kernel_lsp.workload.call import Call

Mode = Literal["cold", "short"]


UNFLUSHED = "/unflushed"
"""Ends the name of a second recording on the same slabs."""


def slab_of(recording: str) -> str:
    """Return the slab that a recording is named after, the first of those that it works on."""
    return recording.removesuffix(UNFLUSHED)


class SubjectRole(Protocol):
    """The requests that the worker under test answers."""

    def load(self, request: "Load", /) -> Loaded: ...
    def bind(self, request: "Bind", /) -> SlabHandle: ...
    def unbind(self, request: "Unbind", /) -> None: ...
    def retire(self) -> None: ...
    def rest(self) -> None: ...
    def rehearse(self, request: "Rehearse", /) -> None: ...
    def run(self, request: "Run", /) -> Ran: ...
    def sample_blocks(self, request: "SampleBlocks", /) -> SampledRun: ...
    def forget(self) -> tuple[int, ...]: ...
    def spoil(self) -> None: ...
    def publish_earlier(self, request: "PublishEarlier", /) -> Published: ...
    def call_repeatedly(self, request: "CallRepeatedly", /) -> None: ...
    def record(self, request: "Record", /) -> Recorded: ...
    def refresh(self, request: "Refresh", /) -> None: ...
    def run_segments(self, request: "RunSegments", /) -> tuple[Segment, ...]: ...
    def publish(self, request: "Publish", /) -> Published: ...
    def sustain(self, request: "Sustain", /) -> Stretch: ...
    def trace(self, request: "Trace", /) -> Traced: ...
    def trace_segment(self, request: "TraceSegment", /) -> Traced: ...
    def changes(self) -> Changes: ...
    def record_launches(self, request: "RecordLaunches", /) -> LaunchFile: ...
    def ready(self) -> None: ...


class Load(Request[SubjectRole, Loaded], frozen=True, kw_only=True):
    """Load a version: a `binary` for a CUDA file, one that was built with its host code, or the module in `text`.

    `extensions` are that one, or those that a Python module asks for when it is run. Of an answer to a KernelBench
    problem, which is called as `calls` say, the model for `case` is built too.
    """

    path: str
    text: str
    launch_path: str | None = None
    launch_text: str | None = None
    binary: Binary | None = None
    types_of: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    names_of: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    extensions: tuple[ExtensionBuild, ...] = ()
    calls: tuple[Call, ...] = ()
    case: int = 0

    def answered_by(self, role: SubjectRole) -> Loaded:
        return role.load(self)


class Bind(Request[SubjectRole, SlabHandle], frozen=True, kw_only=True):
    """Make one allocation of slabs, each of `nbytes`, one after another; `names` are what the workload calls inputs."""

    slabs: tuple[str, ...]
    arguments: tuple[Argument, ...]
    nbytes: int
    names: tuple[str, ...] = ()
    case: int = 0

    def answered_by(self, role: SubjectRole) -> SlabHandle:
        return role.bind(self)


class Unbind(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free slabs that were bound together, and the recordings on them; the oracle has let go of them before."""

    slabs: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> None:
        role.unbind(self)


class Retire(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free memory that the oracle has opened anew elsewhere."""

    def answered_by(self, role: SubjectRole) -> None:
        role.retire()


class Rest(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free all inputs, outputs and recordings; the oracle has let go of them before."""

    def answered_by(self, role: SubjectRole) -> None:
        role.rest()


class Rehearse(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Launch once for nothing, so that compiling or tuning at first use is over."""

    slab: str

    def answered_by(self, role: SubjectRole) -> None:
        role.rehearse(self)


class Run(Request[SubjectRole, Ran], frozen=True, kw_only=True):
    """Launch once, everything that the launch allocates being fenced and full of `unset` bytes."""

    slab: str
    unset: int = policy.POISON_BYTE

    def answered_by(self, role: SubjectRole) -> Ran:
        return role.run(self)


class SampleBlocks(Request[SubjectRole, SampledRun], frozen=True, kw_only=True):
    """Emulate a few blocks of each launch with its whole grid; which, follows from `seed`. Outputs mean nothing.

    Blocks of one launch execute at most `instructions` together, and all launches four times as many.
    """

    slab: str
    count: int
    seed: int
    instructions: int

    def answered_by(self, role: SubjectRole) -> SampledRun:
        return role.sample_blocks(self)


class Forget(Request[SubjectRole, tuple[int, ...]], frozen=True, kw_only=True):
    """Let go of outputs of earlier runs, and name those whose memory something else still holds, by number."""

    def answered_by(self, role: SubjectRole) -> tuple[int, ...]:
        return role.forget()


class Spoil(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Fill outputs of earlier runs with 0xFF."""

    def answered_by(self, role: SubjectRole) -> None:
        role.spoil()


class PublishEarlier(Request[SubjectRole, Published], frozen=True, kw_only=True):
    """Publish once more what the run `back` runs before the last one returned."""

    back: int

    def answered_by(self, role: SubjectRole) -> Published:
        return role.publish_earlier(self)


class CallRepeatedly(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Call `launch` eagerly so many times, and wait for the GPU after each; the parent's clock runs meanwhile."""

    slab: str
    count: int

    def answered_by(self, role: SubjectRole) -> None:
        role.call_repeatedly(self)


class Record(Request[SubjectRole, Recorded], frozen=True, kw_only=True):
    """Make a segment of launches ready for timing, one on each of the slabs in turn.

    Attributes:
        recording: its name.
        slabs: of each launch.
        mode: `cold` with an L2 flush before each launch; `short` without, for launches too short for two events.
        restores: put inputs back before each launch.
        capture: record a CUDA graph; else launches are enqueued one by one.
        salt: of the checksums, up to 62 bits.
        poison: byte that outputs are full of when a segment starts; nobody knows it beforehand.
    """

    recording: str
    slabs: tuple[str, ...]
    mode: Mode
    restores: bool
    capture: bool
    salt: int
    poison: int

    def answered_by(self, role: SubjectRole) -> Recorded:
        return role.record(self)


class Refresh(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Take the contents of slabs as the inputs that launches start from; needed where recordings restore them."""

    slabs: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> None:
        role.refresh(self)


class RunSegments(Request[SubjectRole, tuple[Segment, ...]], frozen=True, kw_only=True):
    """Run a recording `count` times."""

    recording: str
    count: int = 1

    def answered_by(self, role: SubjectRole) -> tuple[Segment, ...]:
        return role.run_segments(self)


class Publish(Request[SubjectRole, Published], frozen=True, kw_only=True):
    """Publish what one launch of the last segment of a recording computed; launches count from 0."""

    recording: str
    launch: int

    def answered_by(self, role: SubjectRole) -> Published:
        return role.publish(self)


class Sustain(Request[SubjectRole, Stretch], frozen=True, kw_only=True):
    """Launch without pause for so many seconds; a launch takes about `launch_us` microseconds."""

    slab: str
    seconds: float
    launch_us: float
    restores: bool
    capture: bool

    def answered_by(self, role: SubjectRole) -> Stretch:
        return role.sustain(self)


class Trace(Request[SubjectRole, Traced], frozen=True, kw_only=True):
    """Trace one eager launch, between a kernel that spins and one that reads clocks."""

    slab: str

    def answered_by(self, role: SubjectRole) -> Traced:
        return role.trace(self)


class TraceSegment(Request[SubjectRole, Traced], frozen=True, kw_only=True):
    """Trace one segment of a recording."""

    recording: str

    def answered_by(self, role: SubjectRole) -> Traced:
        return role.trace_segment(self)


class LookForChanges(Request[SubjectRole, Changes], frozen=True, kw_only=True):
    """Say what the version has changed round itself since it was loaded."""

    def answered_by(self, role: SubjectRole) -> Changes:
        return role.changes()


class RecordLaunches(Request[SubjectRole, LaunchFile], frozen=True, kw_only=True):
    """Keep the launches of a run on each of these slabs in a file; nothing may have been launched before."""

    slabs: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> LaunchFile:
        return role.record_launches(self)


class Ready(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Answer once the process is set up."""

    def answered_by(self, role: SubjectRole) -> None:
        role.ready()
