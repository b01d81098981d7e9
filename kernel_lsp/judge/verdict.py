"""The records of a judgement: the verdict, and its evidence."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from kernel_lsp.compiler.machine_code.occupancy import Cliff
from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.program_gain import ProgramGain
from kernel_lsp.judge.record import Record, Unbounded
from kernel_lsp.judge.split import Split
from kernel_lsp.judge.timing import CaseTiming, SustainedRun, Trace
from kernel_lsp.workload.spec import REFERENCE


class Outcome(StrEnum):
    """The outcome of a judgement. The terms are defined in docs/verdicts.md."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    NOT_WORTH_IT = "NOT_WORTH_IT"
    AMBIGUOUS = "AMBIGUOUS"
    WRONG = "WRONG"
    ILLEGITIMATE = "ILLEGITIMATE"
    BUILD_FAILED = "BUILD_FAILED"
    RUN_FAILED = "RUN_FAILED"
    TIMED_OUT = "TIMED_OUT"
    UNTIMED = "UNTIMED"

    @property
    def is_failure(self) -> bool:
        """True where the candidate failed, whatever its speed."""
        return self in _FAILURES


_FAILURES = frozenset(
    (Outcome.WRONG, Outcome.ILLEGITIMATE, Outcome.BUILD_FAILED, Outcome.RUN_FAILED, Outcome.TIMED_OUT)
)


class Stage(StrEnum):
    """The steps of a judgement in order; a verdict names the one that decided it."""

    PARSE = "parse"
    BUILD = "build"
    RUN = "run"
    CORRECT = "correct"
    LEGITIMATE = "legitimate"
    TIMED = "timed"


WEAK = "the workload cannot tell right from wrong"
"""Beginning of the reason where a trivial answer would pass for the right one."""


def checked_right(outcome: Outcome, stage: Stage, reason: str) -> bool:
    """Return True if no check of a candidate's answers failed, and there was one that could."""
    checked = stage is Stage.CORRECT and not reason.startswith(WEAK)
    return checked if outcome is Outcome.UNTIMED else not outcome.is_failure


class CheckStatus(StrEnum):
    """The result of one check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Check(Record):
    """One check that ran, or that was skipped; `detail` says why."""

    name: str
    status: CheckStatus
    detail: str = ""
    case: str | None = None


def is_uncompared(checks: Iterable[Check]) -> bool:
    """Return True if outputs were compared with nothing, as nobody has said what is right."""
    return any(check.name == REFERENCE and check.status is CheckStatus.SKIPPED for check in checks)


class Mismatch(Record):
    """The first wrong element of an output.

    `index` is its position in the output tensor, `count` the number of wrong elements of `total`; values are text so
    that NaN and infinities survive JSON.
    """

    case: str
    family: str
    output: int
    index: tuple[int, ...]
    expected: str
    actual: str
    count: int
    total: int


class ErrorFigures(Record):
    """Error against the float64 oracle on one case and input family.

    Both figures are in units of `eps(dtype) * (|expected| + rms(expected))`: the largest one and the root mean square.
    """

    case: str
    family: str
    baseline_max: Unbounded
    baseline_rms: Unbounded
    candidate_max: Unbounded
    candidate_rms: Unbounded


class KernelResources(Record):
    """Compile facts of one kernel of one side, as launched.

    Attributes:
        name: what the user calls it.
        registers: per thread.
        shared_bytes: static and dynamic shared memory per block, without what the system reserves.
        spill_bytes: stored and loaded per thread; None where ptxas was not asked.
        stack_bytes: per thread; without spills it is a local array indexed at run time, or a call's frame.
        threads: per block, the most that a launch gives it; None where no launch is known.
        occupancy: share of the multiprocessor's warps that can be resident, 0 to 1.
        limiter: what keeps it from being higher.
        entry: its symbol.
        dynamic_shared_bytes: the part of `shared_bytes` that launches ask for.
        barriers, parameter_bytes: named barriers used, and the size of its parameters.
        max_threads: limit on a block by `__launch_bounds__` or Triton's warps, all extents multiplied.
        cliffs: what would raise the occupancy, largest gain first.
        code: hash of its machine code.
        tensor_columns: of tensor memory, that a block allocates; None where it is not known.
        tensor_blocks: how many blocks of a multiprocessor find room for their columns at a time, while others wait;
            None where it is not known, or nothing is allocated.
    """

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int | None
    stack_bytes: int
    threads: int | None
    occupancy: float | None
    limiter: str | None
    entry: str = ""
    dynamic_shared_bytes: int = 0
    barriers: int = 0
    parameter_bytes: int = 0
    max_threads: int | None = None
    cliffs: tuple[Cliff, ...] = ()
    code: str | None = None
    tensor_columns: int | None = 0
    tensor_blocks: int | None = None


class ModelServerState(Record):
    """A model server on the GPU while timing.

    Attributes:
        name: the model's.
        pid: its first process.
        how: what kept it quiet (`kernel_lsp.model.gate.Quiet`): paused, idle, asleep or gone; or busy, if nothing did.
        busy_percent: share of time that it kept the multiprocessors busy meanwhile, the largest sample of the driver's;
            None where there was none.
    """

    name: str
    pid: int | None
    how: str
    busy_percent: int | None


class DeviceState(Record):
    """The GPU's state while timing. Clocks in MHz, power in W, temperature in degrees Celsius."""

    name: str
    uuid: str
    arch: str
    driver: str
    sm_clock_mhz: tuple[float, float] | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    others_busy_percent: int | None = None
    shared: bool = False
    copy_bandwidth_gbs: float | None = None
    read_bandwidth_gbs: float | None = None
    model_servers: tuple[ModelServerState, ...] = ()


