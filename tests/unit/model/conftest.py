"""What tests of models share: a runtime folder of their own, and a server that answers as it is told."""

import fcntl
import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from kernel_lsp.model.servers import ModelServer, servers_folder, write_server
from tests.served_model.fake_server import FakeServer


@pytest.fixture
def runtime(monkeypatch):
    """The user's runtime folder; with a short name, for sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="kl-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def fake(runtime):
    server = FakeServer(runtime / "fake")
    await server.open()
    yield server
    await server.close()


@pytest.fixture
def keep(runtime):
    """Make the record of a running server, with a keeper's lock held by this process."""
    held = []

    def keep(fake, **changes):
        folder = servers_folder() / changes.get("name", "tiny")
        folder.mkdir()
        kept = (folder / "kept").open("w")
        fcntl.flock(kept, fcntl.LOCK_EX)
        held.append(kept)
        said = {"name": folder.name, "profile": "general", "models": ("tiny",), "gpus": ("GPU-0",), "pauses": True}
        server = ModelServer(**said | {"uds": fake.socket, "key": fake.key, "folder": folder} | changes)
        write_server(server)
        return server

    yield keep
    for kept in held:
        kept.close()
