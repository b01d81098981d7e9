"""Adapters as trainings leave them, for tests that load none."""

from pathlib import Path

from kernel_lsp.model.adapters import Adapter, AdapterCard, adapter_folder, content_of, find_adapter, write_card


def made_adapter(data: Path, name: str, *, weights: bytes = b"w", base: str = "b", **said) -> Adapter:
    """An adapter in `data` whose weights are these bytes."""
    folder = adapter_folder(data, name)
    (folder / "adapter").mkdir(parents=True, exist_ok=True)
    (folder / "adapter/adapter_config.json").write_text('{"r": 8}')
    (folder / "adapter/adapter_model.safetensors").write_bytes(weights)
    card = {"name": name, "method": "sft", "base": base, "rank": 8, "kernels": (), **said}
    write_card(folder, AdapterCard(**card, content=content_of(folder / "adapter")))
    return find_adapter(data, name)
