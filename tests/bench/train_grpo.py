"""Reinforcement learning on the judge's verdicts, and a control: `python -m tests.bench.train_grpo`.

A small transformer is made on the spot and taught how answers look, not which are good. It is served by vLLM, learns by
`kernel-lsp model train grpo` on six kernels, and is compared with what it was by `model eval` on six others. With
`--shuffled` the advantages of each group are dealt anew: what rises there is not learned. A run that is interrupted
gives the figures of its steps, and goes on when it is called again with its `--folder`.

Options: --folder DIR that keeps everything; --shuffled; --steps N (20); --kernels N in a step (6); --trajectories N
(6); --turns N (2); --rate R (1e-3); --teach SECONDS (60); --layers N (6); --width N (256); --samples N (4) of each
kernel at the end; --vllm PYTHON and --trainer PYTHON that have what serves and trains, if this one has not; --untimed
for a machine without a GPU; --record NAME.
"""

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.session import Pools
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.learn.environment import KernelEnvironment, open_environment, target_of
from kernel_lsp.model.client import Message
from kernel_lsp.model.profile import find_profile
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages, tell
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.store.store import open_store
from tests.bench.policy.families import HELD, TAUGHT, TRAINED, SmallKernel, drawn_answer
from tests.bench.record import record

ADAPTER = "policy"
TEACHER = Path(__file__).with_name("policy") / "teach.py"
TRACES = 160
"""Conversations of each kernel that is taught."""
PROFILE = str(Path(__file__).with_name("policy") / "small.toml")
LEVEL = 1.96
"""Standard errors on each side of a 95 % interval of many answers' mean."""


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """The environment of all commands, the same for a run that goes on."""
    wanted = {
        "PATHS_DATA": options.folder / "data",
        "PATHS_CACHE": options.folder / "cache",
        "MODEL_PROFILE": PROFILE,
        "REFINE_UNTIMED": str(options.untimed).lower(),
        "LEARN_HELD_OUT": 0,
        "LEARN_STRENGTH": 0.7,  # `k <= ITEMS` for `k < ITEMS` computes an element twice, which is right
        "LEARN_KERNELS": options.kernels,
        "LEARN_TRAJECTORIES": options.trajectories,
        "LEARN_TURNS": options.turns,
        "LEARN_RANK": 16,
        "LEARN_POLICY_RATE": options.rate,
        "LEARN_TEMPERATURE": 1.0,
    }
    wanted |= {"MODEL_PYTHON": options.vllm} if options.vllm else {}
    wanted |= {"LEARN_PYTHON": options.trainer} if options.trainer else {}
    return {f"KERNEL_LSP_{name}": str(value) for name, value in wanted.items()}


def run(options: argparse.Namespace, *words: object, shuffled: bool = False) -> str:
    """Run a command of `kernel-lsp`, show what it says, and return what it printed."""
    main = "from kernel_lsp.cli.main import main; main()"
    called = ["-m", "tests.bench.policy.shuffled"] if shuffled else ["-c", main]
    seen = os.environ | {"XDG_RUNTIME_DIR": str(options.folder / "run"), "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, *called, *map(str, words)], env=seen, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def made_up(chance: random.Random) -> Feedback | str:
    """What a judge may say of an answer: the conversations that are taught need not be true."""
    ratio = math.exp(chance.uniform(-1, 0.5))
    interval = (ratio * 0.99, ratio * 1.01)
    return chance.choice(
        [
            Feedback(Stage.TIMED, Outcome.FASTER if ratio < 1 else Outcome.SLOWER, ratio, interval),
            Feedback(Stage.CORRECT, Outcome.WRONG, message="output 0 is wrong from index [32] on"),
            Feedback(Stage.RUN, Outcome.RUN_FAILED, message="invalid argument"),
            Feedback(Stage.LEGITIMATE, Outcome.ILLEGITIMATE, message="the reference does the work"),
        ]
    )


async def conversations(environment: KernelEnvironment, kernel: SmallKernel, turns: int) -> list[dict[str, Any]]:
    """Return what is taught on one kernel: conversations as the environment has them, with random answers."""
    chance = random.Random(kernel.name)
    found: list[dict[str, Any]] = []

    async def few(_: Sequence[Message]) -> int:
        return 0

    for _ in range(TRACES):
        attempts = [
            PastTurn(ModelAnswer(drawn_answer(kernel, chance)), tell(environment.prompts, made_up(chance)))
            for _ in range(chance.randrange(turns))
        ]
        said = await messages(environment.task, environment.profile.talk, environment.briefing, attempts, few)
        found.append({"messages": said, "answer": drawn_answer(kernel, chance)})
    return found


async def write_traces(options: argparse.Namespace, settings: Settings) -> Path:
    """Write the conversations that are taught, of sessions of the real judge."""
    profile = find_profile(PROFILE)
    with open_store(settings.paths.data) as store:
        async with Pools(settings) as pools:

            async def rows_of(kernel: SmallKernel) -> list[dict[str, Any]]:
                target = target_of(str(kernel.write(options.folder / "taught")), settings)
                async with open_environment(target, profile, settings, store, pools.now(), {}) as environment:
                    return await conversations(environment, kernel, options.turns)

            rows = [row for some in await asyncio.gather(*map(rows_of, TAUGHT)) for row in some]
    path = options.folder / "traces.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def taught_model(options: argparse.Namespace) -> Path:
    """Return the folder of the model, made if it is not there, with the figures of teaching beside it."""
    model: Path = options.folder / "model"
    if model.exists():
        return model
    settings = load_settings()[0]
    traces = asyncio.run(write_traces(options, settings))
    draft = options.folder / "model.draft"
    shutil.rmtree(draft, ignore_errors=True)
    size = (options.teach, options.layers, options.width)
    call = (options.trainer or sys.executable, TEACHER, traces, draft, *size)
    done = subprocess.run([str(word) for word in call], stdout=subprocess.PIPE, text=True, check=True)
    (options.folder / "teaching.json").write_text(done.stdout)
    print("taught:", done.stdout.strip(), flush=True)
    draft.rename(model)
    return model


def curve(folder: Path) -> list[dict[str, Any]]:
    """Return the figures of each step, with the mean reward of its answers and the standard error of that."""
    found: list[dict[str, Any]] = []
    for line in (folder / "curve.jsonl").read_text().splitlines():
        step = json.loads(line)
        samples = json.loads((folder / f"batches/{step['step']:05}.json").read_text())["samples"]
        scores = [one["score"] for one in samples]
        mean = math.fsum(scores) / len(scores)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in scores) / len(scores))
        found.append(
            {
                "step": step["step"],
                "score": round(mean, 4),
                "error": round(spread / math.sqrt(len(scores)), 4),
                "results": step["results"],
                "canaries": step.get("canaries", {}),
                "seconds": step["seconds"],
                "drawing_seconds": step["drawing_seconds"],
                "judging_seconds": step["judging_seconds"],
                "learning_seconds": round(step["learning_seconds"], 2),
                "answers": step["answers"],
            }
        )
    return found