class ExtensionRecord(Record):
    """The build of one torch extension of a candidate.

    Attributes:
        name: as the candidate calls it.
        path: `fast` with the thin header and NVRTC, or `full` with torch's own headers and nvcc.
        reason: why it could not be the fast one; empty on that.
        seconds_host, seconds_device: wall time spent on each part; on the full path the first is their sum.
        cached_host, cached_device: whether that part was found built.
        arch: what its device code was compiled for, `sm_90a` where it asks for all of an H100; empty without any.
    """

    name: str
    path: str
    reason: str
    seconds_host: float
    seconds_device: float
    cached_host: bool
    cached_device: bool
    arch: str = ""


class Where(Record):
    """The lane in which a verdict was made.

    Attributes:
        host: its machine's name.
        lane: its name.
        gpu: UUID of its GPU; None for the emulator.
        pid: its process.
        lanes: of that machine, itself among them; None in records of earlier releases.
        cores: on which processes that used the GPU were kept; None where on all.
    """

    host: str
    lane: str
    gpu: str | None
    pid: int
    lanes: int | None = None
    cores: int | None = None


class Evidence(Record):
    """Everything a verdict rests on.

    Attributes:
        protections: what confined the candidate's process (`runner.sandbox`); empty if it was never started.
        build_way: `fast` or `full` where the candidate has `extensions`, else the way of its build.
        build_arch: what it was compiled for; empty where nothing was.
        traces: what the candidate ran on the GPU.
        xids: faults that the driver reported meanwhile, by NVIDIA's numbers.
        sustained: there where power limits the kernel.
        baseline_opcodes, candidate_opcodes: instructions of all kernels, counted by kind
            (`compiler.machine_code.opcodes.kind_of`); there where the verdict is FASTER.
        where: the lane that judged, if it was one of a pool.
        trace: where the time went, packed (`judge.spans`).
        final_checks: there where a gain was confirmed.
        program: there where the workload was captured from a program, and that was timed.
        split: there where a search found that a variant wins on some cases and loses on others.
    """

    created: str
    baseline_digest: str
    candidate_digest: str
    candidate_label: str
    candidate_origin: str
    kernel_path: str
    workload_path: str
    sources: dict[str, str]
    seed: int | None
    checks: tuple[Check, ...]
    errors: tuple[ErrorFigures, ...]
    mismatch: Mismatch | None
    baseline_resources: tuple[KernelResources, ...]
    candidate_resources: tuple[KernelResources, ...]
    device: DeviceState | None
    versions: dict[str, str]
    build_way: str
    build_arch: str = ""
    build_log: str
    settings: dict[str, bool | float | int | str]
    discarded_blocks: int
    protections: tuple[str, ...]
    command: str
    traces: tuple[Trace, ...] = ()
    xids: tuple[int, ...] = ()
    sustained: SustainedRun | None = None
    baseline_opcodes: dict[str, int] = Field(default_factory=dict[str, int])
    candidate_opcodes: dict[str, int] = Field(default_factory=dict[str, int])
    extensions: tuple[ExtensionRecord, ...] = ()
    where: Where | None = None
    trace: str = ""
    final_checks: FinalChecks | None = None
    program: ProgramGain | None = None
    split: Split | None = None


class Verdict(Record):
    """The product.

    Attributes:
        id: content address: hash of both texts, workload, settings, toolchain and device.
        verdict, stage, reason: the outcome, the stage that decided it, and one sentence for a person.
        cases: paired timing by case; empty when timing was not reached.
        speedup: baseline over candidate, geometric mean over cases; None untimed.
        interval: 95 % interval of `speedup`.
        seconds: wall time by stage, with `total`.
    """

    id: str
    verdict: Outcome
    stage: Stage
    reason: str
    cases: tuple[CaseTiming, ...]
    speedup: float | None
    interval: tuple[float, float] | None
    seconds: dict[str, float]
    evidence: Evidence

    def made_in(self, where: Where) -> "Verdict":
        """Return the verdict with the lane in which it was made as part of its evidence."""
        return self.model_copy(update={"evidence": self.evidence.model_copy(update={"where": where})})

    def with_split(self, split: Split) -> "Verdict":
        """Return the verdict with a variant's results by case as part of its evidence."""
        return self.model_copy(update={"evidence": self.evidence.model_copy(update={"split": split})})
