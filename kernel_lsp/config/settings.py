"""The one tree of settings: every setting is declared here, with default and meaning, and nowhere else."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from kernel_lsp import policy
from kernel_lsp.config.units import Bytes, Seconds
from kernel_lsp.device.device import device_named

APP = "kernel-lsp"
"""Name of the table in `pyproject.toml` and of the folders for settings, data and cache."""


def _anchor(value: object, info: ValidationInfo) -> object:
    """Resolve a relative folder against the file that names it."""
    base = (info.context or {}).get("base")
    return Path(base, Path(value).expanduser()) if isinstance(value, str | Path) and base else value


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _named(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (value.strip() or None) if isinstance(value, str) else value


def _known(name: str) -> str:
    device_named(name)
    return name


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


INPUT_FAMILIES = (
    *("normal", "shifted", "large", "tiny", "ties", "sorted", "alternating", "above", "below", "outliers"),
    *("vast", "minute", "spiked", "signed", "nonfinite", "nan", "nan-in-data", "infinite-in-data"),
    *("unaligned", "strided", "padded"),
    *(f"misaligned-{number}" for number in range(1, policy.MISALIGNED_TENSORS + 1)),
    "weights",
)
"""Names of the input families, which `workload.families` defines for worker processes."""


def _family(name: str) -> str:
    if name not in INPUT_FAMILIES:
        raise ValueError(f"`{name}` is not an input family; these are: {', '.join(INPUT_FAMILIES)}")
    return name


Folder = Annotated[Path, BeforeValidator(_anchor)]
Arch = Annotated[str, AfterValidator(_known)]
FamilyName = Annotated[str, AfterValidator(_family)]
Proposer = Annotated[str, Field(pattern=r"^(rewriter|tuner|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")]
Variables = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]+\*?$")]  # never all of them: some are secrets
PoolAddress = Annotated[
    str, Field(pattern=r"^(local|ray|ray://[^\s/:]+:\d{1,5}|ray://\[[0-9a-fA-F:]+\]:\d{1,5}|slurm:[1-9]\d{0,4})$")
]
Names = BeforeValidator(_names)  # a text is split at commas: sm_80,sm_90
Words = BeforeValidator(_words)  # a text is split as a shell would: -DTILE=64 --use_fast_math


def _compile_workers() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class JudgeSettings(_Section):
    """How sure a verdict must be, and what it may cost."""

    delta: float = Field(default=policy.DELTA, gt=0, lt=0.5)
    """Smallest difference in time that counts, as a ratio: 0.01 is 1 %."""
    alpha: float = Field(default=policy.ALPHA, gt=0, lt=0.5)
    """Chance of a wrong FASTER or SLOWER that is accepted per verdict."""
    factor: float = Field(default=policy.ERROR_FACTOR, ge=1)
    """How many times the baseline's own error, against float64, a candidate may make."""
    budget_ms: float = Field(default=policy.BUDGET_MS, gt=0)
    """GPU time for timing one candidate, in milliseconds; after it the verdict is AMBIGUOUS."""
    slow_budget_s: float = Field(default=policy.SLOW_BUDGET_SECONDS, gt=0)
    """Seconds that launches may take in one judgement where the baseline needs 0.1 s or more for each of them."""
    families: Annotated[list[FamilyName], Names] = []
    """Input families to check with, by name; empty means all that apply to the workload."""
    emulator_seconds: float = Field(default=policy.EMULATED_SECONDS, gt=0)
    """Processor time for the emulated runs of one version without a GPU, in seconds; more of it reaches more cases."""
    allow_slower_cases: bool = False
    """Accept a variant that is faster on the whole and slower on single cases."""
    sanitize: Literal["auto", "off"] = "auto"
    """Run a candidate under compute-sanitizer and the emulator before it is called faster: auto or off.

    auto: The emulator, and compute-sanitizer where it is installed.
    off: Neither of them.
    """
    steady_load: Literal["auto", "off"] = "auto"
    """Look whether a gain survives a steady load: for 0.3 s, or up to 4 s if the clock falls too far: auto or off.

    auto: Before it is called faster.
    off: Never.
    """

    def wants(self, family: str) -> bool:
        """Return True if an input family is to be checked with, where it applies."""
        return not self.families or family in self.families


