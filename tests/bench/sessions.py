"""Sessions of the judge for studies, and what a study keeps of a verdict."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp import policy
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import BuildSettings, JudgeSettings, PathSettings, RunnerSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.timing import CaseTiming
from kernel_lsp.judge.verdict import CheckStatus, Verdict
from kernel_lsp.runner.pool import Flavour, Pool

_COMPILERS = 4  # of each GPU's process: several share the machine


@asynccontextmanager
async def warm_pool() -> AsyncGenerator[Pool]:
    """A pool for one session after another, whose zygotes import only once."""
    gpu = next(iter(find_gpus()), None)
    async with Pool(gpu.uuid if gpu else None) as pool:
        pool.preload(Flavour.BUILD, Flavour.GPU if gpu else Flavour.EMULATE)
        yield pool


@asynccontextmanager
async def session_of(pool: Pool, path: Path, settings: Settings) -> AsyncGenerator[Session]:
    """A session of one kernel file with its baseline measured."""
    session = Session(pool, make_target(path), settings, next(iter(find_gpus()), None))
    try:
        await session.open()
        yield session
    finally:
        await session.close()


def settings_below(
    folder: Path, judge: JudgeSettings | None = None, *, project: Path | None = None, **runner: Any
) -> Settings:
    """Settings that keep all files below `folder`, but for the GPU's lock, which is everybody's.

    Code is built as the `pyproject.toml` above `project` says, if one is given.
    """
    paths = PathSettings(data=folder / "data", cache=folder / "cache")
    found = load_settings(project, environment={}, user_file=folder / "none") if project else None
    return Settings(
        paths=paths,
        judge=judge or JudgeSettings(),
        build=found[0].build if found else BuildSettings(),
        runner=RunnerSettings(compile_workers=_COMPILERS, **runner),
    )


@asynccontextmanager
async def scratch_folder() -> AsyncGenerator[Path]:
    """A folder for the files of a study."""
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        yield Path(folder)


def kept(verdict: Verdict) -> dict[str, Any]:
    """What a study keeps of a verdict: JSON values. Times are of the first case."""
    case = verdict.cases[0] if verdict.cases else None
    return {
        "verdict": verdict.verdict.value,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "speedup": verdict.speedup,
        "interval": verdict.interval,
        "mode": case.mode if case else None,
        "us": case.baseline_us if case else None,
        "candidate_us": case.candidate_us if case else None,
        "blocks": len(case.blocks) if case else 0,
        "logs": [round(log, 6) for log in case.blocks] if case else [],
        "memories": case.memories if case else 0,
        "confirmed": bool(case and case.confirmation_blocks),
        "gpu_ms": round(gpu_ms(verdict), 2),
        "shared": bool(verdict.evidence.device and verdict.evidence.device.shared),
        "sm_clock_mhz": verdict.evidence.device.sm_clock_mhz if verdict.evidence.device else None,
        "discarded": verdict.evidence.discarded_blocks,
        "steady_load": load.model_dump(mode="json") if (load := verdict.evidence.sustained) else None,
        "skipped": {
            check.name: check.detail for check in verdict.evidence.checks if check.status == CheckStatus.SKIPPED
        },
        "seconds": {stage: round(seconds, 4) for stage, seconds in verdict.seconds.items()},
        "says": f"{verdict.verdict.value} at {verdict.stage.value}, {verdict.seconds['total']:.2f} s; {verdict.reason}",
    }


def gpu_ms(verdict: Verdict) -> float:
    """GPU milliseconds of all blocks of a verdict, discarded ones and flushes of the cache too; warm-up left out."""
    return sum(_case_ms(case, verdict.evidence.discarded_blocks) for case in verdict.cases)


def _case_ms(case: CaseTiming, discarded: int) -> float:
    flushes = policy.FLUSH_US if case.mode == "cold" else 0.0
    segments = 2 * (len(case.blocks) + discarded)  # of each side
    return segments * case.launches * (case.baseline_us + case.candidate_us + 2 * flushes) / 1000
