"""Runs a user's program with a variant of a kernel's file in its place, and compares some calls with the original's."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.capture.run import run_program
from kernel_lsp.capture.shadow_record import ShadowProcess, read_shadows
from kernel_lsp.errors import SourceError
from kernel_lsp.runner.programs import read_unable
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import SUFFIX, read_capture

EVERY = 100
"""Of so many calls of a function one is done by both."""


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """A text to run in place of a kernel's file.

    Attributes:
        kernel: the file.
        text: the other text.
        name: what the user calls it: the path of its file, or the id of its evidence.
        path: its file; None where it has none.
    """

    kernel: Path
    text: str
    name: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A program that was run with a variant.

    Attributes:
        code: its exit code; minus the signal's number where one ended it.
        variant: what it ran with.
        processes: the records of its processes that imported the kernel's file.
        emulated: True if it was to run on the emulator.
        unable: why processes could not, though they were to.
    """

    code: int
    variant: KernelVariant
    processes: tuple[ShadowProcess, ...]
    emulated: bool = False
    unable: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        """Return True if the variant computed something else, failed, or could not be imported."""
        return any(
            one.why or any(function.wrong or function.failed for function in one.functions) for one in self.processes
        )

    @property
    def compared(self) -> int:
        """Return the number of calls that were done by both."""
        return sum(function.compared for one in self.processes for function in one.functions)


def shadow_program(
    command: Sequence[str],
    variant: KernelVariant,
    *,
    every: int = EVERY,
    step: str = "",
    emulate: str = "",
    rank: int = 0,
) -> Shadowed:
    """Run a program to its end, in our terminal, with a variant of one of its files.

    Args:
        command: the program and its arguments.
        variant: what it is to run with.
        every: of so many calls of a function one is done by both.
        step: name of a function whose calls are the program's steps; empty to find them by torch's optimizers, where
            there is a GPU; `none` for no steps.
        emulate, rank: see `capture_program`.

    Raises:
        SourceError: the program cannot be started, or the kernel's file is the program itself or no Python module.
    """
    kernel = variant.kernel.resolve()
    if kernel.suffix != ".py":
        fix = "A kernel in CUDA C++ is built by what loads it: let the program load the variant's file."
        raise SourceError("only a Python module can be replaced in a program", variant.kernel, fix=fix)
    if any(Path(word).resolve() == kernel for word in command if word.endswith(".py")):
        fix = "Put the kernel into a module of its own, which the program imports."
        raise SourceError("a variant cannot take the place of the program itself", variant.kernel, fix=fix)
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-shadow-") as folder:
        scratch = Path(folder)
        path = variant.path
        if path is None:
            path = scratch / variant.kernel.name
            path.write_text(variant.text, encoding="utf-8")
        more = {
            "KERNEL_LSP_SHADOW_FILE": str(kernel),
            "KERNEL_LSP_SHADOW_VARIANT": str(path.resolve()),
            "KERNEL_LSP_SHADOW_EVERY": str(every),
            "KERNEL_LSP_SHADOW_STEP": step,
            "KERNEL_LSP_SHADOW_RULE": rule(),
        }
        code = run_program(command, scratch, more, emulate=emulate, rank=rank)
        return Shadowed(code, variant, read_shadows(scratch), bool(emulate), read_unable(scratch))


def rule() -> str:
    """Return the tables of the judge's `table_bounds`, for the process that compares."""
    return json.dumps(
        {
            "tolerances": dict(policy.TABLE_TOLERANCES),
            "other": policy.OTHER_TOLERANCE,
            "floor": policy.FLOOR_MAX_UNITS,
        }
    )


def variant_of(path: Path, kernel: Path | None, captures: Path) -> KernelVariant:
    """Return the variant in a file.

    Args:
        path: its file.
        kernel: the file that it is a version of; None for the one that the captures tell.
        captures: folder of captures. The captured file whose kernels the variant has is meant.

    Raises:
        SourceError: a file cannot be read, or it is not known what the variant is a version of.
    """
    source = read_source(path)
    kernel = read_source(kernel).path if kernel is not None else _captured(source, captures)
    if kernel.resolve() == path.resolve():
        raise SourceError("the variant is the kernel's file itself", path, fix="Name the original with --of FILE.")
    return KernelVariant(kernel, source.text, str(path), path)


def _captured(source: SourceFile, captures: Path) -> Path:
    found: dict[Path, None] = {}
    for path in sorted(captures.glob(f"*{SUFFIX}")):
        capture = read_capture(read_source(path).text, path)
        other = Path(capture.kernel) != source.path.resolve()
        if other and capture.kernels and all(f"def {name}(" in source.text for name in capture.kernels):
            found[Path(capture.kernel)] = None
    if len(found) == 1:
        return next(iter(found))
    several = ", ".join(str(path) for path in found)
    why = f"several captured files have its kernels: {several}" if found else "no captured file has its kernels"
    message = f"it is not known which file this is a version of; {why}"
    raise SourceError(message, source.path, fix="Name that file with --of FILE.")
