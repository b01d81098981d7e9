"""What compilers make of a file; workers stay warm between requests.

Parameters: `path`, `text`, `settings` (the tree as JSON), and `part`: what is asked for.

- `facts`: a list of `judge.facts.ArchFacts`, one for each architecture.
- `lines`: for the first architecture, what each line of the file became: a list of `Line`. Empty where no nvdisasm is
  there to tell.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kernel_lsp.build.sass import Instruction
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.facts import ArchFacts, facts_of, machine_code, open_builder
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.source.candidate import SourceFile

_FACTS = TypeAdapter(list[ArchFacts])


@dataclass(frozen=True, slots=True)
class Line:
    """The machine code of one line in one kernel.

    Attributes:
        line: from 1.
        arch: what it was made for.
        kernel: as in `KernelResources.name`.
        live: most registers in use at one of its instructions, for one thread.
        code: its instructions in order, as nvdisasm prints them.
    """

    line: int
    arch: str
    kernel: str
    live: int
    code: tuple[str, ...]


@asynccontextmanager
async def opened() -> AsyncGenerator[Handler]:
    """The handler, with the compile workers that it keeps warm."""
    async with open_builder() as build:

        async def analyse(params: dict[str, Any], _: Emit) -> Any:
            source, settings = (
                SourceFile(Path(params["path"]), params["text"]),
                Settings.model_validate(params["settings"]),
            )
            built = await build(source, settings)
            if params["part"] == "lines":
                first = next(iter(built.values()))
                return [asdict(line) for line in await asyncio.to_thread(_lines, source, first, settings)]
            return _FACTS.dump_python([facts_of(*one) for one in built.items()], mode="json")

        yield analyse


def _lines(source: SourceFile, built: Built, settings: Settings) -> list[Line]:
    try:
        codes = machine_code(built, settings)
    except CannotJudgeError:
        return []
    found: list[Line] = []
    for kernel in codes:
        lines: dict[int, list[Instruction]] = {}
        for instruction in kernel.code.instructions:
            if (line := instruction.line_in(str(source.path))) is not None:
                lines.setdefault(line, []).append(instruction)
        for line, code in sorted(lines.items()):
            live = max(one.live for one in code)
            found.append(Line(line, kernel.arch, kernel.name, live, tuple(map(_text, code))))
    return found


def _text(instruction: Instruction) -> str:
    guard = f"@{instruction.guard} " if instruction.guard else ""
    return f"{guard}{instruction.opcode} {instruction.operands}".rstrip()