class CheckSettings(_Section):
    """The findings that `check` reports, and those that fail it."""

    ignore: Annotated[list[str], Names] = []
    """Rules to silence in this project, by id, such as KL035. Errors of the compiler (KL001) cannot be silenced."""
    strict: bool = False
    """Let warnings fail a check as errors do."""


class RefineSettings(_Section):
    """How long and how widely to search."""

    budget: Seconds = Field(default=120.0, gt=0)
    """Time for a search from when it is asked for, measuring the kernel included, such as 120s or 5m."""
    gpus: int = Field(default=1, ge=1)
    """GPUs of one kind that race candidates; each race is on one of them, and only the first judges in full."""
    proposers: Annotated[list[Proposer], Names] = ["rewriter", "tuner"]
    """Who proposes candidates, in this order: `rewriter`, `tuner`, or a function of your own as `module:name`."""
    strategy: Literal["tuner-only", "serial", "beam", "archive", "tree", "tuner-then-model"] = "tuner-then-model"
    """How the search asks a model, if at all. Only `tuner-then-model` does without one if none is served.

    tuner-only: Rewrites and settings; no model is asked.
    serial: A model is asked in independent conversations.
    beam: A model is asked; the best conversations are copied after each turn.
    archive: First without a model; then it goes on from the best candidate of each approach.
    tree: First without a model; then it plans steps from the best, and takes the likeliest.
    tuner-then-model: First without a model; then one is asked if it is served.
    """
    trajectories: int = Field(default=4, ge=1, le=256)
    """Conversations with a model side by side."""
    turns: int | None = Field(default=None, ge=1, le=64)
    """Answers of a model in each conversation; by default as many as its profile says."""
    keep: int = Field(default=2, ge=1)
    """Conversations that `beam` goes on with after each turn, copied to make up the number."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens that a model may generate in one refinement; no limit by default."""
    candidates: int | None = Field(default=None, ge=1)
    """Candidates that may be proposed in one refinement; no limit by default."""
    second_opinion: bool = False
    """Ask for bottleneck, method and plan from the kernel's profile before each further turn of a model."""
    tools: int = Field(default=0, ge=0, le=64)
    """Calls of compile, check, time, profile, facts and sass that a model may make in one turn; 0 offers it none."""
    write: Literal["cuda", "triton"] | None = None
    """Language of a kernel for a plain PyTorch module; by default that of the model's training, else CUDA.

    cuda: CUDA C++.
    triton: Triton, in Python.
    unset: That of the model's training, else CUDA.
    """
    untimed: bool = False
    """Search even without a GPU: candidates are built, checked and ordered by predicted times; none is measured."""


class ModelSettings(_Section):
    """The language model that proposes variants, and where it is served."""

    profile: str = "kevin-32b"
    """Profile of the model: the id of one, or a file of your own that ends in .toml."""
    weights: Folder | None = None
    """Folder of the model's weights, where they are not found by the profile's name."""
    endpoint: str | None = None
    """OpenAI-compatible server to use instead of one started here: a URL, or unix:/path/of/a/socket."""
    name: str | None = None
    """Name by which the server knows the model or adapter; by default the model that is served here."""
    adapter: str | None = None
    """Adapter, trained here, that answers instead of the model itself (`kernel-lsp model adapters`)."""
    key_variable: str | None = None
    """Environment variable that holds the key of `model.endpoint`."""
    python: Folder | None = None
    """Python that has vLLM, where this program's own has not."""
    templates: Folder | None = None
    """Folder of prompt templates of your own; a file there takes the place of the profile's of the same name."""
    reserve: Bytes = Field(default=6 * 2**30, ge=0)
    """GPU memory left to the judge beside a model; the model sleeps while the judge finds less than half of it."""