def rise(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compare the first quarter of the steps with the last one: mean scores, difference, its 95 % interval."""
    quarter = max(1, len(steps) // 4)

    def pooled(some: Sequence[dict[str, Any]]) -> tuple[float, float]:
        mean = math.fsum(one["score"] for one in some) / len(some)
        return mean, math.sqrt(math.fsum(one["error"] ** 2 for one in some)) / len(some)

    (early, first), (late, last) = pooled(steps[:quarter]), pooled(steps[-quarter:])
    half = LEVEL * math.hypot(first, last)
    gain = late - early
    return {
        "first_quarter": round(early, 4),
        "last_quarter": round(late, 4),
        "difference": round(gain, 4),
        "interval": [round(gain - half, 4), round(gain + half, 4)],
    }


def figures_of(options: argparse.Namespace, seconds: dict[str, float], compared: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a run."""
    steps = curve(options.folder / "data/adapters" / ADAPTER)
    total = Counter[str]()
    for one in steps:
        total.update(one["results"])
    return {
        "control": options.shuffled,
        "taught": json.loads((options.folder / "teaching.json").read_text()),
        "rise": rise(steps),
        "answers_by_verdict": dict(total.most_common()),
        "drawing_and_judging_s": round(sum(one["seconds"] for one in steps), 1),
        "drawing_s": round(sum(one["drawing_seconds"] for one in steps), 1),
        "judging_s": round(sum(one["judging_seconds"] for one in steps), 1),
        "learning_s": round(sum(one["learning_seconds"] for one in steps), 1),
        "seconds": seconds,
        "held_out": compared.get("measures"),
        "curve": steps,
    }


def main() -> None:
    """Teach, serve, learn, compare, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--untimed", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--trajectories", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--teach", type=float, default=60)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--vllm", type=Path, help="a Python that has vLLM")
    parser.add_argument("--trainer", type=Path, help="a Python that trains")
    parser.add_argument("--record", metavar="NAME")
    options = parser.parse_args()
    options.folder = options.folder or Path(tempfile.mkdtemp(prefix="kl-"))
    (options.folder / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.update(settings_of(options))
    seconds: dict[str, float] = {}

    def timed(name: str, began: float) -> None:
        seconds[name] = round(time.monotonic() - began, 1)
        print(f"{name}: {seconds[name]} s", flush=True)

    began = time.monotonic()
    model = taught_model(options)
    timed("teaching", began)
    trained = [kernel.write(options.folder / "trained") for kernel in TRAINED]
    held = [kernel.write(options.folder / "held") for kernel in HELD]
    compared: dict[str, Any] = {}
    try:
        began = time.monotonic()
        run(options, "model", "serve", model, "--adapters")
        timed("serving", began)
        began = time.monotonic()
        words = ("--adapter", ADAPTER, "--weights", model, "--steps", options.steps)
        run(options, "model", "train", "grpo", *trained, *words, shuffled=options.shuffled)
        timed("learning", began)
        began = time.monotonic()
        trials = ("--samples", options.samples, "--turns", 1, "--tokens", 400, "--json")
        compared = json.loads(run(options, "model", "eval", ADAPTER, *held, *trials))
        timed("comparing", began)
    except KeyboardInterrupt:  # as by a time limit: the steps that were taken count
        print(f"ended early after {', '.join(seconds)}", flush=True)
        if not (options.folder / "data/adapters" / ADAPTER / "curve.jsonl").exists():
            raise
    finally:
        run(options, "model", "stop")
    found = figures_of(options, seconds, compared)
    print(json.dumps(found, indent=1))
    if options.record:
        print(record(options.record, found))


if __name__ == "__main__":
    main()
