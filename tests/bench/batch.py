"""Several measurements in one go: chains of programs side by side, each chain on GPUs of its own, until a common end.

    python -m tests.bench.batch --out measured --seconds 560 \\
        'lsp_session --record; exploits --rounds 1 --record' '2: aa --resume --record' 'pytest -m gpu tests/gpu'

For GPUs that are lent by the hour. A chain that begins with a number and a colon has so many of them.
`measured/results` begins with the raw rows that are kept here, so that studies can be taken up again, and gains what
programs record; `measured/*.log` is what they print. What has not ended in time is interrupted, upon which studies keep
what they have.
"""

import argparse
import asyncio
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.device.nvml import find_gpus
from tests.bench.record import RESULTS, RESULTS_VARIABLE

_GRACE_SECONDS = 15.0  # from the interrupt to the end


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Attributes:
        program: its command line.
        seconds: it ran; 0 if its turn never came.
        status: its exit status, negative for a signal; None if its turn never came.
    """

    program: str
    seconds: float
    status: int | None


@dataclass(frozen=True, slots=True)
class Chain:
    """Programs that run one after the other, on as many GPUs."""

    programs: Sequence[str]
    gpus: int = 1


def read_chain(text: str) -> Chain:
    """Return the chain that an argument of the command line asks for."""
    found = re.fullmatch(r"(?:(\d+):)?(.*)", text, re.DOTALL)
    assert found is not None, "matches every text"
    programs = [program.strip() for program in found[2].split(";")]
    return Chain(programs, int(found[1] or 1))


def places(chains: Sequence[Chain], gpus: Sequence[str]) -> list[list[str]]:
    """Return each chain's GPUs, in turn; those that come when all are taken share."""
    numbers = itertools.count()
    return [[gpus[next(numbers) % len(gpus)] for _ in range(chain.gpus)] if gpus else [] for chain in chains]


async def run_all(chains: Sequence[Chain], out: Path, seconds: float) -> list[Ended]:
    """Run chains side by side, and the programs of each one after the other."""
    results = out / "results"
    results.mkdir(parents=True, exist_ok=True)
    for rows in RESULTS.glob("*.jsonl"):
        if not (results / rows.name).exists():
            shutil.copy(rows, results)
    placed = places(chains, [gpu.uuid for gpu in find_gpus()])
    end = time.monotonic() + seconds

    async def run_chain(number: int, chain: Chain) -> list[Ended]:
        environment = os.environ | {RESULTS_VARIABLE: str(results), "PYTHONUNBUFFERED": "1"}
        if placed[number]:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(placed[number])
        return [
            await _run(program, environment, out / f"{number}-{place}-{shlex.split(program)[0]}.log", end)
            for place, program in enumerate(chain.programs)
        ]

    ended = await asyncio.gather(*(run_chain(number, chain) for number, chain in enumerate(chains)))
    return [one for chain in ended for one in chain]


async def _run(program: str, environment: dict[str, str], log: Path, end: float) -> Ended:
    start = time.monotonic()
    if start >= end:
        return Ended(program, 0.0, None)
    name, *arguments = shlex.split(program)
    module = name if name == "pytest" else f"tests.bench.{name}"
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    for patience, sign in ((end - start, signal.SIGINT), (_GRACE_SECONDS, signal.SIGKILL)):
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, sign)
    return Ended(program, time.monotonic() - start, await process.wait())


def main() -> None:
    """Run the chains that are asked for and say how each program ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chains", nargs="+", help="programs of this folder, or pytest, with a semicolon between them")
    parser.add_argument("--out", type=Path, required=True, help="folder for results and logs")
    parser.add_argument("--seconds", type=float, required=True, help="until all must have ended")
    options = parser.parse_args()
    ended = asyncio.run(run_all([read_chain(chain) for chain in options.chains], options.out, options.seconds))
    for one in ended:
        print(
            "never began" if one.status is None else f"{one.seconds:6.1f} s, status {one.status}", one.program, sep=": "
        )
    sys.exit(any(one.status != 0 for one in ended))


if __name__ == "__main__":
    main()
