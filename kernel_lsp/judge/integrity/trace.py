"""Read a trace of the GPU: which kernels are the version's own, whether work is ordered, and how long it took.

Pure: records in, records out. A worker's trace (`runner.workers.tracer`, CUPTI through torch's profiler) is read here,
and what it says of a version is compared with what it says of the baseline.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.compiler.machine_code.symbols import declared_name, demangle
from kernel_lsp.runner.messages.subject_answers import HeardLaunch, TracedOperation

_LAUNCH_MARKS = ("spin", "read_clock")
_TIME_MARKS = ("demote", "kernel_lsp_checksum")
"""The harness's kernels before and after the time of a launch; a memset comes between the first one and the launch."""
_PREPARES = re.compile(r"FillFunctor|^Mem(set|cpy)\b|^mem(set|cpy)\d+")
"""Work that computes nothing: memory is set to one value, or copied as it is."""
_LIBRARY = re.compile(
    r"^(void )?(at::|at_cuda|c10::|cublas|cudnn|cutlass|cub::|thrust::|cusparse|cufft|nvjet|xmma|"
    r"sm\d{2,3}_|ampere_|volta_|turing_|maxwell_|hopper_|blackwell_|flash_fwd|fmha_|pytorch_flash|triton_(poi|red|per|tem)_)"
    r"|^(void )?\(anonymous namespace\)::(softmax|layer_norm|cunn_)"
)
"""How libraries call their kernels; a version that launches unheard and calls its own so has none of its own."""
_COPIES = re.compile(r"direct_copy_kernel|CatArrayBatchedCopy|float\w*_copy_kernel|bfloat16_copy_kernel")
"""Work that moves or converts values and computes nothing of them."""


@dataclass(frozen=True, slots=True)
class GpuOperation:
    """One piece of work on the GPU; times in microseconds on the trace's own clock.

    `kind` is `kernel`, `memcpy` or `memset`; `grid` and `block` are known of kernels, `nbytes` of the others.
    """

    kind: str
    name: str
    stream: int
    start_us: float
    end_us: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    nbytes: int | None = None

    @property
    def us(self) -> float:
        """Return its duration in microseconds."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """All operations of one name: calls, total microseconds, and whether it is one of the version's kernels."""

    kind: str
    name: str
    own: bool
    calls: int
    us: float
    streams: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Launched:
    """The GPU work of one call of `launch`.

    Attributes:
        groups: by name, longest first.
        span_us: from the start of the first operation to the end of the last.
        never: kernels that were built and not launched.
        unordered: what began before work that was enqueued earlier had ended, on another stream, as names.
        unjoined: what was still to run when the stream of the caller had come to its end, as names.
    """

    groups: tuple[OperationGroup, ...]
    span_us: float
    never: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    unjoined: tuple[str, ...] = ()

    @property
    def own_us(self) -> float:
        """Return the microseconds of the version's own kernels."""
        return sum(group.us for group in self.groups if group.own)

    @property
    def foreign_us(self) -> float:
        """Return the microseconds of foreign computation: library kernels, but not setting or copying memory."""
        return sum(group.us for group in self.groups if not group.own and not _PREPARES.search(group.name))

    @property
    def own_share(self) -> float | None:
        """Return the share of own kernels in all computation; None where nothing computed."""
        whole = self.own_us + self.foreign_us
        return self.own_us / whole if whole else None


@dataclass(frozen=True, slots=True)
class OwnKernels:
    """How to tell a version's kernels from others.

    Attributes:
        entries: symbols that its build holds.
        heard: launches that our own launchers made; None where host code that we do not hear makes them.
        in_graphs: launches that graphs of the version's own may repeat any number of times.
        names: kernels in its source, by which they are told where nothing is heard; never those of libraries.
    """

    entries: frozenset[str]
    heard: tuple[HeardLaunch, ...] | None = None
    in_graphs: tuple[HeardLaunch, ...] = ()
    names: frozenset[str] = frozenset()

    def among(self, work: Sequence[GpuOperation]) -> list[bool]:
        """Return for each operation whether it is one of the version's own kernels.

        A name proves nothing where launches are heard: then an operation is own if a launch of that symbol and grid was
        heard, one operation for each.
        """
        if self.heard is None:
            plain = {_plain(demangle(entry)) for entry in self.entries}
            return [
                o.kind == "kernel"
                and (_plain(o.name) in plain or (declared_name(o.name) in self.names and not _LIBRARY.search(o.name)))
                for o in work
            ]
        left = Counter((_plain(demangle(launch.entry)), launch.grid) for launch in self.heard)
        repeated = {(_plain(demangle(launch.entry)), launch.grid) for launch in self.in_graphs}
        found: list[bool] = []
        for operation in work:
            key = (_plain(operation.name), operation.grid or (0, 0, 0))
            own = operation.kind == "kernel" and (left[key] > 0 or key in repeated)
            left[key] -= own
            found.append(own)
        return found