class LearnSettings(_Section):
    """Data that models are fine-tuned on."""

    collect: bool = True
    """Let `kernel-lsp model collect` take turns on this project's kernels into datasets."""
    held_out: float = Field(default=0.2, ge=0, lt=1)
    """Share of kernels that datasets hold out of training, to compare models on."""
    python: Folder | None = None
    """Python that has `kernel-lsp[train]`, where this program's own has not."""
    rank: int = Field(default=32, ge=1, le=512)
    """Rank of an adapter that is trained."""
    rate: float = Field(default=1e-4, gt=0)
    """Learning rate of fine-tuning."""
    epochs: int = Field(default=2, ge=1)
    """Times that fine-tuning sees each conversation."""
    batch: int = Field(default=8, ge=1)
    """Conversations in one step of the optimizer."""
    length: int = Field(default=8192, ge=64)
    """Tokens of the longest conversation to train on; it decides how much memory that takes."""
    checkpoint: int = Field(default=10, ge=1)
    """Steps between two checkpoints of a training; a training that is killed goes on from the last."""
    turns: int = Field(default=4, ge=1)
    """Answers in a trajectory that is learned from, and of a comparison."""
    trajectories: int = Field(default=16, ge=2)
    """Trajectories on one kernel in one step of reinforcement learning, or one round of fine-tuning."""
    kernels: int = Field(default=8, ge=1)
    """Kernels in one step of reinforcement learning."""
    gamma: float = Field(default=0.4, ge=0, le=1)
    """Discount of later turns in the return of a turn."""
    policy_rate: float = Field(default=2e-5, gt=0)
    """Learning rate of reinforcement learning."""
    temperature: float = Field(default=0.9, gt=0)
    """Temperature at which answers are drawn to learn from."""
    strength: float = Field(default=0.9, ge=0, le=1)
    """Least share of planted bugs that a workload must catch before answers are paid by it (`check --strength`)."""
    gpu: Annotated[str | None, BeforeValidator(_named)] = None
    """GPU that trains: its index, UUID or name; by default the one that judges (`gpu`)."""


class BuildSettings(_Section):
    """How kernels are compiled."""

    options: Annotated[list[str], Words] = []
    """Further options for the CUDA compiler, such as --use_fast_math or -DTILE=64."""
    include_dirs: Annotated[list[Folder], Words] = []
    """Further folders to look for headers in; relative ones start at the file that names them."""
    cache_limit: Bytes = Field(default=2 * 2**30, ge=0)
    """Size at which the oldest builds are dropped from the cache, such as 2GiB; 0 keeps none."""


class CaptureSettings(_Section):
    """Runs of a program of yours that leave workloads behind."""

    command: str = ""
    """The program that *Capture a run* starts in the project's folder, as in a shell: python train.py --steps 20."""


class RunnerSettings(_Section):
    """The processes that compile and run kernels."""

    deadline_floor_s: float = Field(default=5.0, gt=0)
    """A run is never stopped earlier than this, in seconds; on a busy machine a driver takes three to report a trap."""
    deadline_factor: float = Field(default=20.0, ge=1)
    """A run is stopped after this many times the baseline's own time, once the floor has passed."""
    compile_workers: int = Field(default_factory=_compile_workers, ge=1)
    """Builds side by side, or processes for the kernels of one; by default one less than the machine has cores."""
    environment: Annotated[list[Variables], Names] = []
    """Environment variables that kernels and workloads see, by name or by how the name begins, such as FLA_*."""
    warm_minutes: float = Field(default=10.0, ge=0)
    """Keep what workers import (0.4 GB, more with packages of yours) for so long after the last command; 0: never."""


