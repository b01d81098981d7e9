"""Kernels of this program, which the judge launches itself."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.building import Builders
from kernel_lsp.runner.pool import Flavour, Pool

pytest.importorskip("cuda.bindings")


def test_they_are_built_while_torch_is_still_imported(tmp_path: Path) -> None:
    asyncio.run(_built_twice(tmp_path))


async def _built_twice(cache: Path) -> None:
    settings, _ = load_settings(overrides={"paths.cache": str(cache)})
    async with Pool() as pool:
        builders = Builders(pool, settings, device_named("sm_90"))
        built = await builders.own("distance")
        assert built.cubin.startswith(b"\x7fELF")
        assert (await builders.own("distance")).cubin == built.cubin
        assert set(pool._zygotes) == {Flavour.COMPILE}  # pyright: ignore[reportPrivateUsage]
        builders.close()
