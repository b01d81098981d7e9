"""The record of one judged candidate of a bench, and the ledger of such records."""

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from kernel_lsp import __version__
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.record import Record
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage, Verdict, Where, checked_right

GROUP_SECONDS = 0.05
"""A call that is killed loses the results of this time, which the next call repeats."""


class Comparison(Record):
    """A verdict against one baseline.

    Attributes:
        verdict, stage, reason: as in the judge's verdict.
        speedup: the baseline's time over the candidate's, geometric mean over cases; None if untimed.
        interval: its 95 % interval.
    """

    verdict: Outcome
    stage: Stage
    reason: str
    speedup: float | None
    interval: tuple[float, float] | None

    @property
    def right(self) -> bool:
        """Return True if no check of its answers failed, and there was one that could."""
        return checked_right(self.verdict, self.stage, self.reason)

    @property
    def ratio(self) -> float | None:
        """Return the speedup; 1 for a program identical to the baseline, which was not run."""
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
        excessive: more than ten times as fast as the problem's model, which KernelBench flags.
        scaled: the problem's sizes were scaled down, as where there is no GPU.
        seconds: wall time of the whole run.
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
        """Return the ratio of the mean times."""
        return self.reference_ms / self.mean_ms if self.mean_ms and self.reference_ms else None


class CandidateResult(Record):
    """One candidate, finished.

    Attributes:
        key: hash of all inputs (`key_of`).
        level, number, problem: level, number and name of its problem.
        run, index: its folder, and its number there.
        language: CUDA, Triton or torch.
        verdict: the id of the verdict against the problem's model run eagerly.
        eager: that verdict in short.
        compiled: the same against `torch.compile` of the model; None if not requested or not possible.
        compiled_trouble: why it was not possible.
        cheat: the kind of cheat, if ILLEGITIMATE; None otherwise.
        build_way: how it was built.
        seconds: wall time by stage, with `total`.
        gpu: the GPU it ran on; None for the emulator.
        published: the verdict by KernelBench's own method, if requested.
        published_trouble: why that verdict is missing although it was requested.
        where: the lane that judged; None in lines of an earlier version.
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
    where: Where | None = None


class Search(Record):
    """One problem that was searched for an answer, finished.

    Attributes:
        key: hash of all inputs (`key_of`).
        level, number, problem: level, number and name of the problem.
        model: name of the language model.
        answer: text of the best right answer, the fastest if timed; None if none was right.
        origin: proposer of that answer; empty if none was right.
        reason: why the search ended.
        notes: notes of the search on what it left out.
        outcomes: number of candidates by verdict.
        seconds: wall time, with the measurement of the problem's model.
        gpu: the GPU it ran on; None for the emulator.
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


_Line = TypeVar("_Line", CandidateResult, Search)


def key_of(
    problem: str, candidate: str, settings: Mapping[str, object], place: str, versions: Mapping[str, str]
) -> str:
    """Return the key of a result, which changes with any of its inputs.

    Args:
        problem: the problem's text.
        candidate: the candidate's text.
        settings: those in force that a verdict depends on.
        place: the GPU's name, or `emulator`.
        versions: of the compilers and libraries that are here, by name.
    """
    made_of = [problem, candidate, settings, place, versions, __version__]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()[:24]


def comparison_of(verdict: Verdict) -> Comparison:
    """Return the summary of a verdict."""
    return Comparison(
        verdict=verdict.verdict,
        stage=verdict.stage,
        reason=verdict.reason,
        speedup=verdict.speedup,
        interval=verdict.interval,
    )


def cheat_of(verdict: Verdict) -> str | None:
    """Return the kind of cheat in an ILLEGITIMATE verdict: the failed check, or `host code` if it never ran; else
    None.
    """
    if verdict.verdict is not Outcome.ILLEGITIMATE:
        return None
    checks = verdict.evidence.checks
    failed = next((check.name for check in checks if check.status is CheckStatus.FAILED), None)
    return failed or ("timing" if checks else "host code")


class Ledger:
    """A file with one line per finished candidate or search; killing a process does not damage it.

    Lines are appended in one write and flushed to disk. Readers skip an incomplete line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, CandidateResult]:
        """Return every result by its key, the last one of each key; a missing file is an empty ledger.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return self._read(CandidateResult)

    def searches(self) -> dict[str, Search]:
        """Return every search by its key.

        Raises:
            ConfigurationError: it cannot be read.
        """
        return self._read(Search)

    def append(self, *lines: CandidateResult | Search) -> None:
        """Add results or searches.

        Raises:
            ConfigurationError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                torn = file.tell() and self._last_byte() != b"\n"
                text = "".join(f"{line.model_dump_json()}\n" for line in lines)
                file.write((b"\n" if torn else b"") + text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            fix = "Name another file with --ledger."
            raise ConfigurationError(f"The ledger cannot be written: {error.strerror}.", self.path, fix=fix) from None

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
            except ValidationError:  # incomplete, of the other kind, or of another version of this program
                continue
            found[one.key] = one
        return found

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)


class GroupedLines:
    """Appends the lines of `GROUP_SECONDS` together: many lanes need more lines a second than a disk has flushes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[CandidateResult] = []
        self._error: ConfigurationError | None = None

    def append(self, line: CandidateResult) -> None:
        """Add a line soon.

        Raises:
            ConfigurationError: an earlier one could not be written.
        """
        if self._error is not None:
            raise self._error
        if not self._waiting:
            asyncio.get_running_loop().call_later(GROUP_SECONDS, self._written)
        self._waiting.append(line)

    def flush(self) -> None:
        """Add all lines that wait.

        Raises:
            ConfigurationError: one could not be written.
        """
        self._written()
        if self._error is not None:
            raise self._error

    def _written(self) -> None:
        lines, self._waiting = self._waiting, []
        try:
            if lines:
                self._ledger.append(*lines)
        except ConfigurationError as error:
            self._error = error
