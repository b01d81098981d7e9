"""Samples where the warps of a file's kernels wait on the GPU, by line: ncu beside a bare repetition of the launches.

The launches of one case are recorded in a worker and repeated once by a program that knows nothing but the driver
(`runner/workers/replay.py`), which ncu watches: so neither torch nor the user's Python is in its way.
"""

import base64
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp import runner
from kernel_lsp.check.ncu import (
    REFUSED,
    SampledInstruction,
    may_read_counters,
    read_samples,
    sampling_command,
    why_nothing,
)
from kernel_lsp.compiler.cubin import CubinError
from kernel_lsp.compiler.lines import LineTable, Place, read_lines
from kernel_lsp.compiler.symbols import kernel_name
from kernel_lsp.compiler.toolkit import find_tool
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.context import MeasuredBaseline
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.messages.subject import RecordLaunches
from kernel_lsp.runner.pool import Pool
from kernel_lsp.runner.workers.replay import RecordedLaunches
from kernel_lsp.source.kernel import base_name

_REPLAY = Path(runner.__file__).parent / "workers" / "replay.py"
_MOST_INPUT_BYTES = 24 << 20  # a recording holds 64 MiB, of what launches have written too
_RECORD_SECONDS = 60.0
_SECONDS = 60.0  # ncu takes 3 s for a small kernel on an H200, most of it to start

LineKey = tuple[str, int]
"""A path, as the compiler was given it, and a line; `("", 0)` for instructions of no line."""


@dataclass(frozen=True, slots=True)
class KernelSamples:
    """The samples of one kernel, by its name without template arguments.

    Attributes:
        kernel: the name.
        launches: number of those that were sampled.
        lines: for each line, how often warps were seen there, by reason (`check.ncu.REASONS`).
    """

    kernel: str
    launches: int
    lines: dict[LineKey, Counter[str]]


@dataclass(frozen=True, slots=True)
class FileSamples:
    """The samples of a file's kernels on one case.

    Attributes:
        device: name of the GPU.
        case: as a person would write it.
        kernels: in the order of their first launches.
        problem: why there are none; empty otherwise.
    """

    device: str = ""
    case: str = ""
    kernels: tuple[KernelSamples, ...] = ()
    problem: str = ""


async def sample_file(pool: Pool, target: Target, settings: Settings, gpu: Gpu) -> FileSamples:
    """Return the samples of the kernels that a file's workload launches on its largest case that can be recorded.

    The GPU is held as for timing, for a few seconds.
    """
    ncu = find_tool("ncu")
    if ncu is None:
        return FileSamples(problem="ncu is not installed; it comes with the CUDA toolkit (package cuda-nsight-compute)")
    if not may_read_counters():
        return FileSamples(problem=REFUSED)
    session = Session(pool, target, settings, gpu)
    try:
        await session.open()
        measured = session.measured
        if measured is None:
            return FileSamples(problem=session.unmeasured)
        return await _sampled(session, measured, ncu, gpu)
    except RUN_ERRORS as error:
        return FileSamples(problem=str(error))
    finally:
        await session.close()


async def _sampled(session: Session, measured: MeasuredBaseline, ncu: Path, gpu: Gpu) -> FileSamples:
    harness = measured.harness
    subject = await harness.enter(measured.baseline.candidate, measured.baseline.built)
    try:
        draw = _largest(measured.profile.draws)
        await harness.fill(subject, draw)
        launches = await subject.ask(RecordLaunches(buffers=(draw.buffer,)), deadline=_RECORD_SECONDS)
        if not launches.file:
            return FileSamples(problem=f"its launches cannot be recorded: {launches.reason}")
        await harness.settle()
        async with session.timer():
            command = sampling_command(ncu, [sys.executable, "-I", str(_REPLAY), launches.file])
            status, said = await (await session.pool.program(command)).end(deadline=_SECONDS)
        sampled = read_samples(said)
        if status is None:
            return FileSamples(problem=f"ncu did not finish within {_SECONDS:.0f} s")
        if not any(sampled):
            return FileSamples(problem=why_nothing(said))
        kernels = kernels_of(Path(launches.file), sampled, session.target.source.path)
        return FileSamples(gpu.name, harness.cases[draw.case], kernels)
    finally:
        harness.leave_behind(harness.leave(subject))


def _largest(draws: Sequence[Draw]) -> Draw:
    """Return the plain inputs of the largest case that can be recorded, else of the smallest."""
    plain = sorted((draw for draw in draws if draw.is_plain), key=lambda draw: draw.input_bytes)
    fitting = [draw for draw in plain if draw.input_bytes <= _MOST_INPUT_BYTES]
    return fitting[-1] if fitting else plain[0]


def kernels_of(
    recorded: Path, sampled: Sequence[Sequence[SampledInstruction]], path: Path
) -> tuple[KernelSamples, ...]:
    """Return the samples of each kernel by line: those of `path` where code comes from there, else the innermost."""
    content: RecordedLaunches = json.loads(recorded.read_text(encoding="utf-8"))
    tables = [_line_tables(base64.b64decode(image)) for image in content["images"]]
    lines: dict[str, dict[LineKey, Counter[str]]] = {}
    launches: Counter[str] = Counter()
    for launch, instructions in zip(content["launches"], sampled, strict=False):
        name = base_name(kernel_name(launch["entry"]))
        launches[name] += 1
        table = tables[launch["image"]].get(launch["entry"], LineTable((), ()))
        found = lines.setdefault(name, {})
        for one in instructions:
            if one.stalls:
                found.setdefault(_key(table.at(one.offset), path), Counter()).update(one.stalls)
    return tuple(KernelSamples(name, launches[name], found) for name, found in lines.items())


def _line_tables(image: bytes) -> dict[str, LineTable]:
    try:
        return read_lines(image)
    except CubinError:
        return {}


def _key(frames: Sequence[Place], path: Path) -> LineKey:
    own = path.resolve()
    for place in frames:
        if Path(place.path).resolve() == own:
            return str(path), place.line
    return (frames[0].path, frames[0].line) if frames else ("", 0)
