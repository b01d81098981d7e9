"""What is known of one candidate of a bench, and the ledger it is written to."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from kernel_lsp import __version__
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.stages.correct import WEAK
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Record, Stage, Verdict


class Comparison(Record):
    """A verdict against one baseline.

    Attributes:
        verdict, stage, reason: as the judge says them.
        speedup: the baseline's time over the candidate's, geometric mean over cases; None where nothing was timed.
        interval: its 95 % interval.
    """

    verdict: Outcome
    stage: Stage
    reason: str
    speedup: float | None
    interval: tuple[float, float] | None

    @property
    def right(self) -> bool:
        """Whether no check of its answers failed, where there was one that could."""
        checked = self.stage is Stage.CORRECT and not self.reason.startswith(WEAK)
        return checked if self.verdict is Outcome.UNTIMED else not self.verdict.is_failure

    @property
    def ratio(self) -> float | None:
        """The speedup; 1 for what is the baseline's own program and was therefore not run."""
        same_program = self.verdict is Outcome.SAME and self.stage is Stage.BUILD
        return 1.0 if same_program and self.speedup is None else self.speedup


class Published(Record):
    """A verdict by KernelBench's published method (`runner.workers.published`).

    Attributes:
        compiled: the candidate's text was executed and its model made.
        correct: every trial was within the tolerance.
        trials: how many trials there were, and how many passed.
        detail: why it is not correct; empty otherwise.
        mean_ms, reference_ms: mean time of the candidate and of the problem's model, milliseconds; None untimed.
        excessive: it is said to be more than ten times as fast as the problem's model, which KernelBench flags.
        scaled: the problem's sizes were scaled down, as where there is no GPU.
        seconds: wall time of all of it.
    """

    compiled: bool
    correct: bool
    trials: tuple[int, int]
    detail: str
    mean_ms: float | None
    reference_ms: float | None
    excessive: bool
    scaled: bool
    seconds: float

    @property
    def speedup(self) -> float | None:
        """Ratio of the means."""
        return self.reference_ms / self.mean_ms if self.mean_ms and self.reference_ms else None


class Result(Record):
    """One candidate, finished.

    Attributes:
        key: hash of all that it rests on (`key_of`).
        level, number, problem: which problem it is for, and that one's name.
        run, index: the folder it lay in, and its number there.
        language: CUDA, Triton or torch.
        verdict: the id of the verdict against the problem's model run eagerly.
        eager: that verdict in short.
        compiled: the same against `torch.compile` of the model; None where that was not asked or not possible.
        compiled_trouble: why it was not possible.
        cheat: for what is ILLEGITIMATE, the kind of it; None otherwise.
        build_way: how it was built.
        seconds: wall time by stage, with `total`.
        gpu: what it ran on; None for the emulator.
        published: KernelBench's own method, where it was asked for.
        published_trouble: why there is no such verdict although it was asked for.
    """

    key: str
    level: int
    number: int
    problem: str
    run: str
    index: int
    language: str
    verdict: str
    eager: Comparison
    compiled: Comparison | None
    compiled_trouble: str
    cheat: str | None
    build_way: str
    seconds: dict[str, float]
    gpu: str | None
    published: Published | None
    published_trouble: str


class Search(Record):
    """One problem that was searched for an answer, finished.

    Attributes:
        key: hash of all that it rests on (`key_of`).
        level, number, problem: which problem it is, and its name.
        model: the name of the model that was asked.
        answer: text of the best answer that was right, the fastest where it was timed; None where none was right.
        origin: who proposed that one; empty where none was right.
        reason: what the search itself says of its end.
        notes: what it says was left out.
        outcomes: how many candidates there were of each verdict.
        seconds: wall time, with the measurement of the problem's model.
        gpu: what it ran on; None for the emulator.
    """

    key: str
    level: int
    number: int
    problem: str
    model: str
    answer: str | None
    origin: str
    reason: str
    notes: tuple[str, ...]
    outcomes: dict[str, int]
    seconds: float
    gpu: str | None


_Line = TypeVar("_Line", Result, Search)


def key_of(
    problem: str, candidate: str, settings: Mapping[str, object], place: str, versions: Mapping[str, str]
) -> str:
    """The address of a result: the same only while nothing that it rests on has changed.

    Args:
        problem: the problem's text.
        candidate: the candidate's text.
        settings: those in force that a verdict depends on.
        place: the GPU's name, or what takes its place.
        versions: of the compilers and libraries that are here, by name.
    """
    made_of = [problem, candidate, settings, place, versions, __version__]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()[:24]


def comparison_of(verdict: Verdict) -> Comparison:
    """A verdict in short."""
    return Comparison(
        verdict=verdict.verdict,
        stage=verdict.stage,
        reason=verdict.reason,
        speedup=verdict.speedup,
        interval=verdict.interval,
    )


def cheat_of(verdict: Verdict) -> str | None:
    """What kind of cheat an ILLEGITIMATE verdict found: the check that failed; `host code` where none came to run."""
    if verdict.verdict is not Outcome.ILLEGITIMATE:
        return None
    checks = verdict.evidence.checks
    failed = next((check.name for check in checks if check.status is CheckStatus.FAILED), None)
    return failed or ("timing" if checks else "host code")


class Ledger:
    """A file with a line for each finished candidate or search, which a process that is killed leaves as it was.

    A line is appended in one piece and is on the disk before it counts. One that was cut off is skipped by readers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Result]:
        """Every result there is by its key; of one key the last. No file is an empty ledger.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return self._read(Result)

    def searches(self) -> dict[str, Search]:
        """Every search there is by its key.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return self._read(Search)

    def append(self, line: Result | Search) -> None:
        """Add a result or a search.

        Raises:
            ConfigurationError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                torn = file.tell() and self._last_byte() != b"\n"
                file.write((b"\n" if torn else b"") + line.model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            cure = "Name another file with --ledger."
            raise ConfigurationError(f"The ledger cannot be written: {error.strerror}.", self.path, cure=cure) from None

    def _read(self, kind: type[_Line]) -> dict[str, _Line]:
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigurationError(f"The ledger cannot be read: {error.strerror}.", self.path) from None
        found: dict[str, _Line] = {}
        for line in lines:
            try:
                one = kind.model_validate_json(line)
            except ValidationError:  # cut off, of the other kind, or of another version of this program
                continue
            found[one.key] = one
        return found

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)
