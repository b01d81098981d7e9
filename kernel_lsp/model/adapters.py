"""Adapters that were trained on this machine: what each is of, and the name that a server gives its content.

vLLM keeps the cached prefixes of an adapter's old weights when new ones are loaded under the same name (vLLM issue
42125), so a server never hears one name for two contents: it knows an adapter as `NAME@CONTENT`.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_lsp.errors import ConfigurationError

_CARD = "card.json"
_IDENTITY = ("config.json", "tokenizer.json", "tokenizer_config.json")
_CONTENT = ("adapter_config.json", "adapter_model.safetensors")
_DIGITS = 12  # of a content's digest
_CHUNK = 2**20


class AdapterCard(BaseModel):
    """The origin of an adapter, written when its training is done.

    Attributes:
        name: of the adapter.
        method: how it was trained.
        base: identity of its base model (`base_identity`).
        rank: of its matrices.
        kernels: digests of the kernels that it was trained on, also before it was taken up.
        content: digest of its weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    method: Literal["sft", "grpo"]
    base: str
    rank: int
    kernels: tuple[str, ...]
    content: str


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trained adapter with the folder that it and its training lie in."""

    card: AdapterCard
    folder: Path

    @property
    def weights(self) -> Path:
        """Return the folder that a server loads."""
        return self.folder / "adapter"

    @property
    def served(self) -> str:
        """Return the name that a server knows this content by."""
        return served_name(self.card.name, self.card.content)


def served_name(name: str, content: str) -> str:
    """Return the name that a server knows an adapter's content by."""
    return f"{name}@{content}"


def base_identity(folder: Path) -> str:
    """Return the digest of a model's configuration and tokenizer, by which an adapter finds its base."""
    digest = hashlib.sha256()
    for name in _IDENTITY:
        path = folder / name
        digest.update(f"{name}\0".encode() + (path.read_bytes() if path.is_file() else b"") + b"\0")
    return digest.hexdigest()[:16]


def content_of(weights: Path) -> str:
    """Return the digest of an adapter's files.

    Raises:
        OSError: one of them is missing.
    """
    digest = hashlib.sha256()
    for name in _CONTENT:
        with (weights / name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:_DIGITS]


def adapter_folder(data: Path, name: str) -> Path:
    """Return the folder of an adapter below `paths.data`, whether it is there or not."""
    return data.expanduser().absolute() / "adapters" / name


def write_card(folder: Path, card: AdapterCard) -> None:
    """Write the card of an adapter whose training is done."""
    draft = folder / f"{_CARD}.draft"
    draft.write_text(card.model_dump_json(indent=2), encoding="utf-8")
    draft.replace(folder / _CARD)


def publish(weights: Path, folder: Path) -> str:
    """Make a copy of weights the adapter in a folder, whole or not at all, and return the digest of its content."""
    place, content = folder / "adapter", content_of(weights)
    if not place.is_dir() or content_of(place) != content:
        draft = folder / "adapter.draft"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(weights, draft)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)
    return content


def list_adapters(data: Path) -> list[Adapter]:
    """Return the trained adapters, by name; trainings that are not done are left out."""
    found = (_read(folder) for folder in sorted(adapter_folder(data, "").glob("*")))
    return [adapter for adapter in found if adapter is not None]


def find_adapter(data: Path, name: str) -> Adapter:
    """Return the adapter of a name.

    Raises:
        ConfigurationError: there is none, or its training is not done.
    """
    folder = adapter_folder(data, name)
    if (adapter := _read(folder)) is None:
        there = ", ".join(one.card.name for one in list_adapters(data)) or "none"
        fix = f"`kernel-lsp model adapters` lists them ({there}); `kernel-lsp model train` makes one."
        raise ConfigurationError(f"There is no adapter `{name}`, or its training is not done", folder, fix=fix)
    return adapter


def delete_adapter(adapter: Adapter) -> None:
    """Delete an adapter with its training."""
    (adapter.folder / _CARD).unlink(missing_ok=True)  # first, so that no part of one is ever listed
    shutil.rmtree(adapter.folder, ignore_errors=True)


def _read(folder: Path) -> Adapter | None:
    try:
        card = AdapterCard.model_validate_json((folder / _CARD).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return Adapter(card, folder) if (folder / "adapter").is_dir() else None
