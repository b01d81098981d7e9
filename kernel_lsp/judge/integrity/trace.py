"""What ran on the GPU: whose kernels they were, whether any of it was out of order, and how long it took.

Pure: records in, records out. A worker's trace (`runner.workers.tracer`, CUPTI through torch's profiler) is read here,
and what it says of a version is compared with what it says of the baseline.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.compiler.symbols import declared_name, demangle
from kernel_lsp.runner.messages.subject_answers import HeardLaunch, TracedOperation

_LAUNCH_MARKS = ("spin", "read_clock")
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
class Operation:
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
        """How long it took."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class Group:
    """All operations of one name: how often, how long together in microseconds, and whether a kernel of the version."""

    kind: str
    name: str
    own: bool
    calls: int
    us: float
    streams: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Launched:
    """What one call of `launch` put on the GPU.

    Attributes:
        groups: by name, longest first.
        span_us: from the start of the first operation to the end of the last.
        never: kernels that were built and not launched.
        unordered: what began before work that was enqueued earlier had ended, on another stream, as names.
        unjoined: what was still to run when the stream of the caller had come to its end, as names.
    """

    groups: tuple[Group, ...]
    span_us: float
    never: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    unjoined: tuple[str, ...] = ()

    @property
    def own_us(self) -> float:
        """Time of the version's own kernels."""
        return sum(group.us for group in self.groups if group.own)

    @property
    def foreign_us(self) -> float:
        """Time of what others computed: libraries' kernels, but not setting or copying memory."""
        return sum(group.us for group in self.groups if not group.own and not _PREPARES.search(group.name))

    @property
    def own_share(self) -> float | None:
        """Share of own kernels in all that computed; None where nothing did."""
        whole = self.own_us + self.foreign_us
        return self.own_us / whole if whole else None


@dataclass(frozen=True, slots=True)
class OwnKernels:
    """How a version's kernels are told from others.

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

    def among(self, work: Sequence[Operation]) -> list[bool]:
        """Say of each operation if it is one of the version's own kernels.

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


def read_operations(told: Iterable[TracedOperation]) -> tuple[Operation, ...]:
    """Return a worker's answer as records, by start."""
    found = [
        Operation(o.kind, o.name, o.stream, o.start_us, o.start_us + o.us, o.grid, o.block, o.nbytes) for o in told
    ]
    return tuple(sorted(found, key=lambda o: (o.start_us, o.end_us)))


def read_launch(operations: Sequence[Operation], own: OwnKernels) -> Launched:
    """Read one call of `launch`, between the harness's own marks: a kernel that spins, and a clock reading.

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


def read_timed(operations: Sequence[Operation], launch: Launched, harness: frozenset[str]) -> Launched:
    """Read a segment of many launches, between which the harness works under the names `harness`.

    Kernels are a version's own if they are in its `launch` by itself.
    """
    work = [o for o in operations if o.name not in harness and o.name not in _LAUNCH_MARKS]
    own = {group.name for group in launch.groups if group.own}
    span = max(o.end_us for o in work) - min(o.start_us for o in work) if work else 0.0
    return Launched(_groups(work, [o.kind == "kernel" and o.name in own for o in work]), span)


def harness_names(timed: Sequence[Operation], launch: Sequence[Operation]) -> frozenset[str]:
    """Return names of the harness's own work: all in a recording of the baseline that its launch does not do."""
    return frozenset(o.name for o in timed) - frozenset(o.name for o in launch)


def out_of_order(launched: Launched) -> str | None:
    """Why work on other streams makes a version illegitimate, as a sentence's end; None if nothing is out of order."""
    if launched.unordered:
        names = _named(launched.unordered)
        return f"works on another stream without waiting for what was enqueued before it ({names})"
    if launched.unjoined:
        names = _named(launched.unjoined)
        return f"returns before its work is done: on the caller's stream nothing waits for {names}"
    return None


def passed_off(candidate: Launched, baseline: Launched) -> str | None:
    """Why a version's kernels are not what computes its answer, as a sentence; None if they are.

    What the baseline leaves to libraries a candidate may leave to them too, for as long as the baseline does. Beside a
    baseline without kernels of its own, such as a KernelBench problem's `Model`, that is everything; but kernels that a
    candidate has been built with and does not launch are there for show.
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
    """Own kernels that a launch runs and that what was timed runs less often, as a sentence; None if there are none."""
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


def claims_too_little(timed: Launched, launches: int, claimed_us: float) -> str | None:
    """Whether the time a launch is said to take is less than its own kernels took in the trace; a sentence if so."""
    seen = timed.own_us / launches
    if claimed_us < policy.SHORT_CLAIM_SHARE * seen - policy.TRACE_SLACK_US:
        return f"its launches are said to take {claimed_us:.1f} us, but its kernels alone ran for {seen:.1f} us in each"
    return None


def _groups(work: Sequence[Operation], own: Sequence[bool]) -> tuple[Group, ...]:
    by_name: dict[tuple[str, str, bool], list[Operation]] = defaultdict(list)
    for operation, is_own in zip(work, own, strict=True):
        by_name[operation.kind, operation.name, is_own].append(operation)
    groups = [
        Group(
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


def _never(work: Sequence[Operation], entries: frozenset[str]) -> tuple[str, ...]:
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
