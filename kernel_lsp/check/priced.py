"""The price of a line: how much of a kernel's time is saved where its accesses, barrier or repetition are left out.

For machines whose GPU counters nobody may read. The kernel's PTX is assembled once for each line without that line's
work (`compiler/ptx/left_out.py`), and all versions are timed in turn on the recorded launch. Prices do not add up: what
hides behind something else costs nothing alone.
"""

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kernel_lsp.check.recorded import REPLAY, RecordedCase
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.machine_code.symbols import kernel_name
from kernel_lsp.compiler.ptx.assembler import assemble
from kernel_lsp.compiler.ptx.left_out import LeftOut, leave_out_each_line
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.session import Session
from kernel_lsp.runner.workers.replay import RecordedLaunches, ReplayedLaunch
from kernel_lsp.source.kernel import base_name

_ROUNDS = 15
_SECONDS = 20.0
_MOST_TRIES = 6  # of a timing, each without the version that broke the last
_BEGUN = re.compile(r"^begun (\d+)$", re.MULTILINE)
_TIMES = re.compile(r"^times (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LinePrice:
    """The price of some work of a line.

    Attributes:
        line: of the file, from 1.
        what: the work that was left out: `loads`, `stores`, `barrier`, `atomics`, `loop`, or several of them.
        share: of the kernel's time that was saved; near 0, or below, where it hides behind something else.
    """

    line: int
    what: str
    share: float


@dataclass(frozen=True, slots=True)
class KernelPrices:
    """The prices of one kernel's lines, by its name without template arguments; `us` is its own time."""

    kernel: str
    us: float
    lines: tuple[LinePrice, ...]


async def price(session: Session, recording: RecordedCase) -> tuple[tuple[KernelPrices, ...], str]:
    """Return the prices of the lines of the recorded kernels, or why there are none.

    Each kernel's first launch is timed. The GPU is held as for timing, for a second or two.
    """
    assert session.baseline_built is not None, "the session is open"
    content, path = recording.content, str(session.target.source.path.absolute())  # as the compiler was given it
    found: list[KernelPrices] = []
    reason = "no kernel of the file has PTX whose lines can be left out"
    for launch in {launch["entry"]: launch for launch in reversed(content["launches"])}.values():
        versions = _versions(session.baseline_built, content, launch, path)
        if versions is None:
            continue
        try:
            cubins = await _assembled([one.ptx for one in versions], session.baseline_built.arch)
        except CannotJudgeError as error:
            return (), error.message
        async with session.timer():
            times = await _timed(session, recording, launch, cubins)
        if 0 not in times:
            reason = "the recorded launch did not run by itself"
            continue
        found.append(_prices(launch, versions, times))
    return tuple(found), "" if found else reason


def _versions(built: Built, content: RecordedLaunches, launch: ReplayedLaunch, path: str) -> list[LeftOut] | None:
    """Return the kernel's PTX as it is, then without each line; None where there is none, or nothing to leave out."""
    cubin = base64.b64decode(content["images"][launch["image"]])
    ptx = next((image.ptx for image in built.images if image.cubin == cubin), None)
    without = leave_out_each_line(ptx, launch["entry"], path) if ptx else ()
    return [LeftOut(0, "", ptx), *without] if ptx and without else None


async def _assembled(texts: Sequence[str], arch: str) -> list[bytes]:
    return list(await asyncio.gather(*(asyncio.to_thread(assemble, text, arch) for text in texts)))


async def _timed(
    session: Session,
    recording: RecordedCase,
    launch: ReplayedLaunch,
    cubins: Sequence[bytes],
) -> Mapping[int, list[float]]:
    """Return the times of the versions that ran, in microseconds round by round; those that break are left out."""
    data, wanted = recording.content["data"], list(range(len(cubins)))
    for _ in range(_MOST_TRIES):
        told = RecordedLaunches(
            images=[base64.b64encode(cubins[number]).decode() for number in wanted],
            data=data,
            launches=[{**launch, "image": index} for index in range(len(wanted))],
        )
        file = recording.file.with_name("versions.json")
        file.write_text(json.dumps(told), encoding="utf-8")
        program = await session.pool.program([*REPLAY, str(file), str(_ROUNDS)])
        _, said = await program.end(deadline=_SECONDS)
        if times := _TIMES.search(said):
            return dict(zip(wanted, json.loads(times[1]), strict=True))
        begun = _BEGUN.findall(said)
        if not begun or int(begun[-1]) == 0:
            return {}
        del wanted[int(begun[-1])]
    return {}


def _prices(launch: ReplayedLaunch, versions: Sequence[LeftOut], times: Mapping[int, Sequence[float]]) -> KernelPrices:
    whole = times[0]
    lines = tuple(
        LinePrice(
            versions[number].line,
            versions[number].what,
            1 - median(one / all_of_it for one, all_of_it in zip(each, whole, strict=True)),
        )
        for number, each in times.items()
        if number
    )
    return KernelPrices(base_name(kernel_name(launch["entry"])), median(whole), lines)
