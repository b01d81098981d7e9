"""Requests to a worker that runs one version of a kernel.

A *buffer* is the memory of one set of inputs, by its name. A *recording* is a segment of launches made ready for
timing, each launch on a buffer of its own where memory allows.
"""

from typing import Literal, Protocol

import msgspec

from kernel_lsp import policy
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.device.tensors import Argument, BufferHandle
from kernel_lsp.runner.emulated import SampledRun
from kernel_lsp.runner.messages import Request
from kernel_lsp.runner.messages.subject_answers import (
    LaunchFile,
    Loaded,
    ProcessChanges,
    PublishedOutputs,
    Ran,
    Recorded,
    Segment,
    Stretch,
    Traced,
)
from kernel_lsp.workload.call import Call

Mode = Literal["cold", "short"]


UNFLUSHED = "/unflushed"
"""Ends the name of a second recording on the same buffers."""


def buffer_of(recording: str) -> str:
    """Return the buffer that a recording is named after, the first of its buffers."""
    return recording.removesuffix(UNFLUSHED)


class SubjectRole(Protocol):
    """The requests that the worker under test answers."""

    def load(self, request: "Load", /) -> Loaded: ...
    def bind(self, request: "Bind", /) -> BufferHandle: ...
    def unbind(self, request: "Unbind", /) -> None: ...
    def retire(self) -> None: ...
    def rest(self) -> None: ...
    def rehearse(self, request: "Rehearse", /) -> None: ...
    def run(self, request: "Run", /) -> Ran: ...
    def sample_blocks(self, request: "SampleBlocks", /) -> SampledRun: ...
    def forget(self) -> tuple[int, ...]: ...
    def spoil(self) -> None: ...
    def publish_earlier(self, request: "PublishEarlier", /) -> PublishedOutputs: ...
    def call_repeatedly(self, request: "CallRepeatedly", /) -> int: ...
    def record(self, request: "RecordSegment", /) -> Recorded: ...
    def refresh(self, request: "Refresh", /) -> None: ...
    def run_segments(self, request: "RunSegments", /) -> tuple[Segment, ...]: ...
    def publish(self, request: "Publish", /) -> PublishedOutputs: ...
    def sustain(self, request: "Sustain", /) -> Stretch: ...
    def trace(self, request: "TraceLaunch", /) -> Traced: ...
    def trace_segment(self, request: "TraceSegment", /) -> Traced: ...
    def changes(self) -> ProcessChanges: ...
    def record_launches(self, request: "RecordLaunches", /) -> LaunchFile: ...
    def ready(self) -> None: ...


class Load(Request[SubjectRole, Loaded], frozen=True, kw_only=True):
    """Load a version: a `binary` for a CUDA file, one that was built with its host code, or the module in `text`.

    `extensions` are that one, or those that a Python module asks for when it is run. For an answer to a KernelBench
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


class Bind(Request[SubjectRole, BufferHandle], frozen=True, kw_only=True):
    """Allocate buffers of `nbytes` each, one after another; `names` are the workload's names of the inputs."""

    buffers: tuple[str, ...]
    arguments: tuple[Argument, ...]
    nbytes: int
    names: tuple[str, ...] = ()
    case: int = 0

    def answered_by(self, role: SubjectRole) -> BufferHandle:
        return role.bind(self)


