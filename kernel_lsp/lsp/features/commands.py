"""Commands that concern the server itself; a handler takes the list of the command's arguments."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.lsp.documents import path_of

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server


async def trust(ls: "Server", arguments: list[Any]) -> list[str]:
    """Trust the folders named by URI or path, else the workspace's; the folders."""
    folders = _folders(ls, arguments)
    for folder in folders:
        ls.trust.add(folder)
    ls.texts_changed_meaning()
    return [str(folder) for folder in folders]


async def untrust(ls: "Server", arguments: list[Any]) -> list[str]:
    """Withdraw the trust from the folders named, else from the workspace's; the folders."""
    folders = _folders(ls, arguments)
    try:
        for folder in folders:
            ls.trust.remove(folder)
    finally:
        ls.texts_changed_meaning()
    return [str(folder) for folder in folders]


def _folders(ls: "Server", arguments: list[Any]) -> list[Path]:
    named = [
        path for name in arguments if isinstance(name, str) and (path := path_of(name) or Path(name)).is_absolute()
    ]
    if len(named) < len(arguments):
        raise ConfigurationError("A folder is named by its URI or its full path.")
    if found := named or list(ls.folders.paths):
        return found
    raise ConfigurationError("No folder is open.", cure="Name the folder to trust.")
