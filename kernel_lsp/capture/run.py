"""Starts a user's program with the recorder in it, and stores the record as captures."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_lsp.capture.alone import NoWorkloadError, capture_alone
from kernel_lsp.capture.device_level import ChosenLaunch, DeviceLevel, device_level
from kernel_lsp.capture.program_record import ProgramRecord, read_seen
from kernel_lsp.capture.snapshot import Snapshot, keep_snapshots
from kernel_lsp.errors import CannotJudgeError, SourceError
from kernel_lsp.runner.programs import EMULATE, EmulatedProcess, read_processes, read_unable
from kernel_lsp.workload.capture import Capture, capture_text

_INJECT = Path(__file__).parent / "inject"
_IGNORE = "*\n"
_STANDARD_ERROR = 2
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True, slots=True)
class Captured:
    """A program that was run and recorded.

    Attributes:
        code: its exit code; minus the signal's number where one ended it.
        seen: the record.
        written: the files of its captures, in order.
        emulated: the processes that ran on the emulator.
        unable: why other processes could not, though they were to.
        untimed: why GPU time was not recorded, though the machine has a GPU; empty if it was.
        snapshots: the launches whose memory was kept.
        unmade: why no workload was made of a kept launch, by its kernel's name.
        in_pieces: True if there are snapshots, and torch was told to map its memory in pieces, which they may lack.
    """

    code: int
    seen: ProgramRecord
    written: tuple[Path, ...]
    emulated: tuple[EmulatedProcess, ...] = ()
    unable: tuple[str, ...] = ()
    untimed: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    unmade: Mapping[str, str] = field(default_factory=dict[str, str])
    in_pieces: bool = False


def capture_program(
    command: Sequence[str],
    folder: Path,
    *,
    kernels: Sequence[str] = (),
    emulate: str = "",
    rank: int | None = 0,
    aside: bool = False,
    cache: Path | None = None,
    snapshot: ChosenLaunch | None = None,
    after: int = 0,
    window: float = 0.0,
) -> Captured:
    """Run a program to its end, in our terminal, and write a capture for each recorded function.

    Args:
        command: the program and its arguments.
        folder: receives the captures; made if missing.
        kernels: parts of names; for other kernels only launches are counted.
        rank: of the processes that a launcher such as torchrun starts, the one that is recorded; None for all of them.
        emulate: let the program's Python processes see the emulator as a GPU of this name; empty not to. A program
            named without its folder is first looked for beside this Python, in which the emulator is installed.
        aside: send the program's standard output to our standard error, where ours is for results.
        cache: folder for the library that records GPU time; None to record none.
        snapshot: the launch whose memory is kept, beside its GPU time.
        after: number of launches, in each process, before recording begins.
        window: seconds from then on after which recording ends, and the program goes on; 0 to record its whole run.

    Raises:
        SourceError: the program cannot be started, or the folder cannot be written to.
        CannotJudgeError: a snapshot is asked for, and none can be made here; the program is not run.
    """
    _prepare(folder)
    level = DeviceLevel() if emulate or cache is None else device_level(os.environ, cache, snapshot)
    if snapshot is not None and not level.environment:
        why = level.why or ("the emulator is its GPU" if emulate else "this machine has no NVIDIA driver")
        raise CannotJudgeError(f"no launch of the program can be kept: {why}", fix="Run it without --snapshot.")
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-capture-") as scratch:
        more = {"KERNEL_LSP_CAPTURE_KERNELS": "\n".join(kernels), **level.environment}
        more |= {"KERNEL_LSP_CAPTURE_AFTER": str(after), "KERNEL_LSP_CAPTURE_WINDOW": str(window)}
        more |= {"KERNEL_LSP_CAPTURE_EVENTS": "1"} if level.why else {}
        code = run_program(command, Path(scratch), more, emulate=emulate, rank=rank, aside=aside)
        seen = read_seen(Path(scratch))
        emulated, unable = read_processes(Path(scratch)), read_unable(Path(scratch))
        snapshots = tuple(keep_snapshots(Path(scratch), folder))
        seen, unmade = _with_alone(seen, snapshots, program_name(command), Path(scratch))
    written = tuple(_write(capture, folder) for capture in seen.captures)
    in_pieces = bool(snapshots) and any(_EXPANDABLE in os.environ.get(name, "") for name in _ALLOCATOR)
    return Captured(code, seen, written, emulated, unable, _untimed(level, seen), snapshots, unmade, in_pieces)


def _with_alone(
    seen: ProgramRecord, snapshots: Sequence[Snapshot], program: str, records: Path
) -> tuple[ProgramRecord, dict[str, str]]:
    """Return the record with captures of kept launches that no captured function made, and why others have none."""
    unmade = dict[str, str]()
    for snapshot in snapshots:
        if any(one.symbol == snapshot.symbol for made in seen.captures for one in seen.on_device.kernels_of(made)):
            continue
        try:
            made = capture_alone(snapshot, program, records)
        except NoWorkloadError as error:
            unmade[snapshot.name] = error.message
        else:
            seen = replace(seen, captures=(*seen.captures, made))
    return seen, unmade


def _untimed(level: DeviceLevel, seen: ProgramRecord) -> str:
    """Return why GPU time was not recorded; empty if it was, or if the program used no GPU."""
    times = seen.on_device
    if not level.environment or (times.kernels and not times.sampled):
        return level.why
    if times.processes or not seen.device:
        return "; ".join(times.why)
    return "CUDA's driver did not load the recorder, as under another profiler"


def run_program(
    command: Sequence[str],
    scratch: Path,
    more: Mapping[str, str],
    *,
    emulate: str = "",
    rank: int | None = 0,
    aside: bool = False,
) -> int:
    """Run a program to its end with ours in its Python processes; return its exit code, see `Captured`.

    Args:
        command: the program and its arguments.
        scratch: receives the records of its processes.
        more: of its environment, what says what is to be done there.
        emulate, rank, aside: see `capture_program`.

    Raises:
        SourceError: the program cannot be started.
    """
    environment = {**recording(os.environ, scratch, rank), **more}
    return _run(command, environment | _emulated(os.environ, emulate) if emulate else environment, aside=aside)


def program_name(command: Sequence[str]) -> str:
    """Return a command's name without its arguments, which may be confidential."""
    named = next((Path(word).name for word in command if word.endswith(".py")), Path(command[0]).name)
    return shlex.quote(named)


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == "captures" and folder.parent.name == ".kernel-lsp":
            (folder / ".gitignore").write_text(_IGNORE, encoding="utf-8")
    except OSError as error:
        fix = "Name another folder with -o."
        raise SourceError(f"captures cannot be written here: {error.strerror}", folder, fix=fix) from None


