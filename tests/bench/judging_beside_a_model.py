"""Whether the judge stays right beside a model server: `python -m tests.bench.judging_beside_a_model`.

Judges examples against themselves without a model server, with one that is loaded and idle, and with one that generates
all the time: a FASTER is false. The model is the tests' own tiny one; `$TEST_VLLM_PYTHON` names a Python that has
vLLM and torch.
Options: --pairs N of each (default 100), --conditions without,idle,generating, --record.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from pathlib import Path
from typing import Any

from kernel_model_server import launch

from kernel_lsp.config.settings import ModelSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.client import Client, Sampling
from kernel_lsp.model.endpoint import endpoint_of
from kernel_lsp.model.errors import ModelError
from kernel_lsp.model.servers import Server
from tests.bench.record import record
from tests.bench.self_judgement import EXAMPLES, judge_itself
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model

NAMES = ("cuda/rmsnorm.cu", "cuda/transpose.cu", "triton/softmax.py", "triton/layernorm.py")
QUESTION = "Think about scan_kernel"
LEARNED = [
    Learned((("user", "Make add_kernel faster"),), "The block is small.", "```python\nBLOCK = 1024\n```"),
    Learned((("user", QUESTION),), "Or maybe not. " * 60, None),
]


async def keep_generating(server: Server) -> int:
    """Eight answers at a time until cancelled."""

    async def one() -> None:
        async with Client(endpoint_of(server)) as client:
            while True:
                with contextlib.suppress(ModelError):
                    messages = [{"role": "user", "content": QUESTION}]
                    async for _ in client.stream(messages, Sampling(temperature=0.0, max_tokens=8000)):
                        pass

    await asyncio.gather(*(one() for _ in range(8)))
    return 0


async def judged(pairs: int, server: Server | None, *, generating: bool) -> dict[str, Any]:
    """Verdicts on so many pairs of the same code, and how the server was found."""
    load = asyncio.create_task(keep_generating(server)) if server and generating else None
    begun, verdicts = time.perf_counter(), list[Verdict]()
    for name in NAMES:
        verdicts += await judge_itself(EXAMPLES / name, -(-pairs // len(NAMES)))
    if load is not None:
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    found = [state for v in verdicts if v.evidence.device for state in v.evidence.device.model_servers]
    outcomes = [v.verdict.value for v in verdicts]
    logs = [abs(d) for v in verdicts for case in v.cases for d in case.blocks]
    return {
        "pairs": len(verdicts),
        "outcomes": {o: outcomes.count(o) for o in sorted(set(outcomes))},
        "false_faster_share": outcomes.count("FASTER") / len(verdicts),
        "median_block_deviation": statistics.median(logs) if logs else None,
        "discarded_blocks": sum(v.evidence.discarded_blocks for v in verdicts),
        "seconds": time.perf_counter() - begun,
        "server": {how: sum(s.how == how for s in found) for how in {s.how for s in found}},
        "server_busy_percent": max((s.busy_percent for s in found if s.busy_percent is not None), default=None),
    }


def main() -> None:
    """Judge under each condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--conditions", default="without,idle,generating")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpu = find_gpus()[0]
    figures: dict[str, Any] = {}
    kept: Path | None = None
    server: Server | None = None
    try:
        for condition in asked.conditions.split(","):
            if condition != "without" and kept is None:
                settings = Settings(model=ModelSettings(python=VLLM_PYTHON))
                begun = time.perf_counter()
                plan = launch.plan(str(learned_model(LEARNED)), settings)
                print(f"built in {time.perf_counter() - begun:.1f} s; {plan.why}", flush=True)
                kept = launch.start(plan, attached=True)
                server = launch.wait_until_ready(kept)
                print(f"ready {time.perf_counter() - begun:.1f} s after that", flush=True)
            figures[condition] = asyncio.run(judged(asked.pairs, server, generating=condition == "generating"))
            print(condition, figures[condition], flush=True)
    finally:
        if kept is not None:
            print((kept / "log").read_text()[-1500:], flush=True)
            launch.stop(kept)
    if asked.record:
        record("judging_beside_a_model", figures, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    main()
