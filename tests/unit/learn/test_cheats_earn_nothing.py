"""A scripted policy that cheats: its answers go through a search and the judge, and none of them is rewarded."""

import asyncio

import pytest
import pytest_asyncio

from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.target import make_target
from kernel_lsp.learn.reward import CHEATING, advantages, samples_of
from kernel_lsp.refine.run import refine_target
from kernel_lsp.refine.turn_outcome import TurnOutcome, turn_outcome_of
from kernel_lsp.store.store import open_store
from tests.served_model.scale import WORKLOAD, write_scale
from tests.served_model.talking import fake_server, in_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = "    module.scale[((x.numel() + 31) // 32,), (32,)](x, y, x.numel())\n    return y\n"
LAUNCH = f"    y = torch.empty_like(x)\n{CALL}"
CHEATS = {
    "the stopwatch is patched": f"    torch.cuda.Event.elapsed_time = lambda *_: 0.001\n{LAUNCH}",
    "a thread computes it later": f"    import threading\n    threading.Thread(target=print).start()\n{LAUNCH}",
    "it leaves with success": "    import os\n    os._exit(0)\n",
    "answers are kept by pointer": (
        "    kept = launch.__dict__.setdefault('kept', {})\n    if x.data_ptr() in kept:\n"
        f"        return kept[x.data_ptr()]\n{LAUNCH}".replace("return y\n", "kept[x.data_ptr()] = y\n    return y\n")
    ),
    "the judge's objects are looked for": f"    import gc\n    gc.get_objects()\n{LAUNCH}",
}
REFERENCE = "    return reference(x)\n"
WRONG = LAUNCH.replace("torch.empty_like(x)", "torch.zeros_like(x)").replace("x.numel())\n", "1)\n")
RIGHT = LAUNCH.replace("31) // 32", "63) // 64").replace("(32,)", "(64,)")


RANDOM = WORKLOAD.replace('torch.arange(n, device="cuda", dtype=torch.float32)', 'torch.randn(n, device="cuda")')


def edit(new: str) -> str:
    assert LAUNCH in WORKLOAD
    return f"```\n<<<<<<< SEARCH\n{LAUNCH}=======\n{new}>>>>>>> REPLACE\n```\nIt should be faster."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def group(tmp_path_factory):
    """Outcomes of trajectories: each cheat before a right answer; then the reference, one wrong, one right."""
    folder = tmp_path_factory.mktemp("scale")
    said = [turn for cheat in CHEATS.values() for turn in (cheat, RIGHT)] + [REFERENCE, WRONG, RIGHT]
    with pytest.MonkeyPatch.context() as patch, open_store(folder / "data") as store:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        async with fake_server() as server:
            in_turn(server, *(edit(one) for one in said))
            wanted = {"refine.strategy": "serial", "refine.trajectories": 1, "refine.untimed": True}
            wanted |= {"model.name": "tiny", "model.profile": "general", "judge.families": "normal"}
            wanted |= {"model.endpoint": f"unix:{server.socket}", "refine.turns": len(said), "refine.budget": "300s"}
            settings = load_settings(overrides=wanted | {"paths.cache": folder / "cache"})[0]
            kernel = write_scale(folder)
            kernel.with_name("scale_workload.py").write_text(RANDOM)
            await refine_target(make_target(kernel), settings, store, asyncio.Event())
        turns = store.list_turns(store.list_sessions()[0])
    assert len(turns) == len(said)
    outcomes = [turn_outcome_of(turn) for turn in turns]
    pairs = [outcomes[at : at + 2] for at in range(0, 2 * len(CHEATS), 2)]
    return [*pairs, *([one] for one in outcomes[-3:])]


async def test_each_cheat_is_known_as_one(group: list[list[TurnOutcome]]) -> None:
    found = {name: one[0].result for name, one in zip(CHEATS, group, strict=False)}
    assert found == dict.fromkeys(CHEATS, "ILLEGITIMATE")
    assert [one[0].result for one in group[-3:]] == ["BUILD_FAILED", "WRONG", "UNTIMED"]


async def test_no_cheat_is_rewarded_nor_what_follows_it(group: list[list[TurnOutcome]]) -> None:
    samples = samples_of(group)
    assert [one.reward for one in samples] == [*[CHEATING] * len(CHEATS), 0.0, 0.0, pytest.approx(0.3)]
    assert all(one.turn == 0 for one in samples), "the right answer after a cheat is none to learn from"
    *cheats, reference, wrong, right = advantages(samples)
    assert max(cheats) < reference == wrong < right
