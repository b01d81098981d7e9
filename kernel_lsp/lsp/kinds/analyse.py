"""What compilers say of a file, and its facts, for each architecture; workers stay warm between requests.

Parameters: `path`, `text`, `settings` (the tree as JSON). Result: a list of `judge.facts.ArchFacts`.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.facts import ArchFacts, open_compiler
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.source.candidate import SourceFile

_FACTS = TypeAdapter(list[ArchFacts])


@asynccontextmanager
async def opened() -> AsyncGenerator[Handler]:
    """The handler, with the compile workers that it keeps warm."""
    async with open_compiler() as compile_facts:

        async def analyse(params: dict[str, Any], _: Emit) -> Any:
            source = SourceFile(Path(params["path"]), params["text"])
            found = await compile_facts(source, Settings.model_validate(params["settings"]))
            return _FACTS.dump_python(found, mode="json")

        yield analyse
