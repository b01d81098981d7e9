"""KernelBench's own harness beside ours: `python -m tests.bench.kernelbench_beside --root DIR`.

DIR is KernelBench's repository, which is fetched for measuring only. Of problems 19 and 36 of level 1, one candidate
each with one kernel given to `load_inline` is judged by both, cold (nothing built yet) and warm (built before), with
five correctness trials and a hundred timed ones. Ours is measured from the candidate's text to its verdict in a session
that is open, with its workers set up: opening it, which measures the problem's model once for all candidates, is told
apart, and so is what comes after a gain was decided: it is measured again and looked at, as theirs is not. A third time
it is judged on plain inputs only, about as often as theirs. The whole set of candidates is judged by both in
`kernelbench_set`.

Options: --limit SECONDS for one of KernelBench's verdicts (default 300), --dry-run to do all but what needs a GPU,
--record.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.suite import ProblemFile, Sample, find_problems, find_samples
from tests.bench.kernelbench_harness import SET, ask_harness
from tests.bench.record import record

ONE_KERNEL = ((1, 19), (1, 36))
_DECIDING = ("parse", "build", "load", "correct", "legitimate", "record", "correct as timed", "time")


async def ours(problem: ProblemFile, sample: Sample, gpu: Gpu | None, folder: Path) -> dict[str, Any]:
    """Our own verdicts on one candidate: cold, then twice in a new session with what was built before."""
    paths = {"paths.cache": folder / "cache", "paths.data": folder / "data"}
    settings, plain = (load_settings(overrides=paths | more)[0] for more in ({}, {"judge.families": ["normal"]}))
    text = sample.path.read_text()
    target = make_target(problem.path)
    rows: dict[str, Any] = {}
    async with Pool(gpu.uuid if gpu else None) as pool:
        for state, chosen in (("cold", settings), ("warm", settings), ("warm, plain inputs", plain)):
            builders = Builders(pool, settings, target_device(gpu, settings.arch))
            begun = time.perf_counter()
            async with open_session(target, chosen, pool, builders) as session:
                opened = time.perf_counter() - begun
                if session.measured is not None:
                    await session.measured.harness.settle()  # an author's next edit finds workers that are set up
                candidate = Candidate(Language.TORCH, SourceFile(sample.path, text), None, state, "user")
                begun = time.perf_counter()
                verdict = await session.judge(candidate)
                judged = time.perf_counter() - begun
            rows[state] = {
                "opening_s": opened,
                "verdict_s": judged,
                "decided_s": sum(verdict.seconds.get(stage, 0.0) for stage in _DECIDING),
                "stages_s": verdict.seconds,
                "built": verdict.evidence.build_way,
            } | _told(verdict)
            builders.close()
    return rows


def _told(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.verdict.value, "speedup": verdict.speedup, "reason": verdict.reason}


def _places(gpus: Sequence[Gpu]) -> list[Gpu | None]:
    """Where one process at a time may judge: on each GPU, or on the CPU alone."""
    return [*gpus] or [None]


async def beside_one_another(root: Path, gpus: Sequence[Gpu], limit: float) -> list[dict[str, Any]]:
    """Both on the one-kernel candidates, cold and warm: ours one after the other, theirs on a GPU each."""
    rows: list[dict[str, Any]] = []
    places = _places(gpus)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(places)) as pool:
        asked: list[Callable[[], dict[str, Any]]] = []
        for turn, (level, number) in enumerate(ONE_KERNEL):
            (problem,) = find_problems(root, level, {number})
            sample = next(s for s in find_samples(SET / "candidates") if (s.level, s.number) == (level, number))
            found = await ours(problem, sample, places[0], Path(folder, str(turn)))
            rows.append({"level": level, "problem": problem.name, "ours": found})
            for state, row in found.items():
                print(
                    f"{problem.name}, ours {state}: {row['decided_s']:.2f} s to a decision, "
                    f"{row['verdict_s']:.2f} s in all, {row['verdict']} ({row['reason']}), built {row['built']}",
                    flush=True,
                )
            at, own = Path(folder, "theirs", str(turn)), places[turn % len(places)]
            do = "judge" if own else "dry"
            asked.append(partial(ask_harness, root, do, problem.path, sample.path, at, limit, own, times=2))
        for row, said in zip(rows, pool.map(lambda ask: ask(), asked), strict=True):
            row["theirs"] = said
            print(f"{row['problem']}, theirs: {said.get('seconds') or said.get('trouble') or said}", flush=True)
    return rows


async def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpus = find_gpus()
    if not gpus and not asked.dry_run:
        raise SystemExit("KernelBench's harness needs a GPU; --dry-run does all but that.")
    figures = {"one_kernel": await beside_one_another(asked.root, gpus, asked.limit)}
    if asked.record:
        print(record("kernelbench_beside", figures))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KernelLspError as error:
        raise SystemExit(str(error)) from None
