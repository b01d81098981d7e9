"""Adapters that were trained here are found, chosen by a setting, and loaded before they are asked."""

import asyncio
import os

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn.adapters import known_adapters, remove_adapter
from kernel_lsp.model.adapters import find_adapter, list_adapters
from kernel_lsp.model.client import ModelClient, Sampling
from kernel_lsp.model.endpoint import find_endpoint
from kernel_lsp.model.errors import NoServerError, NotServedError
from kernel_lsp.model.servers import ModelServer, servers_folder, write_server
from tests.served_model.fake_server import said
from tests.served_model.talking import fake_server
from tests.unit.learn.made_adapters import made_adapter

pytestmark = pytest.mark.asyncio(loop_scope="function")


def settings_at(server, data, **more):
    wanted = {"model.endpoint": f"unix:{server.socket}", "model.name": "tiny", "paths.data": data}
    return load_settings(overrides=wanted | {f"model.{name}": value for name, value in more.items()})[0]


async def ask(settings) -> None:
    async with ModelClient(find_endpoint(settings)) as client:
        async for _ in client.stream([{"role": "user", "content": "hello"}], Sampling()):
            pass


async def test_the_adapter_of_the_setting_is_loaded_once_and_asked(tmp_path):
    adapter = made_adapter(tmp_path, "mine")
    async with fake_server() as server:
        server.answer = [said("hi", tokens=1), said(finish="stop", tokens=1)]
        for _ in range(2):
            await ask(settings_at(server, tmp_path, adapter="mine"))
        assert server.adapters == {adapter.served: str(adapter.weights)}
        assert server.asked.count("/v1/load_lora_adapter") == 1
        assert [body["model"] for body in server.bodies] == [adapter.served] * 2
        await ask(settings_at(server, tmp_path))
        assert server.bodies[-1]["model"] == "tiny"


async def test_other_weights_under_the_same_name_get_a_name_of_their_own(tmp_path):
    first = made_adapter(tmp_path, "mine")
    again = made_adapter(tmp_path, "mine", weights=b"v")
    assert first.served != again.served
    assert first.served.rpartition("@")[0] == again.served.rpartition("@")[0] == "mine"


async def test_two_that_load_the_same_adapter_at_once_both_find_it(tmp_path):
    made_adapter(tmp_path, "mine")
    async with fake_server() as server:
        server.answer = [said("hi", tokens=1), said(finish="stop", tokens=1)]
        settings = settings_at(server, tmp_path, adapter="mine")
        await asyncio.gather(ask(settings), ask(settings))
        assert len(server.adapters) == 1


async def test_a_server_that_loads_none_while_it_runs_is_named_with_the_fix(tmp_path):
    made_adapter(tmp_path, "mine")
    async with fake_server() as server:
        server.routes["/v1/load_lora_adapter"] = (404, '{"detail": "Not Found"}')
        with pytest.raises(NotServedError, match="does not load the adapter") as caught:
            await ask(settings_at(server, tmp_path, adapter="mine"))
    assert "--adapters" in str(caught.value)


async def test_an_adapter_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    made_adapter(tmp_path, "mine")
    with pytest.raises(ConfigurationError, match="no adapter `yours`") as caught:
        find_adapter(tmp_path, "yours")
    assert "(mine)" in str(caught.value)


async def test_nothing_is_loaded_by_a_server_elsewhere(tmp_path, monkeypatch):
    made_adapter(tmp_path, "mine")
    monkeypatch.setattr("kernel_lsp.model.endpoint.allowed_hosts", lambda: ("gpu.example.org",))
    wanted = {"model.endpoint": "http://gpu.example.org:8000", "model.name": "m", "model.adapter": "mine"}
    with pytest.raises(ConfigurationError, match="cannot be loaded by a server elsewhere"):
        find_endpoint(load_settings(overrides=wanted | {"paths.data": tmp_path})[0])


@pytest.mark.parametrize(
    ("base", "rank", "why"),
    [("other", 8, "No server of its base"), ("b", 4, "no adapters of rank 8"), ("b", None, "no adapters of rank 8")],
)
async def test_only_a_running_server_of_its_base_and_rank_is_asked(tmp_path, monkeypatch, base, rank, why):
    made_adapter(tmp_path, "mine")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("kernel_lsp.model.servers.is_kept", os.path.isdir)
    folder = servers_folder() / "tiny"
    folder.mkdir()
    served = {"name": "tiny", "profile": "general", "models": ("tiny",), "uds": folder / "socket", "folder": folder}
    settings = load_settings(overrides={"model.adapter": "mine", "paths.data": tmp_path})[0]
    write_server(ModelServer(**served, base=base, rank=rank))
    with pytest.raises(NoServerError, match=why):
        find_endpoint(settings)
    write_server(ModelServer(**served, base="b", rank=16))
    assert find_endpoint(settings).adapter == find_adapter(tmp_path, "mine").weights


async def test_removing_an_adapter_unloads_all_that_servers_have_of_it(tmp_path, monkeypatch):
    old = made_adapter(tmp_path, "mine", weights=b"old").served
    adapter, kept = made_adapter(tmp_path, "mine"), made_adapter(tmp_path, "mine2")
    async with fake_server() as server:
        for one in (old, adapter.served, "mine-00007@c0", kept.served):
            server._keep({"lora_name": one, "lora_path": "/somewhere"})
        served = {"name": "tiny", "profile": "general", "models": ("tiny",), "uds": server.socket, "rank": 8}
        one = ModelServer(**served, folder=tmp_path)
        monkeypatch.setattr("kernel_lsp.learn.adapters.running", lambda: (one,))
        assert [known.loaded for known in await known_adapters(tmp_path)] == [("tiny",), ("tiny",)]
        await remove_adapter(tmp_path, "mine")
        assert list(server.adapters) == [kept.served]
    assert [one.card.name for one in list_adapters(tmp_path)] == ["mine2"]
    assert not adapter.folder.exists()
