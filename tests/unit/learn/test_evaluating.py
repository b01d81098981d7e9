"""`model eval` through a scripted server and the judge without a GPU: base and adapter, side by side."""

import re

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import CannotJudgeError, ConfigurationError
from kernel_lsp.learn.environment import target_of
from kernel_lsp.learn.evaluate import Trials, evaluate
from kernel_lsp.refine.journal import kernel_key
from kernel_lsp.store.store import open_store
from tests.served_model.fake_server import drawn
from tests.served_model.scale import write_scale
from tests.served_model.talking import fake_server
from tests.unit.learn.made_adapters import made_adapter
from tests.unit.learn.test_cheats_earn_nothing import RANDOM, RIGHT, WRONG, edit

pytestmark = pytest.mark.asyncio(loop_scope="function")


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """Two kernels that differ in a factor."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    paths = []
    for name, factor in (("a", "3"), ("b", "5")):
        (tmp_path / name).mkdir()
        path = write_scale(tmp_path / name)
        path.write_text(path.read_text().replace("3.0f", f"{factor}.0f"))
        path.with_name("scale_workload.py").write_text(RANDOM.replace("3 * x", f"{factor} * x"))
        paths.append(str(path))
    return paths


def settings_of(data, server=None, **more):
    wanted = {"paths.data": data, "paths.cache": data / "cache", "model.profile": "general", "model.name": "tiny"}
    wanted |= {"judge.families": "normal", "refine.untimed": True}
    if server is not None:
        wanted["model.endpoint"] = f"unix:{server.socket}"
    return load_settings(overrides=wanted | more)[0]


async def run(settings, kernels, trials=Trials(2, 2, 1000)):  # noqa: B008
    with open_store(settings.paths.data) as store:
        return await evaluate("mine", kernels, trials, settings, store, lambda _: None), store.list_sessions(-1)


async def test_both_sides_are_asked_alike_and_judged(kernels, tmp_path):
    adapter = made_adapter(tmp_path / "data", "mine")
    async with fake_server() as server:
        server.reply = lambda body: drawn(edit(RIGHT if body["model"] == adapter.served else WRONG))
        found, sessions = await run(settings_of(tmp_path / "data", server), kernels)
        asked = {"tiny": [], adapter.served: []}
        for body in server.bodies:
            asked[body["model"]].append((body["seed"], body["messages"][0]["content"]))
    [right] = found.measures
    assert (right.base, right.adapter, right.difference) == (0.0, 1.0, 1.0)
    assert (found.gpu, found.better, found.samples) == (None, False, 2), "two kernels are too few to call it better"
    assert sorted(asked["tiny"]) == sorted(asked[adapter.served])
    assert len(sessions) == 8, "each trajectory is in the store"


async def test_a_trajectory_ends_where_its_tokens_do(kernels, tmp_path):
    made_adapter(tmp_path / "data", "mine")
    async with fake_server() as server:
        server.reply = lambda body: drawn("no", tokens=min(60, body["max_tokens"]))
        found, _ = await run(settings_of(tmp_path / "data", server), kernels[:1], Trials(1, 4, 100))
        assert [body["max_tokens"] for body in server.bodies] == [100, 40, 100, 40]
    assert {one.tokens for kernel in found.kernels for one in (*kernel.base, *kernel.adapter)} == {100}


async def test_a_kernel_that_was_trained_on_is_refused_however_it_is_named(kernels, tmp_path):
    settings = settings_of(tmp_path / "data")
    known = kernel_key(target_of(kernels[0], settings).baseline)
    made_adapter(tmp_path / "data", "mine", kernels=(known,))
    renamed = tmp_path / "other"
    renamed.mkdir()
    path = write_scale(renamed)
    path.write_text("// a copy\n" + re.sub(r"\bi\b", "at", path.read_text()))
    with pytest.raises(ConfigurationError, match="was trained on this kernel"):
        await run(settings, [kernels[1], str(path)])


async def test_copies_of_one_kernel_are_not_two(kernels, tmp_path):
    made_adapter(tmp_path / "data", "mine")
    with pytest.raises(ConfigurationError, match="the same as"):
        await run(settings_of(tmp_path / "data"), [kernels[0], kernels[0]])


async def test_without_a_gpu_it_says_so_unless_told_that_nothing_is_timed(kernels, tmp_path):
    made_adapter(tmp_path / "data", "mine")
    with pytest.raises(CannotJudgeError, match="no GPU"):
        await run(settings_of(tmp_path / "data", **{"refine.untimed": False}), kernels)
