"""The local server while a policy learns: it loads the policy's adapter, and sleeps where training needs its room."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn.process import free_on
from kernel_lsp.model import gate
from kernel_lsp.model.adapters import content_of, served_name
from kernel_lsp.model.client import Limits, ModelClient
from kernel_lsp.model.endpoint import Endpoint, find_endpoint


def local_endpoint(settings: Settings) -> Endpoint:
    """Return the server of the base model.

    Raises:
        ConfigurationError: it is not one of this machine.
        ModelError: no server is running.
    """
    endpoint = find_endpoint(settings)
    if not endpoint.local:
        fix = "Serve the model here: `kernel-lsp model serve FOLDER --adapters`."
        raise ConfigurationError("A policy is trained on a server of this machine only", fix=fix)
    return endpoint


@asynccontextmanager
async def with_adapter(endpoint: Endpoint, name: str, weights: Path | None) -> AsyncGenerator[Endpoint]:
    """Have a server load an adapter, and forget it afterwards; yields the endpoint that asks for it.

    Args:
        endpoint: of the base model.
        name: of the adapter, to which that of its content is added.
        weights: its folder; None for the base model itself.
    """
    if weights is None:
        yield endpoint
        return
    served = served_name(name, content_of(weights))
    async with ModelClient(endpoint, Limits()) as client:
        await client.load_adapter(served, weights)
        try:
            yield replace(endpoint, model=served)
        finally:
            await client.unload_adapter(served)


@asynccontextmanager
async def room_on(gpu: Gpu | None, needed: float) -> AsyncGenerator[None]:
    """Have servers on a GPU sleep, if they leave no room for so many bytes; there are none on None, the processor."""
    if gpu is None:
        yield
        return
    async with gate.asleep(gpu.uuid, wanted=int(needed), free=free_on(gpu)):
        yield
