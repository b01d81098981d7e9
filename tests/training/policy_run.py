"""Runs of a policy through the real commands: a scripted policy, the judge on the emulator, a real trainer."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.served_model.fake_server import FakeServer, drawn
from tests.training.command import ROOT, call, environment
from tests.training.test_fine_tuning import PYTHON

TURNS, TRAJECTORIES = 2, 4


@dataclass
class PolicyRun:
    """A folder with a kernel and a model, and the server that answers for it."""

    folder: Path
    kernel: Path
    model: Path
    server: FakeServer

    @property
    def adapter(self) -> Path:
        """The folder of what is trained."""
        return self.folder / "data/adapters/mine"

    def answers(self, *by_trajectory: str) -> None:
        """Let each trajectory say its own answer in every turn; token ids tell them apart."""

        def reply(body: dict) -> dict:
            number = body["seed"] // 1000 % 100 % len(by_trajectory)
            said = drawn(by_trajectory[number])
            said["choices"][0]["token_ids"] = [10 * number + n for n in range(5)]
            return said

        self.server.reply = reply

    async def start(self, *more: str, steps: int = 2, **settings: object) -> asyncio.subprocess.Process:
        """Begin the command, or take the run up."""
        wanted = {
            "PATHS_DATA": self.folder / "data",
            "PATHS_CACHE": self.folder / "cache",
            "LEARN_PYTHON": PYTHON,
            "MODEL_ENDPOINT": f"unix:{self.server.socket}",
            "MODEL_NAME": "tiny",
            "MODEL_PROFILE": "general",
            "JUDGE_FAMILIES": "normal",
            "REFINE_UNTIMED": "true",
            "LEARN_HELD_OUT": 0,
            "LEARN_STRENGTH": 0.5,
            "LEARN_TURNS": TURNS,
            "LEARN_TRAJECTORIES": TRAJECTORIES,
            "LEARN_RANK": 4,
            "LEARN_POLICY_RATE": 0.01,
            **settings,
        }
        words = ("--adapter", "mine", "--weights", self.model, *more)
        command = call("model", "train", *self.method(steps), *words)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *command, env=environment(wanted), cwd=ROOT, stdout=pipe, stderr=pipe
        )

    def method(self, steps: int) -> tuple[object, ...]:
        """The words that say how is trained."""
        return ("grpo", self.kernel, "--steps", steps)

    async def run(self, *more: str, code: int = 0, **settings: object) -> str:
        """Run the command to its end and return what it printed, on one line."""
        process = await self.start(*more, **settings)
        out, err = await process.communicate()
        said = (out + err).decode()
        assert process.returncode == code, said
        return " ".join(said.split())

    def curve(self) -> list[dict]:
        """The lines of `curve.jsonl`."""
        return [json.loads(line) for line in (self.adapter / "curve.jsonl").read_text().splitlines()]

    def batch(self, step: int) -> list[dict]:
        """The samples of a step."""
        return json.loads((self.adapter / f"batches/{step:05}.json").read_text())["samples"]


def kill(pid: int) -> None:
    """End the command and the process that trains as the system does when it has no memory left."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    for one in (*map(int, children), pid):
        with contextlib.suppress(ProcessLookupError):  # a worker that ended since it was listed
            os.kill(one, signal.SIGKILL)
