"""Begins the imports of workers before a command has made its own: its session asks for them half a second later."""

import threading
from collections.abc import Iterable

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.runner.fork_server_client import ForkServer
from kernel_lsp.runner.pool import Flavour, fork_server


def begin_imports(settings: Settings) -> None:
    """Start, in a thread, the fork servers that a session of judgements with these settings will ask.

    A failure is no error: the session starts what it does not find. Where nothing stays warm, nothing is begun.
    """
    if not settings.runner.warm_minutes:
        return
    try:
        gpu = choose_gpu(settings.gpu)
    except ConfigurationError:  # the session says so
        return
    flavours = (Flavour.GPU, Flavour.EMULATE, Flavour.COMPILE) if gpu else (Flavour.EMULATE,)
    uuid = gpu.uuid if gpu else None
    servers = [fork_server(flavour, uuid, settings.runner.warm_minutes) for flavour in flavours]
    # What asks for thousands of facts of files does so before: a thread would wait for this one after each.
    if missing := [server for server in servers if not server.runs]:
        threading.Thread(target=_begin, args=(missing,), daemon=True).start()


def _begin(servers: Iterable[ForkServer]) -> None:
    for server in servers:
        server.begin()
