"""Samples where the warps of recorded launches wait, by line: ncu beside their bare repetition."""

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.check.ncu import (
    REFUSED,
    SampledInstruction,
    may_read_counters,
    read_samples,
    sampling_command,
    why_nothing,
)
from kernel_lsp.check.recorded import REPLAY, RecordedCase
from kernel_lsp.compiler.machine_code.cubin import CubinError
from kernel_lsp.compiler.machine_code.lines import LineTable, Place, read_lines
from kernel_lsp.compiler.machine_code.symbols import kernel_name
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.judge.session import Session
from kernel_lsp.runner.workers.replay import RecordedLaunches
from kernel_lsp.source.kernel import base_name

_SECONDS = 60.0  # ncu takes 3 s for a small kernel on an H200, most of it to start

LineKey = tuple[str, int]
"""An absolute path, as the compiler was given it, and a line; `("", 0)` for instructions of no line."""


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


def why_not_sampled() -> str:
    """Return why nothing can be sampled on this machine; empty if it seems possible."""
    if find_tool("ncu") is None:
        return "ncu is not installed; it comes with the CUDA toolkit (package cuda-nsight-compute)"
    return "" if may_read_counters() else REFUSED


async def sample(session: Session, recording: RecordedCase) -> tuple[tuple[KernelSamples, ...], str]:
    """Return the samples of the recorded kernels, in the order of their first launches, or why there are none.

    The GPU is held as for timing, for a few seconds.
    """
    ncu = find_tool("ncu")
    assert ncu is not None, "it was looked for"
    async with session.timer():
        program = await session.pool.program(sampling_command(ncu, [*REPLAY, str(recording.file)]))
        status, said = await program.end(deadline=_SECONDS)
    if status is None:
        return (), f"ncu did not finish within {_SECONDS:.0f} s"
    sampled = read_samples(said)
    if not any(sampled):
        return (), why_nothing(said)
    return samples_by_line(recording.content, sampled, session.target.source.path), ""


def samples_by_line(
    content: RecordedLaunches, sampled: Sequence[Sequence[SampledInstruction]], path: Path
) -> tuple[KernelSamples, ...]:
    """Return the samples of each kernel by line: those of `path` where code comes from there, else the innermost."""
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
            return str(path.absolute()), place.line
    return (frames[0].path, frames[0].line) if frames else ("", 0)
