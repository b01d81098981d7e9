"""What serving a 32B model beside the judge costs: `python -m tests.bench.model_serving`.

A model of QwQ-32B's shape with random weights is served as `kernel-lsp model serve` would do it: which way was chosen,
seconds to ready by stage, tokens per second of one answer and of eight, seconds to pause and resume, and (unless
--no-sleep) to sleep and to wake, twice; memory and use of the multiprocessors meanwhile.
Options: --tokens N of each answer (default 256), --no-sleep, --record.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_model_server import launch
from kernel_model_server.vllm import Loading

from kernel_lsp.config.settings import ModelSettings, Settings
from kernel_lsp.device.nvml import Gpu, busy_percent, find_gpus, free_bytes
from kernel_lsp.model import gate
from kernel_lsp.model.client import ModelClient, Sampling
from kernel_lsp.model.endpoint import endpoint_of
from kernel_lsp.model.errors import EndlessReasoningError
from kernel_lsp.model.profile import PROFILES
from kernel_lsp.model.servers import ModelServer
from kernel_lsp.runner.sessions import members
from tests.bench.record import record

GIB = 2**30
VOCABULARY = 152064
SHAPE = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": 0,
    "bos_token_id": None,
}
PROMPT = [{"role": "user", "content": " ".join(f"w{number}" for number in range(3, 500))}]


def shape_only(folder: Path) -> Path:
    """A folder with QwQ-32B's configuration, a tokenizer of as many words, and no weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {"<eos>": 0, "<think>": 1, "</think>": 2} | {f"w{number}": number for number in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "model_max_length": 40960}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }} {% endfor %}<think>\n")
    (folder / "config.json").write_text(json.dumps(SHAPE))
    return folder


async def generate(server: ModelServer, tokens: int) -> float:
    """Generate so many tokens; seconds from the first piece to the last, per token."""
    begun = ended = 0.0
    count = 0
    async with ModelClient(endpoint_of(server)) as client:
        with contextlib.suppress(EndlessReasoningError):
            async for piece in client.stream(PROMPT, Sampling(temperature=1.0, max_tokens=tokens)):
                ended = time.perf_counter()
                begun = begun or ended
                count = piece.usage.completion if piece.usage else count + 1
    return (ended - begun) / max(1, count - 1)


async def speeds(server: ModelServer, tokens: int) -> dict[str, float]:
    """Tokens per second of one answer, and of eight together."""
    await generate(server, 32)
    one = 1 / await generate(server, tokens)
    begun = time.perf_counter()
    await asyncio.gather(*(generate(server, tokens) for _ in range(8)))
    return {"one_tokens_per_s": one, "eight_tokens_per_s": 8 * tokens / (time.perf_counter() - begun)}


async def pauses(server: ModelServer, gpu: Gpu) -> dict[str, Any]:
    """Pausing and resuming in the middle of answers, ten times, and what the GPU did while it was paused."""
    generating = asyncio.create_task(generate(server, 4000))
    await asyncio.sleep(2.0)
    to_pause, to_resume, how, busy = list[float](), list[float](), list[str](), list[int | None]()
    pids = frozenset(members(server.pid) if server.pid else ())
    for _ in range(10):
        begun = time.perf_counter()
        async with gate.quiet(gpu.uuid) as (quieted,):
            to_pause.append(time.perf_counter() - begun)
            how.append(quieted.how)
            await asyncio.sleep(0.5)
            busy.append(busy_percent(gpu, pids, quieted.since + 0.2))
            begun = time.perf_counter()
        to_resume.append(time.perf_counter() - begun)
        await asyncio.sleep(0.2)
    generating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await generating
    return {"pause_s": sorted(to_pause), "resume_s": sorted(to_resume), "how": how, "busy_percent_while_paused": busy}


async def sleeps(server: ModelServer, gpu: Gpu) -> list[dict[str, float]]:
    """Sleeping until memory is free and waking again, twice: the first time copies weights to new host memory."""
    rounds: list[dict[str, float]] = []
    for _ in range(2):
        begun = time.perf_counter()
        async with gate.asleep(gpu.uuid, wanted=1, free=0):
            slept = time.perf_counter() - begun
            freed = free_bytes(gpu) / GIB
            begun = time.perf_counter()
        woke = time.perf_counter() - begun
        rounds.append(
            {"sleep_s": slept, "free_gib_asleep": freed, "wake_s": woke, "free_gib_awake": free_bytes(gpu) / GIB}
        )
        rounds[-1]["tokens_per_s_after"] = 1 / await generate(server, 64)
        print(rounds[-1], flush=True)
    return rounds


def main() -> None:
    """Serve, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--no-sleep", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpu = find_gpus()[0]
    figures: dict[str, Any] = {"free_gib_before": free_bytes(gpu) / GIB}
    with tempfile.TemporaryDirectory() as scratch:
        profile = Path(scratch, "dummy.toml")
        text = (PROFILES / "kevin-32b.toml").read_text()
        profile.write_text(text.replace("[serving]", '[serving]\narguments = ["--load-format", "dummy"]'))
        folder = Path(scratch, "qwq-32b-shape")
        folder.mkdir()
        settings = Settings(model=ModelSettings(python=Path(sys.executable)))
        plan = launch.plan(str(shape_only(folder)), settings, profile=str(profile))
        figures |= {"vllm": plan.vllm.version, "choice": plan.why}
        print(plan.why, flush=True)
        begun, stages = time.perf_counter(), dict[str, float]()

        def hear(now: Loading) -> None:
            if now.doing not in stages:
                stages[now.doing] = time.perf_counter() - begun
                print(f"{stages[now.doing]:6.1f} s {now.doing}", flush=True)

        kept = launch.start(plan, attached=True)
        try:
            server = launch.wait_until_ready(kept, hear)
            figures |= {"ready_s": time.perf_counter() - begun, "stages_begin_s": stages}
            figures["free_gib_ready"] = free_bytes(gpu) / GIB
            print(f"ready after {figures['ready_s']:.1f} s, {figures['free_gib_ready']:.1f} GiB left", flush=True)
            figures |= asyncio.run(speeds(server, asked.tokens))
            figures["pausing"] = asyncio.run(pauses(server, gpu))
            print({name: value for name, value in figures.items() if "tokens" in name or name == "pausing"}, flush=True)
            if not asked.no_sleep:
                figures["sleeping"] = asyncio.run(sleeps(server, gpu))
        except Exception:
            print((kept / "log").read_text()[-6000:], flush=True)
            raise
        finally:
            begun = time.perf_counter()
            launch.stop(kept)
            figures["stop_s"] = time.perf_counter() - begun
    print(json.dumps(figures, indent=2))
    if asked.record:
        record("model_serving", figures, device=gpu.name, driver=gpu.driver)


if __name__ == "__main__":
    main()
