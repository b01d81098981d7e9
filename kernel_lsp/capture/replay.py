"""Launches a snapshot again in a process of its own, at the addresses that its memory had, and compares."""

import contextlib
import json
import os
import statistics
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kernel_lsp.capture.native_part import REPLAY, native_part
from kernel_lsp.capture.snapshot import Snapshot
from kernel_lsp.compiler.machine_code.elf import read_sections
from kernel_lsp.compiler.machine_code.opcodes import Role, role_of
from kernel_lsp.compiler.machine_code.sass import disassemble
from kernel_lsp.errors import CannotJudgeError, SourceError

_TIMES = 20
_SECONDS = 300.0
_CODE = ".text."


@dataclass(frozen=True, slots=True)
class Replayed:
    """A snapshot that was launched again.

    Attributes:
        snapshot: what was launched.
        cubin: the machine code that ran, the snapshot's own or another.
        same_addresses: False if its memory had to lie elsewhere and the pointers in it were rewritten.
        nbytes: compared bytes.
        changed: number of bytes that the kept launch changed.
        wrong: number of bytes that the first replay left otherwise than the kept launch.
        where: the first of them; empty if there is none.
        unstable: number of bytes in which further replays from the same memory differ from the first.
        atomics: number of atomic instructions by opcode, if replays differ and the machine code can be shown.
        us: times of launches, each with cold caches and the memory as it was before; in microseconds, sorted.
        attempt: which process, from 1, had the addresses free.
    """

    snapshot: Snapshot
    cubin: Path
    same_addresses: bool
    nbytes: int
    changed: int
    wrong: int
    where: str
    unstable: int
    atomics: dict[str, int]
    us: tuple[float, ...]
    attempt: int

    @property
    def own(self) -> bool:
        """Return True if the snapshot's own machine code ran."""
        return self.cubin == self.snapshot.cubin

    @property
    def median_us(self) -> float:
        """Return the median time of a launch in microseconds."""
        return statistics.median(self.us)


def replay(snapshot: Snapshot, cache: Path, *, cubin: Path | None = None, gpu: str = "") -> Replayed:
    """Launch a snapshot again and compare what it leaves.

    Args:
        snapshot: the launch.
        cache: folder for the program that does it.
        cubin: other machine code, with the same kernel or one alone; its own if None.
        gpu: UUID of the GPU to use; empty for CUDA's first.

    Raises:
        CannotJudgeError: there is no GPU, no compiler, or the launch failed.
        SourceError: the cubin has no such kernel.
    """
    program = native_part(REPLAY, cache)
    image = cubin or snapshot.cubin
    symbol = _entry(image, snapshot.symbol)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
    environment |= {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    command = [str(program), str(snapshot.folder), str(image), symbol, str(_TIMES)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
        said = cast("dict[str, Any]", json.loads(done.stdout or "{}"))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise CannotJudgeError(f"the launch cannot be replayed: {error}", snapshot.folder) from None
    if done.returncode or "error" in said:
        why = said.get("error") or f"the replay ended with {done.returncode} {done.stderr.strip()[:300]}"
        raise CannotJudgeError(f"the launch cannot be replayed: {why}", snapshot.folder, fix=_host_memory(snapshot))
    return Replayed(
        snapshot=snapshot,
        cubin=image,
        same_addresses=said["same_addresses"],
        nbytes=said["bytes"],
        changed=said["changed"],
        wrong=said["wrong"],
        where=said["where"],
        unstable=said["unstable"],
        atomics=_atomics(image, symbol) if said["unstable"] else {},
        us=tuple(said["us"]),
        attempt=said["attempt"],
    )


def _host_memory(snapshot: Snapshot) -> str | None:
    if not snapshot.host_pointers:
        return None
    return f"{snapshot.host_pointers} of its arguments point into the host's memory, which is not kept."


def _entry(cubin: Path, symbol: str) -> str:
    """Return the name of the kernel to launch: the same as in the snapshot, else the only one there is."""
    fix = "Name a cubin with that kernel, or with one kernel only."
    try:
        names = [
            one.name.removeprefix(_CODE) for one in read_sections(cubin.read_bytes()) if one.name.startswith(_CODE)
        ]
    except (OSError, struct.error, IndexError, ValueError) as error:
        raise SourceError(f"this is no cubin: {error}", cubin, fix=fix) from None
    if symbol in names:
        return symbol
    if len(names) != 1:
        raise SourceError(f"it has no kernel `{symbol}`, and {len(names)} others", cubin, fix=fix)
    return names[0]


def _atomics(cubin: Path, symbol: str) -> dict[str, int]:
    """Return the atomic instructions of a kernel by opcode; none where the machine code cannot be shown."""
    with contextlib.suppress(CannotJudgeError, OSError, struct.error, IndexError, ValueError):
        codes = [code for code in disassemble(cubin.read_bytes()) if code.function == symbol]
        opcodes = (one.opcode for code in codes for one in code.instructions)
        return dict(Counter(opcode for opcode in opcodes if role_of(opcode) is Role.ATOMIC))
    return {}