def read_operations(told: Iterable[TracedOperation]) -> tuple[GpuOperation, ...]:
    """Return a worker's answer as records, sorted by start."""
    found = [
        GpuOperation(o.kind, o.name, o.stream, o.start_us, o.start_us + o.us, o.grid, o.block, o.nbytes) for o in told
    ]
    return tuple(sorted(found, key=lambda o: (o.start_us, o.end_us)))


def read_launch(operations: Sequence[GpuOperation], own: OwnKernels) -> Launched:
    """Return the work of one call of `launch`, found between the harness's marks: a spinning kernel and a clock read.

    Raises:
        ValueError: the marks are not there, so that the trace says nothing.
    """
    kernels = [o for o in operations if o.kind == "kernel"]
    before = next((o for o in kernels if o.name == _LAUNCH_MARKS[0]), None)
    after = next((o for o in reversed(kernels) if o.name == _LAUNCH_MARKS[1]), None)
    if before is None or after is None:
        raise ValueError("the trace does not show the kernels that the harness itself launched")
    work = [o for o in operations if o is not before and o is not after]
    unordered = [o for o in work if o.start_us < before.end_us - policy.TRACE_OVERLAP_US]
    unjoined = [o for o in work if o.end_us > after.start_us + policy.TRACE_OVERLAP_US]
    return Launched(
        _groups(work, own.among(work)),
        max(o.end_us for o in work) - min(o.start_us for o in work) if work else 0.0,
        _never(work, own.entries),
        tuple(dict.fromkeys(o.name for o in unordered)),
        tuple(dict.fromkeys(o.name for o in unjoined)),
    )


def read_timed(operations: Sequence[GpuOperation], launch: Launched, harness: frozenset[str]) -> Launched:
    """Return the work of a timed segment of many launches, without the harness's own work, named in `harness`.

    A kernel counts as the version's own if it does in the single `launch`.
    """
    work = [o for o in operations if o.name not in harness and o.name not in _LAUNCH_MARKS]
    own = {group.name for group in launch.groups if group.own}
    span = max(o.end_us for o in work) - min(o.start_us for o in work) if work else 0.0
    return Launched(_groups(work, [o.kind == "kernel" and o.name in own for o in work]), span)


def harness_names(timed: Sequence[GpuOperation], launch: Sequence[GpuOperation]) -> frozenset[str]:
    """Return the names of the harness's own work: everything in a recording of the baseline that its launch lacks."""
    return frozenset(o.name for o in timed) - frozenset(o.name for o in launch)


def out_of_order(launched: Launched) -> str | None:
    """Return why work on other streams makes a version illegitimate, as the end of a sentence; None if it does not."""
    if launched.unordered:
        names = _named(launched.unordered)
        return f"works on another stream without waiting for what was enqueued before it ({names})"
    if launched.unjoined:
        names = _named(launched.unjoined)
        return f"returns before its work is done: on the caller's stream nothing waits for {names}"
    return None


def passed_off(candidate: Launched, baseline: Launched) -> str | None:
    """Return why the answer is not computed by the version's own kernels, as a sentence; None if it is.

    A candidate may leave work to libraries where the baseline does, for as long as the baseline does. Beside a baseline
    without kernels of its own, such as a KernelBench problem's `Model`, that is everything; but then a candidate that
    was built with kernels must launch them.
    """
    if not baseline.own_us:
        if candidate.own_us or baseline.never or not candidate.never:
            return None
        return f"none of the kernels it was built with ran ({_named(candidate.never)})"
    foreign = [g for g in candidate.groups if not g.own and not _computes_nothing(g.name)]
    if not candidate.own_us:
        ran = f"what ran is {_named([g.name for g in foreign])}" if foreign else "nothing that computes ran"
        return f"none of its own kernels ran; {ran}"
    known = sum(g.us for g in baseline.groups if not g.own and not _computes_nothing(g.name))
    if foreign and not known:
        return (
            f"{_named([g.name for g in foreign])} computes for it, which is not its own kernel, where the baseline "
            "computes with its own alone"
        )
    added = max(0.0, candidate.foreign_us - baseline.foreign_us)
    if candidate.own_us < policy.LEAST_OWN_SHARE * (candidate.own_us + added):
        rest = [g.name for g in candidate.groups if not g.own and not _PREPARES.search(g.name)]
        return (
            f"its own kernels take {candidate.own_us:.1f} us of {candidate.own_us + candidate.foreign_us:.1f} us; "
            f"the rest is {_named(rest)}, which is not its own"
        )
    return None


