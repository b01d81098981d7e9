"""What changes before files are watched is not missed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.lsp.features import files
from kernel_lsp.lsp.features.files import Files


@pytest.mark.parametrize("dynamic", [False, True])
def test_texts_are_looked_at_again_once_their_headers_are_watched(
    dynamic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    watcher = SimpleNamespace(watch=lambda folders, recursive=True: steps.append(f"watched: {len(list(folders))}"))
    monkeypatch.setattr(files, "Watcher", lambda _: watcher)

    async def registered(_: object) -> None:
        steps.append("watched by the client")

    offered = SimpleNamespace(dynamic_registration=dynamic)
    client: Any = SimpleNamespace(
        client_capabilities=SimpleNamespace(workspace=SimpleNamespace(did_change_watched_files=offered)),
        client_register_capability_async=registered,
    )
    texts = [SimpleNamespace(name="scale.cu", kernels=("scale",)), SimpleNamespace(name="train.py", kernels=())]
    given: dict[str, Any] = {
        "folders": SimpleNamespace(paths=[tmp_path]),
        "settings": SimpleNamespace(user_file=tmp_path / "home" / "config.toml"),
        "permission": SimpleNamespace(trust=SimpleNamespace(file=tmp_path / "home" / "trust", changed=lambda: False)),
        "analysis": SimpleNamespace(request=lambda document: steps.append(f"asked: {document.name}")),
    }
    none: Any = None
    feature = Files(client, texts, **given, results=none, jobs=none, texts=none)  # type: ignore[arg-type]
    asyncio.run(feature.watch())
    assert steps == ["watched: 1", "watched by the client" if dynamic else "watched: 1", "asked: scale.cu"]
