"""The records of a mutation test: the result of each planted bug."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernel_lsp.store.store import Document


class Fate(StrEnum):
    """The result of a planted bug. Only caught and surviving ones count."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    SAME_CODE = "same machine code"
    NOT_BUILT = "does not compile"
    UNKNOWN = "could not be judged"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug and its result.

    Attributes:
        bug: its kind (`source.mutations.Bug`).
        function: the function it was planted in.
        line: where, from 1.
        what: the change in a few words.
        fate: whether it was caught.
        by: what caught it: a check's name, or `emulator: ` and the kind of what it found; empty where nothing did.
        reason: what was found, or why it may have survived.
        seconds: wall time it took to judge.
    """

    bug: str
    function: str
    line: int
    what: str
    fate: Fate
    by: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FileStrength:
    """The share of planted bugs in a kernel file that its workload catches.

    Attributes:
        path: the kernel file.
        workload: its workload; None where there is none, or it cannot be used.
        device: what mutants ran on: a GPU's name and `emulator`, or the emulator alone.
        cases: the cases that took part.
        mutants: every planted bug, by line.
        weak: trivial answers that the workload lets pass, as sentences.
        advice: what to add to the workload so that it catches more.
        problem: why nothing was tried; empty otherwise.
        seconds: wall time.
        remembered: whether nothing had changed since an earlier test, whose outcome this is.
    """

    path: Path
    device: str
    cases: tuple[str, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    weak: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    problem: str = ""
    seconds: float = 0.0
    remembered: bool = False
    workload: Path | None = None

    def of(self, fate: Fate) -> tuple[Mutant, ...]:
        """Return the mutants with one result."""
        return tuple(mutant for mutant in self.mutants if mutant.fate is fate)

    @property
    def score(self) -> float | None:
        """Return caught bugs as a share of those that count; None if none does."""
        caught, survived = len(self.of(Fate.CAUGHT)), len(self.of(Fate.SURVIVED))
        return caught / (caught + survived) if caught + survived else None


_FILE = TypeAdapter(FileStrength)


def packed(strength: FileStrength) -> Document:
    """Return the record as JSON values."""
    return _FILE.dump_python(strength, mode="json")


def unpacked(document: Mapping[str, object] | None) -> FileStrength | None:
    """Return the record from JSON values; None if there are none, or they do not fit."""
    try:
        return None if document is None else _FILE.validate_python(document)
    except ValidationError:
        return None
