"""Records of what was timed: by case, under a steady load, and which operations of the GPU took the time."""

from kernel_lsp.judge.record import Record


class CaseTiming(Record):
    """The paired timing of one case.

    Attributes:
        case: its parameters, as text.
        mode: `cold` (L2 flushed before each launch) or `short` (too short for events: many launches between two of
            them, each on inputs of its own).
        launches: launches per segment.
        baseline_us, candidate_us: median time of one launch, microseconds.
        speedup: baseline over candidate, with its 95 % interval.
        bytes_moved: compulsory traffic: each input read once, each output written once.
        roofline_share: what memory was seen to take for that traffic, over the candidate's time; None unknown.
        blocks: log ratio candidate / baseline of each block, in order, confirmation blocks last.
        confirmation_blocks: how many of `blocks` belong to the confirmation.
        memories: launches that worked in memory of their own, in the confirmation if there was one.
        baseline_call_us, candidate_call_us: an eager call by the parent's clock; None where no gain was confirmed.
    """

    case: str
    mode: str
    launches: int
    baseline_us: float
    candidate_us: float
    speedup: float
    interval: tuple[float, float]
    bytes_moved: int
    baseline_roofline_share: float | None
    roofline_share: float | None
    blocks: tuple[float, ...]
    confirmation_blocks: int
    memories: int
    baseline_call_us: float | None = None
    candidate_call_us: float | None = None


class TracedGroup(Record):
    """All operations of one name in a trace.

    Attributes:
        kind: `kernel`, `memcpy` or `memset`.
        name: C++ kernels as their declaration.
        own: whether it is one of the version's own kernels.
        calls: how often it ran.
        us: how long all of them took together, microseconds.
        streams: CUDA's numbers of those it ran on.
    """

    kind: str
    name: str
    own: bool
    calls: int
    us: float
    streams: tuple[int, ...]


class Trace(Record):
    """The candidate's work on the GPU for one case, as CUPTI traced it.

    Attributes:
        case: its parameters, as text.
        timed: whether it is what was timed, run again; otherwise one launch by itself.
        launches: how many.
        span_us: from the start of the first operation to the end of the last, microseconds.
        own_share: time of its own kernels in the time of all that computes; None where nothing does.
        baseline_own_share: the baseline's.
        claimed_us: how long one launch took by the stopwatch; None where it was not timed.
        groups: what ran, longest first, the longest twelve.
        never_launched: kernels that its build holds and that did not run.
    """

    case: str
    timed: bool
    launches: int
    span_us: float
    own_share: float | None
    baseline_own_share: float | None
    claimed_us: float | None
    groups: tuple[TracedGroup, ...]
    never_launched: tuple[str, ...]


class SustainedRun(Record):
    """Both sides under a steady load for seconds, one launch after another without pause.

    Attributes:
        case: its parameters, as text.
        seconds: GPU time of each side.
        baseline_us, candidate_us: mean time of one launch, microseconds.
        speedup: baseline over candidate, with its 95 % interval.
        baseline_mj, candidate_mj: energy of one launch, millijoules; None where the GPU does not tell its power.
        baseline_w, candidate_w: mean power.
        limit_w: the power limit in force; None where the GPU does not tell it.
        baseline_clock_mhz, candidate_clock_mhz: mean SM clock.
        throttle: what slowed the GPU down meanwhile.
    """

    case: str
    seconds: float
    baseline_us: float
    candidate_us: float
    speedup: float
    interval: tuple[float, float]
    baseline_mj: float | None
    candidate_mj: float | None
    baseline_w: float | None
    candidate_w: float | None
    limit_w: float | None
    baseline_clock_mhz: float | None
    candidate_clock_mhz: float | None
    throttle: tuple[str, ...] = ()
