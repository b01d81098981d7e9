"""`kernel-lsp capture`: runs a program, and makes workloads from its kernel launches, or runs it with a variant."""

import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.capture.device_level import ChosenLaunch
from kernel_lsp.capture.replay import replay
from kernel_lsp.capture.run import capture_program, program_name
from kernel_lsp.capture.shadow import EVERY, KernelVariant, shadow_program, variant_of
from kernel_lsp.capture.snapshot import SNAPSHOT, Snapshot, read_snapshot
from kernel_lsp.cli.console import err, opened_store, out, say_notices, settings_for
from kernel_lsp.cli.main import CANNOT_JUDGE
from kernel_lsp.compiler.toolchain.emulated import program_gpu
from kernel_lsp.config.units import parse_duration
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.capture import capture_view, captured_view, replay_view, snapshot_text
from kernel_lsp.report.shadow import shadow_view
from kernel_lsp.source.files import read_source, write_new
from kernel_lsp.workload.capture import FOLDER, SUFFIX, Capture, read_capture

DIFFERS = 4
"""Exit code of a shadow run whose variant computed something else, or failed."""
_ACTIONS = ("list", "show", "adopt", "rm", "replay")
_ID = re.compile(r"[0-9a-f]{4,}")

app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_interspersed_args": False})
def capture(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="The program; or `list`, or `show`, `adopt`, `rm`, `replay` FILE."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the captures.")] = FOLDER,
    kernel: Annotated[
        list[str] | None, typer.Option(help="Part of a kernel's name; of all others only launches are counted.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Of several ranks, as torchrun starts them, the one to record.")] = 0,
    merge: Annotated[bool, typer.Option("--merge", help="Of several ranks record all, and sum them.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Record nothing of so many launches at the start.")] = 0,
    window: Annotated[str, typer.Option(metavar="30s|5m", help="Stop recording, not the program, after so long.")] = "",
    emulate: Annotated[bool, typer.Option("--emulate", help="Let the program see the emulator as its GPU.")] = False,
    snapshot: Annotated[
        str | None,
        typer.Option(metavar="KERNEL", help="Keep cubin, arguments and memory of one launch of a kernel of this name."),
    ] = None,
    launch: Annotated[int, typer.Option(min=1, help="Which of its launches --snapshot keeps.")] = 1,
    cubin: Annotated[
        Path | None, typer.Option(help="`replay`: other machine code to launch in place of the kernel's own.")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="VARIANT",
            help="Shadow run: run with this version of a kernel's file in its place, a file or a verdict's id.",
        ),
    ] = None,
    of: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file that VARIANT is a version of; captures may tell.")
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, help="Shadow run: of so many calls of a function one is done by both.")
    ] = EVERY,
    step: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="Shadow run: what the program calls once a step; else torch's optimizers tell; `none`: time none.",
        ),
    ] = "",
) -> None:
    """Run a program and keep what its Triton kernels and torch extensions were given as workloads.

    Ends with the program's exit code. All of its kernels are ranked by their GPU time, whatever they are written in,
    where CUDA's profiling library is.

    `capture list` shows what there is, `capture show FILE` the cases of one, `capture adopt FILE` writes one out as the
    draft of a workload file to own, and `capture rm FILE` deletes it. `capture [--cubin FILE] replay FOLDER` launches a
    snapshot again in a process of its own, compares its memory with what it was after the launch, and times it. Ends
    with 4 if that differs, and with 3 if two replays differ.

    With --with VARIANT nothing is kept: the program runs with the variant, some calls are done by the original too, and
    a difference is named with its call and element. Ends with 4 if there is one, or if the variant fails, and with 3 if
    nothing was compared and the program ended with 0.
    """
    gpu = program_gpu(settings_for().arch) if emulate else ""
    if variant is not None:
        _shadow(command, _variant(variant, of, output), every=every, step=step, emulate=gpu, rank=rank)
        return
    if command[0] in _ACTIONS:
        _act(command[0], *_files(command[1:], cubin), output)
        return
    settings = settings_for()
    captured = capture_program(
        command,
        output,
        kernels=kernel or (),
        emulate=gpu,
        rank=None if merge else rank,
        after=after,
        window=_seconds(window),
        cache=settings.paths.cache,
        snapshot=None if snapshot is None else ChosenLaunch(snapshot, launch),
    )
    err.print(captured_view(captured, program_name(command)))
    raise typer.Exit(captured.code if captured.code >= 0 else 128 - captured.code)