class EditorSettings(_Section):
    """The hints and lenses of the language server, and their timing."""

    delay_ms: int = Field(default=150, ge=0, le=10_000)
    """Pause in typing after which a kernel is compiled, in milliseconds."""
    check_on_save: bool = True
    """Check a kernel that has a workload whenever its file is saved."""
    judge_fixes: bool = True
    """After a check that found errors try mechanical fixes, and offer those that a check of their own passes."""
    ready_minutes: int = Field(default=10, ge=0)
    """Keep a process ready (a GiB) for so many minutes after a check or, with a GPU, a cursor in a kernel; 0: never."""
    facts_lens: bool = True
    """Show registers, shared memory and occupancy above each kernel."""
    cost_lens: bool = True
    """Show in the facts above a kernel what an edit costs against the saved text, such as 48 regs (+8)."""
    verdict_lens: bool = True
    """Show the last verdict above each kernel."""
    job_lens: bool = True
    """Show what a running job is doing above its kernel."""
    variant_lens: bool = True
    """Show verified variants above their kernel."""
    capture_lens: bool = True
    """Show above a kernel its share of the programs that were captured."""
    machine_code_hover: Literal["off", "summary", "full"] = "summary"
    """Show in a line's hover what it became: nothing, its counts, or the instructions.

    off: No machine code.
    summary: One line with the number of instructions, loads and live registers.
    full: Every instruction.
    """
    register_hints: bool = False
    """Show live registers at the end of each line."""
    sector_hints: bool = False
    """Show memory sectors per request at the end of each line."""
    bank_hints: bool = False
    """Show the ways of shared-memory bank conflicts at the end of each line."""
    profile_hints: bool = True
    """Show at the end of each costly line what a profile of its kernel counted and sampled there."""


class KernelBenchSettings(_Section):
    """Where KernelBench's problems lie."""

    root: Folder | None = None
    """Folder with level1/ and so on; `level_1_problem_19_sample_0_kernel.py` then finds its problem there."""


class PoolSettings(_Section):
    """The GPUs that many tasks are spread over."""

    address: PoolAddress = "local"
    """Where `bench`, `check`, sweeps and trainings judge: local, ray (all GPUs here), ray://HOST:PORT or slurm:N."""


class PathSettings(_Section):
    """Where things are kept."""

    data: Folder = Field(default_factory=lambda: platformdirs.user_data_path(APP))
    """Folder of the store: verdicts, trajectories and baselines."""
    cache: Folder = Field(default_factory=lambda: platformdirs.user_cache_path(APP))
    """Folder of builds; it can be deleted at any time."""


class Settings(_Section):
    """Everything that can be set, with what holds when nothing is."""

    gpu: Annotated[str | None, BeforeValidator(_named)] = None
    """GPU to use: its index, UUID or name, such as 1 or H100; by default the first."""
    arch: Annotated[list[Arch], Names] = []
    """Architectures or GPUs that facts are of, such as sm_90 or RTX 4090; all else is for the GPU, else the first."""
    workloads: Annotated[list[Folder], Words] = []
    """Further folders to look for workloads in, such as test/kernels, from the file that names them."""
    judge: JudgeSettings = JudgeSettings()
    check: CheckSettings = CheckSettings()
    refine: RefineSettings = RefineSettings()
    model: ModelSettings = ModelSettings()
    learn: LearnSettings = LearnSettings()
    build: BuildSettings = BuildSettings()
    capture: CaptureSettings = CaptureSettings()
    runner: RunnerSettings = RunnerSettings()
    editor: EditorSettings = EditorSettings()
    kernelbench: KernelBenchSettings = KernelBenchSettings()
    pool: PoolSettings = PoolSettings()
    paths: PathSettings = Field(default_factory=PathSettings)

    @property
    def on_plain_inputs(self) -> "Settings":
        """Return the same settings but for the families of inputs: plain ones suffice where only time is asked for."""
        return self.model_copy(update={"judge": self.judge.model_copy(update={"families": ["normal"]})})
