"""Whether the judge stays right beside a model server: `python -m tests.bench.judging_beside_a_model`.

Judges examples against themselves without a model server, with one that is loaded and idle, and with one that generates
all the time: a FASTER is false. The model is the tests' own tiny one; `$TEST_VLLM_PYTHON` names a Python that has
vLLM and torch.
Options: --pairs N of each (default 100; a pair takes about 3 s on an H200), --conditions without,idle,generating,
--seconds N after which no further pair is begun (shared out evenly among conditions and examples), --record, which
writes what there is after each condition.
"""

import argparse
import asyncio
import contextlib
import math
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_model_server import launch

from kernel_lsp.config.settings import ModelSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.model.client import ModelClient, Sampling
from kernel_lsp.model.endpoint import endpoint_of
from kernel_lsp.model.errors import ModelError
from kernel_lsp.model.servers import ModelServer
from tests.bench.record import record
from tests.bench.self_judgement import EXAMPLES, judge_itself
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model

NAMES = ("cuda/rmsnorm.cu", "cuda/transpose.cu", "triton/softmax.py", "triton/layernorm.py")
QUESTION = "Think about scan_kernel"
LEARNED = [
    Learned((("user", "Make add_kernel faster"),), "The block is small.", "```python\nBLOCK = 1024\n```"),
    Learned((("user", QUESTION),), "Or maybe not. " * 60, None),
]


async def keep_generating(server: ModelServer) -> int:
    """Eight answers at a time until cancelled."""

    async def one() -> None:
        async with ModelClient(endpoint_of(server)) as client:
            while True:
                with contextlib.suppress(ModelError):
                    messages = [{"role": "user", "content": QUESTION}]
                    async for _ in client.stream(messages, Sampling(temperature=0.0, max_tokens=8000)):
                        pass

    await asyncio.gather(*(one() for _ in range(8)))
    return 0


async def judged(pairs: int, seconds: float, server: ModelServer | None, *, generating: bool) -> dict[str, Any]:
    """Verdicts on so many pairs of the same code, as far as the time goes, and how the server was found."""
    load = asyncio.create_task(keep_generating(server)) if server and generating else None
    begun, verdicts = time.perf_counter(), list[Verdict]()
    end = time.monotonic() + seconds
    for number, name in enumerate(NAMES):
        if (now := time.monotonic()) > end:
            break
        found = await judge_itself(EXAMPLES / name, -(-pairs // len(NAMES)), now + (end - now) / (len(NAMES) - number))
        print(f"  {name}: {dict(Counter(v.verdict.value for v in found))}, {time.monotonic() - now:.1f} s", flush=True)
        verdicts += found
    if load is not None:
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    servers = [state for v in verdicts if v.evidence.device for state in v.evidence.device.model_servers]
    outcomes = Counter(v.verdict.value for v in verdicts)
    usual = (Outcome.SAME, Outcome.NOT_WORTH_IT, Outcome.AMBIGUOUS)
    logs = [abs(d) for v in verdicts for case in v.cases for d in case.blocks]
    return {
        "pairs": len(verdicts),
        "outcomes": dict(sorted(outcomes.items())),
        "wrong": [f"{v.evidence.kernel_path}: {v.verdict}, {v.reason}" for v in verdicts if v.verdict not in usual],
        "false_faster_share": outcomes["FASTER"] / len(verdicts) if verdicts else None,
        "median_block_deviation": statistics.median(logs) if logs else None,
        "discarded_blocks": sum(v.evidence.discarded_blocks for v in verdicts),
        "seconds": time.perf_counter() - begun,
        "server": dict(Counter(s.how for s in servers)),
        "server_busy_percent": max((s.busy_percent for s in servers if s.busy_percent is not None), default=None),
    }


def main() -> None:
    """Judge under each condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--conditions", default="without,idle,generating")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpu, end = find_gpus()[0], time.monotonic() + asked.seconds
    conditions = asked.conditions.split(",")
    figures: dict[str, Any] = {}
    kept: Path | None = None
    server: ModelServer | None = None
    try:
        for number, condition in enumerate(conditions):
            if condition != "without" and kept is None:
                settings = Settings(model=ModelSettings(python=VLLM_PYTHON))
                begun = time.perf_counter()
                plan = launch.plan(str(learned_model(LEARNED)), settings)
                print(f"built in {time.perf_counter() - begun:.1f} s; {plan.why}", flush=True)
                kept = launch.start(plan, attached=True)
                server = launch.wait_until_ready(kept)
                print(f"ready {time.perf_counter() - begun:.1f} s after that", flush=True)
            print(f"{condition}:", flush=True)
            seconds = (end - time.monotonic()) / (len(conditions) - number)
            figures[condition] = asyncio.run(judged(asked.pairs, seconds, server, generating=condition == "generating"))
            print(condition, figures[condition], flush=True)
            if asked.record:
                record("judging_beside_a_model", figures, device=gpu.name, driver=gpu.driver)
    finally:
        if kept is not None:
            print((kept / "log").read_text()[-1500:], flush=True)
            launch.stop(kept)


if __name__ == "__main__":
    main()
