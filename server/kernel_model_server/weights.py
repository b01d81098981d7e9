"""Finds a model's weights on disk, and reads their type and memory needs."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.model.errors import NoWeightsError, WrongArchitectureError
from kernel_lsp.model.profile import Dtype, Memory, Profile

_GIB = 2**30
_FOUR_BIT = 4.25 / 8  # bytes per weight with its share of the scales


@dataclass(frozen=True, slots=True)
class Weights:
    """A folder with a model.

    Attributes:
        folder: with `config.json`.
        stored: type of a quantised model, which can only be served as it is; None for any other.
        memory: memory needs of serving them.
        most_context: longest context; None if the model does not tell.
        heads: attention heads, which the GPUs of a tensor-parallel server must divide.
        reasons: True if its chat template makes it reason before it answers.
    """

    folder: Path
    stored: Dtype | None
    memory: Memory
    most_context: int | None
    heads: int
    reasons: bool = False


def find_weights(profile: Profile, settings: Settings, named: Path | None = None) -> Weights:
    """Return the weights of a profile: in the folder `named`, in `model.weights`, or in the download folders.

    Raises:
        NoWeightsError: they are missing; the message says where they were looked for, and how to get them.
        WrongArchitectureError: the folder holds another model.
    """
    if (folder := named or settings.model.weights) is not None:
        return read_weights(folder, profile)
    places = list(_places(profile, settings))
    for place in places:
        if (place / "config.json").exists():
            return read_weights(place, profile)
    if profile.weights is None or profile.adapter:
        what = "is an adapter for a base model" if profile.adapter else "has no weights of its own"
        fix = "Name a model's folder: `--weights FOLDER`, or the setting `model.weights`."
        raise NoWeightsError(f"The profile `{profile.id}` {what}.", fix=fix)
    sizes = profile.memory.weights_gib if profile.memory else {}
    size = f" (about {2 * sizes['bf16']:.0f} GiB if stored as float32, half of it in 16 bits)" if sizes else ""
    message = f"The weights of {profile.id} are not on this machine: looked in {', '.join(str(p) for p in places)}."
    fix = f"`hf download {profile.weights}` gets them{size}; or name their folder with `model.weights`."
    raise NoWeightsError(message, fix=fix)


def read_weights(folder: Path, profile: Profile) -> Weights:
    """Return the type and memory needs of a folder's weights.

    Raises:
        NoWeightsError: there is no such folder.
        WrongArchitectureError: it holds no model, or not one that the profile is for.
    """
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise NoWeightsError("There is no such folder of weights.", folder, fix="Name a folder with `config.json`.")
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        fix = f"Serve it beside its base model: `--weights BASE --adapter NAME={folder}`."
        raise WrongArchitectureError("This is a LoRA adapter and no model of its own.", folder, fix=fix)
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        fix = "A folder of weights holds `config.json`, a tokenizer and `.safetensors` files."
        raise WrongArchitectureError(
            "This folder holds no model: its `config.json` cannot be read.", folder, fix=fix
        ) from error
    found = tuple(config.get("architectures") or ())
    if profile.architectures and not set(found) & set(profile.architectures):
        message = (
            f"The model is a {' or '.join(found) or 'nameless one'}; {profile.id} is a {profile.architectures[0]}."
        )
        raise WrongArchitectureError(message, folder, fix="Serve it under another profile: `--profile general`.")
    try:
        memory = _memory(config, _parameters(folder), profile)
        heads = int(config["num_attention_heads"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        fix = "Decoders of the Llama and Qwen families can be served."
        raise WrongArchitectureError(f"The model's shape is not understood: {error!r}.", folder, fix=fix) from error
    most = config.get("max_position_embeddings")
    return Weights(folder, _stored(config), memory, most, heads, _reasons(folder))


def _places(profile: Profile, settings: Settings) -> Iterator[Path]:
    yield settings.paths.data / "models" / profile.id
    if profile.weights is None:
        return
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{profile.weights.replace('/', '--')}"
    try:
        yield hub / "snapshots" / (hub / "refs/main").read_text().strip()
    except OSError:
        yield hub


def _memory(config: dict[str, Any], parameters: int | None, profile: Profile) -> Memory:
    """Return the memory needs of a dense decoder; its embeddings stay in 16 bits whatever the type of the rest."""
    hidden, layers, heads = (config[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    embeddings = config["vocab_size"] * hidden * (1 if config.get("tie_word_embeddings") else 2)
    layer = 2 * hidden * head * (heads + kv_heads) + 3 * hidden * config["intermediate_size"]
    rest = layers * layer if parameters is None else parameters - embeddings
    sizes: dict[Dtype, float] = {
        "bf16": 2 * (rest + embeddings) / _GIB,
        "fp8": (rest + 2 * embeddings) / _GIB,
        "4bit": (_FOUR_BIT * rest + 2 * embeddings) / _GIB,
    }
    overhead = profile.memory.overhead_gib if profile.memory else Memory.model_fields["overhead_gib"].default
    return Memory(weights_gib=sizes, cache_bytes_per_token=2 * 2 * layers * kv_heads * head, overhead_gib=overhead)


def _reasons(folder: Path) -> bool:
    """Return True if the chat template makes it reason; older models have the template in the tokenizer's settings."""
    try:
        template = (folder / "chat_template.jinja").read_text()
    except OSError:
        try:
            template = json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template", "")
        except (OSError, ValueError):
            return False
    return "<think>" in str(template)


def _stored(config: dict[str, Any]) -> Dtype | None:
    quantization = config.get("quantization_config")
    if not quantization:
        return None
    bits = quantization.get("bits") or (4 if quantization.get("load_in_4bit") else 8)
    return "4bit" if bits == 4 else "fp8"


def _parameters(folder: Path) -> int | None:
    """Return the number of parameters in the weights' files; None for packed ones, and without files."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        if any(not entry["dtype"].startswith(("F", "BF")) for entry in tensors):
            return None
        total += sum(math.prod(entry["shape"]) for entry in tensors)
    return total or None
