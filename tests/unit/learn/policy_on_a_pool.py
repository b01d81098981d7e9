"""Answers about a small kernel, judged on a pool: `python -m tests.unit.learn.policy_on_a_pool ADDRESS FOLDER`."""

import asyncio
import json
import sys
from pathlib import Path

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.target import make_target
from kernel_lsp.learn.judges import opened_judges
from kernel_lsp.learn.kept import KeptEnvironments
from kernel_lsp.learn.rollout import Policy, Trajectory, rollout
from kernel_lsp.model.endpoint import endpoint_at
from kernel_lsp.model.profile import find_profile
from kernel_lsp.pool.choice import asked_pool
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.store.store import Store, open_store
from tests.served_model.fake_server import drawn
from tests.served_model.talking import fake_server
from tests.unit.learn.test_cheats_earn_nothing import CHEATS, RIGHT, WRONG, edit

LARGER = RIGHT.replace("63) // 64", "127) // 128").replace("(64,)", "(128,)")
CHEAT = CHEATS["it leaves with success"]
SAID = (
    (edit(RIGHT), edit(WRONG), edit(CHEAT), "I cannot."),
    (edit(LARGER), edit(WRONG.replace("1)\n", "2)\n")), edit(CHEAT.replace("(0)", "(2)")), "I cannot."),
)
"""The answers of two steps."""
RESULTS = ["UNTIMED", "WRONG", "ILLEGITIMATE", "REJECTED"]


def settings_for(folder: Path, address: str = "local") -> Settings:
    """Settings that keep all in a folder."""
    wanted = {"paths.data": folder / "data", "paths.cache": folder / "cache", "judge.families": "normal"}
    return load_settings(overrides=wanted | {"pool.address": address, "model.profile": "general"})[0]


async def trajectories(kernel: Path, settings: Settings, store: Store, pool: LanePool | None) -> list[Trajectory]:
    """Two steps of one turn in which each trajectory says its own answer; between them the judges rest."""
    profile = find_profile("general")
    found: list[Trajectory] = []
    async with fake_server() as server:
        server.reply = lambda body: drawn(SAID[body["seed"] // 100_000][body["seed"] // 1000 % 100])
        endpoint = endpoint_at(f"unix:{server.socket}", "tiny")
        async with (
            opened_judges(pool, settings, profile, store, None) as judges,
            KeptEnvironments(judges) as environments,
        ):
            for step, said in enumerate(SAID):
                async with (
                    Policy(endpoint, profile, None, None) as policy,
                    judges.at_work(lambda _: None),
                    environments.using("k", make_target(kernel), settings) as environment,
                ):
                    found += await rollout(
                        environment, policy, name=f"s{step}", trajectories=len(said), turns=1, seed=step * 100_000
                    )
                await environments.rest()
    return found


def main() -> None:
    address, folder = sys.argv[1], Path(sys.argv[2])
    settings = settings_for(folder, address)
    with asked_pool(settings, None) as pool, open_store(settings.paths.data) as store:
        done = asyncio.run(trajectories(folder / "scale.cu", settings, store, pool))
        verdicts = [store.find_verdict(turn.evidence) for one in done for turn in one if turn.evidence]
    print(
        json.dumps(
            {
                "results": [turn.outcome.result for one in done for turn in one],
                "told": [turn.outcome.told for one in done for turn in one],
                "where": [(verdict or {})["evidence"]["where"] for verdict in verdicts],
            }
        )
    )


if __name__ == "__main__":
    main()
