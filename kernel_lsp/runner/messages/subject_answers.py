"""The answers of a worker that runs one version of a kernel, to the requests of `messages.subject`."""

from dataclasses import dataclass
from typing import Literal

from kernel_lsp.device.tensors import BufferHandle, TensorSpec
from kernel_lsp.runner.emulated import EmulatedReport


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded version; `own_weights` are weights of a KernelBench problem that it cannot be given."""

    own_weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trampled:
    """A write past an end of a tensor of `shape` that the launch allocated.

    Attributes:
        shape: of the tensor.
        side: `before` or `past` it.
        away: bytes between the tensor and the first byte written.
        element: index that the byte has counted from the tensor's start; -1 before it.
        count: bytes written.
    """

    shape: tuple[int, ...]
    side: Literal["before", "past"]
    away: int
    element: int
    count: int


@dataclass(frozen=True, slots=True)
class PublishedOutputs:
    """Outputs, copied to where the oracle reads them.

    Attributes:
        outputs: where each lies in the outbox.
        strides: each output's own strides, in elements.
        outbox: handle of the outbox where it is a new one.
    """

    outputs: tuple[TensorSpec, ...]
    strides: tuple[tuple[int, ...], ...]
    outbox: BufferHandle | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of one eager launch.

    Attributes:
        published: its outputs.
        held: how many runs ago each kept output was made, 0 for this one.
        trampled: writes past ends of tensors that the launch made.
        places: by output, the place in the inputs or in an earlier output where it lies; empty for memory of its own.
        in_place: True where an output lies in an input.
        emulated: the record of an emulated run.
        own_weights: weights of a KernelBench problem that the version cannot be given, as far as that is known by now.
    """

    published: PublishedOutputs
    held: tuple[int, ...]
    trampled: tuple[Trampled, ...]
    places: tuple[str, ...]
    in_place: bool
    emulated: EmulatedReport | None = None
    own_weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The properties of a new recording.

    Attributes:
        disorder: how work of a launch may run outside of it, as the end of a sentence; empty if it may not.
        overlap: how outputs of different launches share memory, likewise.
        between: most nodes of the captured graph that lie between two launches; 0 where none was captured.
    """

    disorder: str = ""
    overlap: str = ""
    between: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """The result of running one segment.

    Attributes:
        times_us: microseconds of each launch; of a `short` recording one mean over all of them.
        checksums: of each launch's outputs under the recording's salt.
        clock_mhz: SM clock meanwhile; None where it was not read.
    """

    times_us: tuple[float, ...]
    checksums: tuple[tuple[int, ...], ...]
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One piece of work on the GPU; times in microseconds on the trace's own clock.

    `kind` is `kernel`, `memcpy` or `memset`; `grid` and `block` are known of kernels, `nbytes` of the others.
    """

    kind: str
    name: str
    stream: int
    start_us: float
    us: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class HeardLaunch:
    """A kernel launch that one of our own launchers made: symbol, blocks in x, y, z, threads in x, y, z."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Traced:
    """The work on the GPU during a trace, and the launches that our own launchers reported.

    Attributes:
        operations: all work, in no order.
        heard: launches made by our launchers.
        in_graphs: launches that graphs of the version's own may repeat unheard.
        failed: why nothing was traced; empty if something was.
        threads: threads of the process that were started since before the version was loaded.
        times: how often the traced segment was measured.
    """

    operations: tuple[TracedOperation, ...]
    heard: tuple[HeardLaunch, ...] = ()
    in_graphs: tuple[HeardLaunch, ...] = ()
    failed: str = ""
    threads: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class ProcessChanges:
    """Settings and functions of torch that a version changed, by name, and Python threads that it left running."""

    changed: tuple[str, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """The file that stores launches for repetition, or the reason why there is none."""

    file: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of launches without pause: their number, GPU seconds, and the SM clock in MHz."""

    launches: int
    seconds: float
    clock_mhz: float | None
