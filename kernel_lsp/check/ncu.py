"""Nsight Compute (`ncu`): the command that samples a program's kernels, whether it may, and the reading of its table.

Source: NVIDIA, Nsight Compute CLI, "Command Line Options", and Kernel Profiling Guide, "Warp Stall Reasons".
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ISSUED = ("selected", "not_selected")
"""Stall reasons of a warp that can go on: it issues, or another one of its scheduler does."""
REASONS = {
    "barrier": "a barrier",
    "branch_resolving": "a branch's target",
    "dispatch": "the dispatch unit",
    "drain": "stores at its end",
    "gmma": "a `wgmma`",
    "imc": "the constant cache",
    "lg": "the queue of global memory",
    "long_sb": "global or local memory",
    "math": "an arithmetic unit",
    "membar": "a memory fence",
    "mio": "the queue of shared memory",
    "misc": "something else",
    "no_inst": "the instruction cache",
    "short_sb": "shared memory",
    "sleep": "its own sleep",
    "sleeping": "its own sleep",
    "tex": "the queue of textures",
    "wait": "the fixed latency of an instruction",
    "warpgroup_arrive": "its warpgroup",
}
"""Plain words for the reasons, by the names of ncu's columns without `stall_`."""
_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_ADMINISTRATORS_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*1", re.MULTILINE)
_SYS_ADMIN = 21  # CAP_SYS_ADMIN, linux/capability.h
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
REFUSED = (
    "the driver lets administrators alone read counters: an administrator can set the option "
    "NVreg_RestrictProfilingToAdminUsers=0 of the kernel module `nvidia`"
)


@dataclass(frozen=True, slots=True)
class SampledInstruction:
    """The samples of one instruction.

    Attributes:
        offset: bytes from the start of its function.
        stalls: samples of warps by what they waited for; see `REASONS`, and `ISSUED` for those that did not wait.
    """

    offset: int
    stalls: dict[str, int]


def sampling_command(ncu: Path, program: Sequence[str]) -> list[str]:
    """Return the command that runs a program and prints where warps of each of its launches were sampled.

    Clocks are left as they are: locking them takes an administrator, and shares do not depend on them.
    """
    options = ["--clock-control", "none", "--section", "SourceCounters"]
    return [str(ncu), *options, "--page", "source", "--print-source", "sass", "--csv", *program]


def may_read_counters() -> bool:
    """Return False where the driver keeps counters from this process: a look at two files, no run."""
    try:
        restricted = _ADMINISTRATORS_ONLY.search(_PARAMETERS.read_text(encoding="utf-8")) is not None
    except OSError:
        return True  # ncu itself will say
    return not restricted or _is_administrator()


def _is_administrator() -> bool:
    try:
        found = _CAPABILITIES.search(_STATUS.read_text(encoding="utf-8"))
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> _SYS_ADMIN & 1)


def read_samples(said: str) -> tuple[tuple[SampledInstruction, ...], ...]:
    """Return the samples of each launch, in order, by instruction; empty where the output has no table."""
    launches: list[list[SampledInstruction]] = []
    columns: list[str] = []
    first = 0
    for row in _rows(said):
        if row[0] == "Kernel Name":
            launches.append([])
            columns = []
        elif row[0] == "Address":
            columns = row
        elif launches and columns and row[0].startswith("0x") and len(row) == len(columns):
            address = int(row[0], 16)
            first = first if launches[-1] else address
            launches[-1].append(SampledInstruction(address - first, dict(_stalls(columns, row))))
    return tuple(map(tuple, launches))


def why_nothing(said: str) -> str:
    """Return why ncu has printed no samples, in its own words where it has some."""
    if "ERR_NVGPUCTRPERM" in said:
        return REFUSED
    errors = [line.removeprefix("==ERROR==").strip() for line in said.splitlines() if line.startswith("==ERROR==")]
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    return f"ncu says: {(errors or [last])[0][:300]}" if errors or last else "ncu has said nothing"


def top_reason(stalls: Counter[str]) -> tuple[str, int]:
    """Return what most samples waited for, in plain words, and their number; `("", 0)` where none waited."""
    waiting = {name: count for name, count in stalls.items() if name not in ISSUED and count}
    if not waiting:
        return "", 0
    name = max(waiting, key=lambda one: waiting[one])
    return REASONS.get(name, name.replace("_", " ")), waiting[name]


def _rows(said: str) -> Iterator[list[str]]:
    """Yield the rows of the tables; the lines that begin with `==` are ncu's talk."""
    yield from filter(None, csv.reader(line for line in said.splitlines() if not line.startswith("==")))


def _stalls(columns: Sequence[str], row: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the reasons that were seen: columns as `stall_wait`, but not those of samples without an issue."""
    for column, value in zip(columns, row, strict=True):
        if column.startswith("stall_") and " " not in column and value.isdecimal() and value != "0":
            yield column.removeprefix("stall_"), int(value)
