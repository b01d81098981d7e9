"""Where the seconds of a verdict go, from the call of the command to its end.  `python -m tests.bench.critical_path`.

Of each kernel two commands are run, in a home of their own with nothing warm or built: `kernel-lsp judge` of one
candidate (`cold`), then of two more (`second call`, with what the first left warm; and `warm`, the second candidate of
that session). The traces of their verdicts and the clock of this program, which is the same, give the critical path:
from the end backwards always the request to a worker that ended last before, and between requests the command itself.
The GPU's share of a request is what the worker waited for it.

Kernels are a bare CUDA file, a Triton file and a torch extension of the examples, and with --public FOLDER those that
`python -m tests.wild.fetch FOLDER` has put there. Candidates are the first rewrite that applies, each time with another
comment; of a public kernel with several versions the second one. Without a GPU kernels run on the emulator: that shows
that the program works, and nothing of a GPU.

Options: --only WORD in a kernel's name (again for more); --top (12) steps of each path; --record.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.device.choice import target_device
from kernel_lsp.device.device import Device
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.spans import TracePiece, VerdictTrace, union, unpack
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.rewrites import find_rewrites
from tests.bench.judge_speed import FILES, kernel_file
from tests.bench.record import record
from tests.wild.catalogue import PublicKernel, kernels_in

NAME = "critical_path"
COMMAND = "the command itself"
_BACKGROUND = ("Ready",)  # a process is made ready for later while others work
_MOST_SECONDS = 1800


@dataclass(frozen=True)
class Pair:
    """A kernel to judge: its file with a workload beside it, and the texts of kernel and workload of a candidate."""

    name: str
    baseline: Path
    kernel: str
    launch: str | None


@dataclass(frozen=True)
class Step:
    """One stretch of a critical path: the stage of the judgement, who worked, at what, and for how many us."""

    stage: str
    who: str
    what: str
    us: int
    gpu_us: int = 0


def critical_path(trace: VerdictTrace) -> list[Step]:
    """Return the steps from the beginning of a trace to its end; their times add up to the whole."""
    requests = sorted((p for p in _requests(trace) if p.name not in _BACKGROUND), key=lambda piece: piece.end)
    path: list[Step] = []
    at = trace.us
    while requests:
        piece = requests.pop()
        if piece.us == 0 or piece.end > at:  # it went on while something else was waited for
            continue
        path += _of_the_parent(trace, piece.end, at)
        busy = sum(min(end, piece.end) - max(start, piece.start) for start, end in _gpu(trace, piece))
        role = trace.processes[piece.process].role
        path.append(Step(_stage(trace, piece.start), role, piece.name, piece.us, busy))
        at = piece.start
    return [*path, *_of_the_parent(trace, 0, at)][::-1]


def _requests(trace: VerdictTrace) -> Iterator[TracePiece]:
    """Yield the outermost pieces of each worker."""
    ends: dict[int, int] = {}
    for piece in trace.pieces:
        if piece.process > 0 and piece.start >= ends.get(piece.process, 0):
            ends[piece.process] = piece.end
            yield piece


def _gpu(trace: VerdictTrace, outer: TracePiece) -> Sequence[tuple[int, int]]:
    inner = (p for p in trace.pieces if p.gpu and p.process == outer.process)
    return union((p.start, p.end) for p in inner if p.start < outer.end and outer.start < p.end)


def _of_the_parent(trace: VerdictTrace, start: int, end: int) -> list[Step]:
    """Return the parent's own time between two requests, as the innermost of its pieces around the middle of that."""
    if start >= end:
        return []
    inner = _stage(trace, (start + end) // 2)
    return [Step(inner, COMMAND, "", end - start)]


def _stage(trace: VerdictTrace, at: int) -> str:
    """Return the name of the parent's innermost piece around a time."""
    around = [p for p in trace.pieces if p.process == 0 and p.start <= at < p.end]
    return min(around, key=lambda piece: piece.us).name if around else "between stages"


def added_up(path: Iterable[Step]) -> list[Step]:
    """Return the steps with the times of equal ones added, longest first."""
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for step in path:
        us, gpu_us = sums.get((step.stage, step.who, step.what), (0, 0))
        sums[step.stage, step.who, step.what] = us + step.us, gpu_us + step.gpu_us
    return sorted((Step(*key, *spent) for key, spent in sums.items()), key=lambda step: -step.us)


def pairs(folder: Path, public: Path | None, only: Sequence[str]) -> Iterator[Pair]:
    """Yield the kernels to judge, copied below a folder; those that no candidate is known for are left out."""
    gpu = next(iter(find_gpus()), None)
    device = target_device(gpu, ())
    for name in (name for name in FILES if _wanted(name, only)):
        yield from _rewritten(name, kernel_file(folder, name), device)
    found = kernels_in(public) if public is not None else ()
    for kernel, paths in ((kernel, paths) for kernel, paths in found if _wanted(kernel.name, only)):
        shutil.copy(kernel.workload, paths[0].with_name(f"{paths[0].stem}_workload.py"))
        if len(kernel.versions) > 1:
            yield _second_version(kernel, paths)
        else:
            yield from _rewritten(kernel.name, paths[0], device)


def _rewritten(name: str, path: Path, device: Device) -> Iterator[Pair]:
    """Yield a file with the first rewrite that applies to one of its kernels."""
    target = make_target(path)
    found = (one for kernel in target.kernels for one in find_rewrites(target.baseline, kernel, device))
    for candidate in itertools.islice(found, 1):
        yield Pair(name, path, candidate.kernel.text, candidate.launch.text if candidate.launch else None)


def _second_version(kernel: PublicKernel, paths: Sequence[Path]) -> Pair:
    second = kernel.versions[1]
    file = paths[1] if len(paths) > 1 else paths[0]
    return Pair(kernel.name, paths[0], file.read_text(), kernel.launch_text(second))


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(word in name for word in only)


class Commands:
    """Runs `kernel-lsp judge` for one kernel in a home of its own."""

    def __init__(self, pair: Pair, home: Path) -> None:
        self._pair, self._home, self._numbers = pair, home, itertools.count(1)
        (home / "run").mkdir(parents=True, mode=0o700)

    def judge(self, *labels: str) -> list[dict[str, Any]]:
        """Judge as many new candidates in one command; return the figures of each, named by a label."""
        candidates = [self._candidate() for _ in labels]
        folders = {f"XDG_{name.upper()}_HOME": str(self._home / name) for name in ("cache", "config", "data")}
        environment = os.environ | folders | {"XDG_RUNTIME_DIR": str(self._home / "run")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it each call compiles the command's own modules
        program = shutil.which("kernel-lsp") or Path(sys.executable).with_name("kernel-lsp")
        command = [program, "judge", "--json", self._pair.baseline, *candidates]
        began = time.monotonic_ns()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS)
        ended = time.monotonic_ns()
        if not done.stdout:
            raise SystemExit(f"{self._pair.name} cannot be judged: {done.stderr}")
        document = json.loads(done.stdout)
        judged = document.get("candidates", [{"verdict": document}])
        return [
            figures(self._pair.name, label, Verdict.model_validate(one["verdict"]), began, ended)
            for label, one in zip(labels, judged, strict=True)
        ]

    def _candidate(self) -> Path:
        """Write the candidate to a folder, under a text that was never built before."""
        number, base = next(self._numbers), self._pair.baseline
        folder = self._home / f"candidate-{number}"
        folder.mkdir()
        sign = "#" if base.suffix == ".py" else "//"
        (folder / base.name).write_text(f"{self._pair.kernel}\n{sign} candidate {number}\n")
        if self._pair.launch is not None:
            (folder / f"{base.stem}_workload.py").write_text(self._pair.launch)
        return folder / base.name


def figures(name: str, label: str, verdict: Verdict, began: int, ended: int) -> dict[str, Any]:
    """Return the critical path of a verdict of a command that ran between two times on the monotonic clock."""
    trace = unpack(verdict.evidence.trace)
    assert trace is not None, "a verdict of this commit has a trace"
    steps = added_up(critical_path(trace))
    busy = sum(end - start for start, end in trace.gpu_busy())
    row: dict[str, Any] = {"kernel": name, "call": label, "verdict": verdict.verdict.value}
    if verdict.speedup is not None:
        row |= {"speedup": verdict.speedup, "interval": verdict.interval}
    if label != "warm":
        row["before_s"] = round((trace.began_ns - began) / 1e9, 3)
        row["command_s"] = round((ended - began) / 1e9, 3)
    row |= {"verdict_s": round(trace.us / 1e6, 3), "gpu_busy_s": round(busy / 1e6, 3), "left_out": trace.left_out}
    path = [{"stage": s.stage, "who": s.who, "what": s.what, "s": s.us / 1e6, "gpu_s": s.gpu_us / 1e6} for s in steps]
    return row | {"path": path}


def table(row: dict[str, Any], top: int) -> str:
    """Return a critical path as text, the longest steps first."""
    command = ""
    if "before_s" in row:
        command = f"; the command {row['command_s']:.2f} s, of these {row['before_s']:.2f} s before the trace begins"
    speedup = f" {row['speedup']:.3f}x" if "speedup" in row else ""
    head = f"{row['kernel']}, {row['call']}: {row['verdict']}{speedup} in {row['verdict_s']:.2f} s{command}"
    lines = [f"\n{head}; a process waited for the GPU for {row['gpu_busy_s']:.2f} s"]
    lines += ["| s | of these on the GPU | stage | who | what |", "| ---: | ---: | --- | --- | --- |"]
    lines += [
        f"| {step['s']:.3f} | {step['gpu_s']:.3f} | {step['stage']} | {step['who']} | {step['what']} |"
        for step in row["path"][:top]
    ]
    if rest := row["path"][top:]:
        lines.append(f"| {sum(step['s'] for step in rest):.3f} | | {len(rest)} more | | |")
    return "\n".join(lines)


def main() -> None:
    """Judge, print the paths, and record if asked to."""
    parser = argparse.ArgumentParser(description=NAME)
    parser.add_argument("--public", type=Path, help="where `tests.wild.fetch` has put public kernels")
    parser.add_argument("--only", action="append", default=[], help="kernels with this in their name")
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as folder:
        for number, pair in enumerate(pairs(Path(folder), options.public, options.only)):
            commands = Commands(pair, Path(folder) / f"home-{number}")
            for labels in (("cold",), ("second call", "warm")):
                for row in commands.judge(*labels):
                    rows.append(row)
                    print(table(row, options.top), flush=True)
    if options.record:
        print(record(NAME, {"verdicts": rows}))


if __name__ == "__main__":
    main()
