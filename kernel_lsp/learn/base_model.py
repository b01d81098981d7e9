"""Read the size of a base model from its folder, without loading it: `config.json` and the heads of its weights."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.model.adapters import base_identity
from kernel_lsp.model.errors import NoWeightsError


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A model to train an adapter of.

    Attributes:
        folder: of its weights.
        parameters: number of its weights.
        layers: number of its layers.
        hidden: width between layers.
        inner: width inside of a layer's feed-forward part.
        heads, key_heads, head: attention heads, those of keys and values, and the width of each.
        vocabulary: number of its tokens.
        positions: longest context in tokens; None if it does not tell.
        identity: digest of its configuration and tokenizer, by which an adapter finds its base.
    """

    folder: Path
    parameters: int
    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int
    vocabulary: int
    positions: int | None
    identity: str


def read_base_model(folder: Path) -> BaseModel:
    """Return the sizes of the model in a folder.

    Raises:
        NoWeightsError: there is none, or it is no transformer with weights in safetensors.
    """
    config = _config(folder)
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        return BaseModel(
            folder=folder,
            parameters=_parameters(folder),
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            inner=int(config["intermediate_size"]),
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            head=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            positions=config.get("max_position_embeddings"),
            identity=base_identity(folder),
        )
    except KeyError as error:
        message = f"The model's `config.json` has no {error}: it is of a kind that cannot be trained here"
        fix = "Name a plain decoder, such as a Qwen or a Llama."
        raise NoWeightsError(message, folder / "config.json", fix=fix) from None
    except (TypeError, ValueError) as error:
        raise NoWeightsError(f"The model's `config.json` cannot be used: {error}", folder / "config.json") from None


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return {**found, **found.get("text_config", {})}
    except (OSError, ValueError, AttributeError, TypeError):
        fix = "Name the folder of a model's weights with `--weights`, or with the setting `model.weights`."
        message = "The folder holds no model: there is no `config.json` that can be read"
        raise NoWeightsError(message, folder, fix=fix) from None


def _parameters(folder: Path) -> int:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        fix = "Save it again with `save_pretrained`, which writes safetensors."
        raise NoWeightsError("The folder holds no weights in safetensors", folder, fix=fix)
    return sum(_elements(file) for file in files)


def _elements(file: Path) -> int:
    """Return the number of elements in a file of safetensors: a length of 8 bytes, then its tensors' shapes as JSON."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            head: dict[str, Any] = json.loads(opened.read(length))
        return sum(math.prod(one["shape"]) for name, one in head.items() if name != "__metadata__")
    except (OSError, struct.error, ValueError, KeyError, MemoryError, OverflowError):
        raise NoWeightsError("The weights are damaged", file, fix="Download them again.") from None