class Unbind(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free buffers that were bound together, and the recordings on them; the oracle has closed them before."""

    buffers: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> None:
        role.unbind(self)


class Retire(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free memory that the oracle no longer has open, because it has opened its replacement."""

    def answered_by(self, role: SubjectRole) -> None:
        role.retire()


class Rest(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Free all inputs, outputs and recordings; the oracle has closed them before."""

    def answered_by(self, role: SubjectRole) -> None:
        role.rest()


class Rehearse(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Launch once without a result, so that compiling or tuning at the first launch is over."""

    buffer: str

    def answered_by(self, role: SubjectRole) -> None:
        role.rehearse(self)


class Run(Request[SubjectRole, Ran], frozen=True, kw_only=True):
    """Launch once; memory that the launch allocates is guarded, and filled with `unset` bytes."""

    buffer: str
    unset: int = policy.POISON_BYTE

    def answered_by(self, role: SubjectRole) -> Ran:
        return role.run(self)


class SampleBlocks(Request[SubjectRole, SampledRun], frozen=True, kw_only=True):
    """Emulate a few blocks of each launch with its whole grid, chosen by `seed`. Outputs are meaningless.

    Blocks of one launch execute at most `instructions` together, and all launches four times as many.
    """

    buffer: str
    count: int
    seed: int
    instructions: int

    def answered_by(self, role: SubjectRole) -> SampledRun:
        return role.sample_blocks(self)


class Forget(Request[SubjectRole, tuple[int, ...]], frozen=True, kw_only=True):
    """Release the outputs of earlier runs, and return the numbers of those whose memory is still referenced."""

    def answered_by(self, role: SubjectRole) -> tuple[int, ...]:
        return role.forget()


class Spoil(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Fill outputs of earlier runs with 0xFF."""

    def answered_by(self, role: SubjectRole) -> None:
        role.spoil()


class PublishEarlier(Request[SubjectRole, PublishedOutputs], frozen=True, kw_only=True):
    """Publish again the outputs of the run that came `back` runs before the last one."""

    back: int

    def answered_by(self, role: SubjectRole) -> PublishedOutputs:
        return role.publish_earlier(self)


class CallRepeatedly(Request[SubjectRole, int], frozen=True, kw_only=True):
    """Call `launch` eagerly `count` times, and wait for the GPU after each; the parent measures the time.

    It is answered by the number of launches that our own launchers made.
    """

    buffer: str
    count: int

    def answered_by(self, role: SubjectRole) -> int:
        return role.call_repeatedly(self)


class RecordSegment(Request[SubjectRole, Recorded], frozen=True, kw_only=True):
    """Prepare a segment of launches for timing, one on each of the buffers in turn.

    Attributes:
        recording: its name.
        buffers: of each launch.
        mode: `cold` with an L2 flush before each launch; `short` without, for launches too short for two events.
        restores: put inputs back before each launch.
        capture: record a CUDA graph; else launches are enqueued one by one.
        salt: of the checksums, up to 62 bits.
        poison: byte that outputs are full of when a segment starts; nobody knows it beforehand.
    """

    recording: str
    buffers: tuple[str, ...]
    mode: Mode
    restores: bool
    capture: bool
    salt: int
    poison: int

    def answered_by(self, role: SubjectRole) -> Recorded:
        return role.record(self)


class Refresh(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Store the contents of buffers as the inputs that launches start from; needed where recordings restore them."""

    buffers: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> None:
        role.refresh(self)


class RunSegments(Request[SubjectRole, tuple[Segment, ...]], frozen=True, kw_only=True):
    """Run a recording `count` times, and each time `repeats` times in a row; of each row the last segment is told."""

    recording: str
    count: int = 1
    repeats: int = 1

    def answered_by(self, role: SubjectRole) -> tuple[Segment, ...]:
        return role.run_segments(self)


class Publish(Request[SubjectRole, PublishedOutputs], frozen=True, kw_only=True):
    """Publish the outputs of one launch of the last segment of a recording; launches count from 0."""

    recording: str
    launch: int

    def answered_by(self, role: SubjectRole) -> PublishedOutputs:
        return role.publish(self)


class Sustain(Request[SubjectRole, Stretch], frozen=True, kw_only=True):
    """Launch without pause for `seconds`; one launch takes about `launch_us` microseconds."""

    buffer: str
    seconds: float
    launch_us: float
    restores: bool
    capture: bool

    def answered_by(self, role: SubjectRole) -> Stretch:
        return role.sustain(self)


class TraceLaunch(Request[SubjectRole, Traced], frozen=True, kw_only=True):
    """Trace one eager launch, enclosed by a kernel that spins and one that reads clocks."""

    buffer: str

    def answered_by(self, role: SubjectRole) -> Traced:
        return role.trace(self)


class TraceSegment(Request[SubjectRole, Traced], frozen=True, kw_only=True):
    """Trace one segment of a recording."""

    recording: str

    def answered_by(self, role: SubjectRole) -> Traced:
        return role.trace_segment(self)


class LookForChanges(Request[SubjectRole, ProcessChanges], frozen=True, kw_only=True):
    """Return the settings and functions that the version has changed in its process since it was loaded."""

    def answered_by(self, role: SubjectRole) -> ProcessChanges:
        return role.changes()


class RecordLaunches(Request[SubjectRole, LaunchFile], frozen=True, kw_only=True):
    """Store the launches of a run on each of these buffers in a file; nothing may have been launched before."""

    buffers: tuple[str, ...]

    def answered_by(self, role: SubjectRole) -> LaunchFile:
        return role.record_launches(self)


class Ready(Request[SubjectRole, None], frozen=True, kw_only=True):
    """Answer once the process is set up."""

    def answered_by(self, role: SubjectRole) -> None:
        role.ready()
