"""Builders of one pool that build the same candidate for several architectures at a time."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.building import Builders
from kernel_lsp.runner.pool import Pool
from kernel_lsp.runner.worker import WorkerTimedOut
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import read_source
from kernel_lsp.source.kernel import Language

SOFTMAX = Path(__file__).parents[3] / "examples" / "triton" / "softmax.py"


def test_what_one_forgets_another_still_has(tmp_path: Path):
    settings = load_settings(None, overrides={"paths.cache": str(tmp_path)})[0]
    candidate = Candidate(Language.TRITON, read_source(SOFTMAX), None, "baseline", "baseline")

    async def kept() -> list[bool]:
        async with Pool() as pool:
            both = [Builders(pool, settings, device_named(arch)) for arch in ("sm_80", "sm_90")]
            for builders in both:
                builders.triton_cache(candidate).mkdir(parents=True, exist_ok=True)
            both[0].forget(candidate)
            return [builders.triton_cache(candidate).is_dir() for builders in both]

    assert asyncio.run(kept()) == [False, True]


def test_a_header_that_takes_too_long_to_prepare_keeps_nobody(tmp_path: Path):
    settings = load_settings(None, overrides={"paths.cache": str(tmp_path)})[0]
    asked: list[str] = []

    async def ask(request: object, *, deadline: float) -> None:
        asked.append(type(request).__name__)
        raise WorkerTimedOut("`PrepareHeader` took longer than 120 s")

    async def worker(*_: object, **__: object) -> Any:
        return SimpleNamespace(ask=ask, alive=False, kill=lambda: None)

    asyncio.run(Builders(cast(Pool, SimpleNamespace(worker=worker)), settings, device_named("sm_90")).prepare_header())
    assert asked == ["PrepareHeader"]
