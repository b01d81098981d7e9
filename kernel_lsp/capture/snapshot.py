"""Reads and keeps snapshots: folders with cubin, arguments and memory of one launch, as `native/` writes them."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.compiler.machine_code.symbols import kernel_name
from kernel_lsp.errors import SourceError

SNAPSHOT = ".snapshot"
"""End of the name of a snapshot's folder."""
_SIGN = "kernel-lsp-launch 1"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A launch that was kept.

    Attributes:
        folder: its folder.
        symbol: the kernel's name in the machine code.
        grid: number of blocks in x, y, z.
        block: number of threads in x, y, z.
        memory: address and bytes of each allocation that its arguments lead to.
        host_pointers: number of arguments that point into the host's memory, which is not kept.
        shared: bytes of dynamic shared memory.
        parameters: offset and bytes of each parameter in `arguments`.
        arguments: the arguments, as the kernel got them.
    """

    folder: Path
    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    memory: tuple[tuple[int, int], ...]
    host_pointers: int = 0
    shared: int = 0
    parameters: tuple[tuple[int, int], ...] = ()
    arguments: bytes = b""

    @property
    def name(self) -> str:
        """Return the kernel's name as in C++."""
        return kernel_name(self.symbol)

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that are kept."""
        return sum(size for _, size in self.memory)

    @property
    def cubin(self) -> Path:
        """Return the file with its machine code."""
        return self.folder / "cubin"


def read_snapshot(folder: Path) -> Snapshot:
    """Return the snapshot in a folder.

    Raises:
        SourceError: there is none.
    """
    fix = "`kernel-lsp capture --snapshot KERNEL -- COMMAND` makes one, a folder whose name ends in .snapshot."
    try:
        lines = (folder / "launch").read_text(encoding="utf-8").splitlines()
        if lines[:1] != [_SIGN]:
            raise SourceError("this is no snapshot of this version", folder, fix=fix)
        rows = [line.split() for line in lines[1:]]
        symbol = next(row[1] for row in rows if row[0] == "symbol")
        grid, block = (tuple(map(int, next(row for row in rows if row[0] == key)[1:])) for key in ("grid", "block"))
        memory, parameters = (
            tuple((int(row[1]), int(row[2])) for row in rows if row[0] == key) for key in ("memory", "parameter")
        )
        hosts = sum(row[0] == "host" for row in rows)
        shared = int(next(row for row in rows if row[0] == "shared")[1])
        arguments = next(row[1] for row in rows if row[0] == "arguments").removeprefix("-")
        given = bytes.fromhex(arguments)
    except OSError as error:
        raise SourceError(f"there is no snapshot here: {error.strerror}", folder, fix=fix) from None
    except (StopIteration, IndexError, ValueError):
        raise SourceError("this snapshot is damaged", folder, fix=fix) from None
    return Snapshot(folder, symbol, grid, block, memory, hosts, shared, parameters, given)


def keep_snapshots(scratch: Path, folder: Path) -> Iterator[Snapshot]:
    """Move the snapshots that a program's processes wrote to `scratch` into `folder`, and yield them there.

    One of a kernel replaces the one before. Of several processes that launched the same kernel the last counts.
    """
    for made in sorted(scratch.glob(f"*{SNAPSHOT}")):
        symbol = read_snapshot(made).symbol
        name = re.sub(r"\W+", "_", kernel_name(symbol).partition("<")[0].rpartition("::")[2])
        kept = folder / f"{name}.{hashlib.sha256(symbol.encode()).hexdigest()[:8]}{SNAPSHOT}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.move(made, kept)
        yield read_snapshot(kept)
