"""Look up what an earlier check found of a text as it stands; nothing is compiled or run.

Parameters: `path`, `texts` (open files as they are in the editor, by path) and `settings` (the tree as JSON). The
result is that of a check, see `job_handlers.checks`; null if the store has none, or the file has no workload.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.check import Checker
from kernel_lsp.config.settings import Settings
from kernel_lsp.lsp.job_handlers.checks import as_result
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import open_store


@asynccontextmanager
async def opened() -> AsyncGenerator[Handler]:
    """Yield the handler, which keeps nothing."""

    async def recall(params: dict[str, Any], _: Emit) -> Any:
        settings = Settings.model_validate(params["settings"])
        texts = {Path(path): str(text) for path, text in params["texts"].items()}
        path = Path(params["path"])
        with open_store(settings.paths.data) as store:
            async with Checker(settings, store, texts=texts) as checker:
                report = await checker.recall(SourceFile(path, texts[path]))
        return as_result(report) if report is not None and report.workloads else None

    yield recall