def left_out(launch: Launched, timed: Launched, launches: int) -> str | None:
    """Return which own kernels of a launch run less often in the timed segment, as a sentence; None if none does."""
    ran = Counter[str]()
    for group in timed.groups:
        ran[group.name] += group.calls
    for group in launch.groups:
        if group.own and ran[group.name] < group.calls * launches:
            return (
                f"what was timed runs `{_short(group.name)}` {ran[group.name]} times in {launches} launches, "
                f"where a launch by itself runs it {group.calls} times"
            )
    return None


def out_of_time(timed: Sequence[GpuOperation], baseline: Sequence[GpuOperation], launch: Launched) -> str | None:
    """Return which own kernels of a launch run outside the time that is taken of launches, as a sentence, or None.

    Args:
        timed: a segment of the candidate's that is enqueued launch by launch.
        baseline: the same segment of the baseline's.
        launch: the candidate's launch by itself, which tells its own kernels.
    """
    imitated = [mark for mark in _TIME_MARKS if _calls(timed, mark) != _calls(baseline, mark)]
    if imitated:
        return f"it launches a kernel that is called as the harness's own ({_named(imitated)})"
    windows = _windows(timed)
    if not windows:  # outputs without elements have no checksum
        return None
    own = {group.name for group in launch.groups if group.own}
    escaped = [
        o for o in timed if o.name in own and not any(start <= o.start_us and o.end_us <= end for start, end in windows)
    ]
    if not escaped:
        return None
    return f"what was timed runs {_named([escaped[0].name])} outside the time that is taken of a launch"


def _calls(operations: Sequence[GpuOperation], name: str) -> int:
    return sum(o.name == name for o in operations)


def _windows(timed: Sequence[GpuOperation]) -> list[tuple[float, float]]:
    """Return from when to when launches are timed, with the slack of a trace: from a flush to the next checksum."""
    found: list[tuple[float, float]] = []
    flushed: float | None = None
    demoted = False
    for operation in timed:
        if operation.name == _TIME_MARKS[0]:
            demoted = True
        elif demoted and operation.kind == "memset":
            flushed, demoted = operation.end_us, False
        elif operation.name == _TIME_MARKS[1] and flushed is not None:
            found.append((flushed - policy.TRACE_OVERLAP_US, operation.start_us + policy.TRACE_OVERLAP_US))
            flushed = None
    return found


def claims_too_little(timed: Launched, launches: int, claimed_us: float) -> str | None:
    """Return a sentence if the claimed time of a launch is shorter than its kernels took in the trace, else None."""
    seen = timed.own_us / launches
    if claimed_us < policy.SHORT_CLAIM_SHARE * seen - policy.TRACE_SLACK_US:
        return f"its launches are said to take {claimed_us:.1f} us, but its kernels alone ran for {seen:.1f} us in each"
    return None


def _groups(work: Sequence[GpuOperation], own: Sequence[bool]) -> tuple[OperationGroup, ...]:
    by_name: dict[tuple[str, str, bool], list[GpuOperation]] = defaultdict(list)
    for operation, is_own in zip(work, own, strict=True):
        by_name[operation.kind, operation.name, is_own].append(operation)
    groups = [
        OperationGroup(
            kind,
            name,
            is_own,
            len(found),
            sum(o.us for o in found),
            tuple(sorted({o.stream for o in found})),
        )
        for (kind, name, is_own), found in by_name.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.us))


def _computes_nothing(name: str) -> bool:
    return bool(_PREPARES.search(name) or _COPIES.search(name))


def _never(work: Sequence[GpuOperation], entries: frozenset[str]) -> tuple[str, ...]:
    ran = {_plain(o.name) for o in work if o.kind == "kernel"}
    return tuple(sorted(demangle(entry) for entry in entries if _plain(demangle(entry)) not in ran))


def _plain(name: str) -> str:
    return re.sub(r"\s+", "", name).removeprefix("void").replace("(anonymousnamespace)::", "")


def _short(name: str) -> str:
    return declared_name(name) or name


def _named(names: Sequence[str]) -> str:
    shown = [f"`{_short(name)[:60]}`" for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown) + more
