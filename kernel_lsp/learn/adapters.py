"""The adapters on this machine: where each is loaded, how it compared, and how to be rid of one."""

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.learn.comparison import AdapterComparison, read_comparison
from kernel_lsp.model.adapters import Adapter, AdapterCard, delete_adapter, find_adapter, list_adapters
from kernel_lsp.model.client import ModelClient
from kernel_lsp.model.endpoint import endpoint_of
from kernel_lsp.model.errors import ModelError
from kernel_lsp.model.servers import ModelServer, running


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """An adapter as it is listed.

    Attributes:
        card: its origin.
        folder: of it and its training.
        loaded: names of the servers that have its present content loaded.
        comparison: with its base, as `model eval` last found it; None if never.
    """

    card: AdapterCard
    folder: Path
    loaded: tuple[str, ...]
    comparison: AdapterComparison | None


async def known_adapters(data: Path) -> list[KnownAdapter]:
    """Return the adapters that were trained here, by name."""
    served = [(server.name, await _names(server)) for server in running() if server.rank is not None]
    return [
        KnownAdapter(
            one.card,
            one.folder,
            tuple(server for server, names in served if one.served in names),
            read_comparison(one.folder, one.card.content),
        )
        for one in list_adapters(data)
    ]


async def remove_adapter(data: Path, name: str) -> None:
    """Unload an adapter from every running server, and delete it.

    Raises:
        ConfigurationError: there is none.
    """
    adapter = find_adapter(data, name)
    for server in running():
        if server.rank is not None:
            await _unload(server, adapter)
    delete_adapter(adapter)


async def _names(server: ModelServer) -> tuple[str, ...]:
    """Return the names that a server answers to; none if it does not say."""
    try:
        async with ModelClient(endpoint_of(server)) as client:
            return await client.models()
    except ModelError:
        return ()


async def _unload(server: ModelServer, adapter: Adapter) -> None:
    """Unload every content of an adapter that a server has: this one, earlier ones, and steps of a killed training."""
    async with ModelClient(endpoint_of(server)) as client:
        for name in await client.models():
            if re.fullmatch(rf"{re.escape(adapter.card.name)}(-\d+)?@\w+", name):
                await client.unload_adapter(name)