def _write(capture: Capture, folder: Path) -> Path:
    path = folder / capture.file_name
    partial = path.with_suffix(".partial")
    partial.write_text(capture_text(capture), encoding="utf-8")
    partial.replace(path)  # a reader finds the old one or the new one
    return path


def recording(own: Mapping[str, str], scratch: Path, rank: int | None = 0) -> dict[str, str]:
    """Return the environment of a recorded program: the folder of what is ours comes first in Python's search path.

    Args:
        own: the environment that it would have.
        scratch: receives the records of its processes.
        rank: see `capture_program`.
    """
    before = own.get("PYTHONPATH", "")
    return {
        **own,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_INJECT), before))),
        "KERNEL_LSP_CAPTURE": str(scratch),
        "KERNEL_LSP_CAPTURE_RANK": "all" if rank is None else str(rank),
    }


def _emulated(own: Mapping[str, str], gpu: str) -> dict[str, str]:
    """Return what more the environment of a program says that is to run on the emulator, as a GPU of this name."""
    beside = str(Path(sys.executable).parent)
    return {
        EMULATE: gpu,
        "PATH": os.pathsep.join((beside, own.get("PATH", os.defpath))),
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",  # what it compiles would be for a GPU
    }


def _run(command: Sequence[str], environment: Mapping[str, str], *, aside: bool) -> int:
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise SourceError(f"there is no program `{command[0]}`", fix="Write it as in a shell, after `--`.")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program: what it did until then counts
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            env=dict(environment),
            stdout=_STANDARD_ERROR if aside else None,
            preexec_fn=lambda: _give_back(before),
        )
        return process.wait()
    except OSError as error:
        fix = "Write it as in a shell, after `--`."
        raise SourceError(f"the program cannot be started: {error.strerror}", Path(program), fix=fix) from None
    finally:
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)


def _give_back(before: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN if before is signal.SIG_IGN else signal.SIG_DFL)
