"""KernelBench's files by their names: problems below its root, candidates in a folder of a run.

A problem is `ROOT/KernelBench/level1/19_ReLU.py` or `ROOT/level1/19_ReLU.py`; a candidate for it is
`level_1_problem_19_sample_0_kernel.py`, in the folder that is named or a folder below it, such as `runs/NAME/`.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.errors import ConfigurationError

_PROBLEM = re.compile(r"(\d+)_\w*\.py")
_LEVEL = re.compile(r"level(\d+)")
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 10_000  # numbers in one range


@dataclass(frozen=True, slots=True, order=True)
class ProblemFile:
    """A problem's file, sorted by level and number."""

    level: int
    number: int
    path: Path

    @property
    def name(self) -> str:
        """Return `19_ReLU`, KernelBench's name."""
        return self.path.stem


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """A candidate's file.

    Attributes:
        level, number: level and number of its problem.
        run: its folder, relative to the named one; empty for that one itself.
        index: its number among those for the same problem.
        path: the file.
    """

    level: int
    number: int
    run: str
    index: int
    path: Path


def sample_name(level: int, number: int, index: int) -> str:
    """Return the file name that KernelBench gives to a candidate."""
    return f"level_{level}_problem_{number}_sample_{index}_kernel.py"


def parse_numbers(text: str) -> frozenset[int]:
    """Return the problem numbers in `1,19,30-40`.

    Raises:
        ConfigurationError: it is something else, or a range that runs backwards.
    """
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST:
            raise ConfigurationError(
                f"`{part}` names no problems.", fix="Numbers and ranges are separated by commas: 1,19,30-40."
            )
        found |= set(range(first, last + 1))
    if not found:
        raise ConfigurationError("No problem is named.", fix="Name some, such as 1,19,30-40, or leave it out for all.")
    return frozenset(found)


def find_problems(
    root: Path, level: int | None = None, numbers: Container[int] | None = None
) -> tuple[ProblemFile, ...]:
    """Return the problems below a KernelBench root, in order.

    Args:
        root: KernelBench's repository, or the folder in it that holds `level1`, `level2` and so on.
        level: only this one's.
        numbers: only these.

    Raises:
        ConfigurationError: there is no such folder, or no such problem in it.
    """
    folder = next((at for at in (root / "KernelBench", root) if any(at.glob("level[0-9]*/"))), None)
    if folder is None:
        fix = "Name the folder of KernelBench's repository: it holds KernelBench/level1, level2 and so on."
        raise ConfigurationError("KernelBench's problems are not in this folder.", root, fix=fix)
    found = [
        ProblemFile(int(at[1]), int(named[1]), path)
        for path in folder.glob("level*/*.py")
        if (at := _LEVEL.fullmatch(path.parent.name)) and (named := _PROBLEM.fullmatch(path.name))
    ]
    chosen = [p for p in found if level in (None, p.level) and (numbers is None or p.number in numbers)]
    if not chosen:
        raise ConfigurationError("There is no such problem.", folder, fix="See --level and --problems.")
    return tuple(sorted(chosen))


def find_samples(folder: Path) -> tuple[Sample, ...]:
    """Return the candidates in a folder and those below it, in order.

    Raises:
        ConfigurationError: it is no folder, or no file in it has the name of a candidate.
    """
    found = [
        Sample(int(named[1]), int(named[2]), _below(folder, path.parent), int(named[3]), path)
        for path in folder.rglob("level_*_kernel.py")
        if (named := _SAMPLE.fullmatch(path.name))
    ]
    if not found:
        fix = f"KernelBench names its candidates like {sample_name(1, 19, 0)}."
        raise ConfigurationError("No candidate lies in this folder.", folder, fix=fix)
    return tuple(sorted(found))


def _below(folder: Path, inner: Path) -> str:
    return "" if inner == folder else inner.relative_to(folder).as_posix()