def _seconds(window: str) -> float:
    """Return the seconds of --window; 0 without it.

    Raises:
        ConfigurationError: it is no duration.
    """
    try:
        return parse_duration(window) if window else 0.0
    except ValueError as error:
        raise ConfigurationError(f"--window: {error}", fix="Write it as 30s or 5m.") from None


def _shadow(command: list[str], variant: KernelVariant, *, every: int, step: str, emulate: str, rank: int) -> None:
    """Do a shadow run, show what it found, and pick the exit code.

    Raises:
        typer.Exit: with `DIFFERS`, else with the program's exit code, or 3 for a program in which nothing was compared.
    """
    run = shadow_program(command, variant, every=every, step=step, emulate=emulate, rank=rank)
    err.print(shadow_view(run, program_name(command)))
    if run.wrong:
        raise typer.Exit(DIFFERS)
    if run.code == 0 and not run.compared:
        raise typer.Exit(CANNOT_JUDGE)
    raise typer.Exit(run.code if run.code >= 0 else 128 - run.code)


def _variant(named: str, of: Path | None, captures: Path) -> KernelVariant:
    """Return the variant in a file of this name, else that of the verdict with this id."""
    if Path(named).exists() or not _ID.fullmatch(named):
        return variant_of(Path(named), of, captures)
    with opened_store(settings_for()) as store:
        evidence = Verdict.model_validate(store.find_verdict(store.resolve(named))).evidence
    say_notices(store)
    kernel = read_source(of or Path(evidence.kernel_path)).path
    return KernelVariant(kernel, evidence.sources["candidate"], named)


def _files(words: list[str], cubin: Path | None) -> tuple[list[Path], Path | None]:
    """Return what an action is given, and the cubin that --cubin names, before the action or after its files."""
    paths = [Path(word) for word in words if word != "--cubin"]
    if "--cubin" in words[:-1]:
        cubin = Path(words[words.index("--cubin") + 1])
        paths.remove(cubin)
    return paths, cubin


def _act(action: str, paths: list[Path], cubin: Path | None, folder: Path) -> None:
    if action == "list":
        paths = sorted([*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*{SNAPSHOT}")])
        if not paths:
            raise SourceError("there are no captures", folder, fix="`kernel-lsp capture -- COMMAND` makes some.")
    elif not paths:
        raise SourceError(
            f"`capture {action}` needs the file of a capture", fix="`kernel-lsp capture list` names them."
        )
    for path in paths:
        if action == "replay":
            _replay(path, cubin)
            continue
        if path.name.endswith(SNAPSHOT):
            _act_on(action, read_snapshot(path))
            continue
        text = read_source(path).text
        found = read_capture(text, path)
        if action == "adopt":
            _adopt(found)
        elif action == "rm":
            path.unlink()
        else:
            out.print(capture_view(found, path))


def _act_on(action: str, found: Snapshot) -> None:
    """Do what an action is for a snapshot: it is deleted or shown."""
    if action == "rm":
        shutil.rmtree(found.folder)
    elif action == "adopt":
        fix = "`capture replay` launches it; a workload is made of what a function of Python is given."
        raise SourceError("a snapshot is one launch, and no workload", found.folder, fix=fix)
    else:
        out.print(snapshot_text(found))


def _replay(folder: Path, cubin: Path | None) -> None:
    """Launch a snapshot again and show the comparison.

    Raises:
        typer.Exit: with `DIFFERS`, or 3 if replays differ among themselves.
    """
    settings = settings_for()
    gpu = choose_gpu(settings.gpu)
    done = replay(read_snapshot(folder), settings.paths.cache, cubin=cubin, gpu=gpu.uuid if gpu else "")
    out.print(replay_view(done))
    if done.unstable:
        raise typer.Exit(CANNOT_JUDGE)
    if done.wrong:
        raise typer.Exit(DIFFERS)


def _adopt(found: Capture) -> None:
    file = adopted_workload(found, Path(found.kernel).parent)
    write_new(file.path, file.text)
    err.print(f"Written to {file.path}. Write its `reference`, then remove its first line.")
