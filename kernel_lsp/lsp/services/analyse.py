"""Compile a file and return the compilers' results; workers stay warm between requests.

Parameters: `path`, `text`, `settings` (the tree as JSON), and `part`: what is asked for.

- `facts`: a list of `judge.facts.ArchFacts`, one for each architecture. The first request may emit `{"facts": ...}`
  before, without the workload: occupancy is not known then.
- `lines`: for the first architecture, what each line of the file became: a list of `Line`. Empty where no nvdisasm is
  there to tell.
- `code`: for the first architecture, the machine code of each kernel whole: a list of `wire.KernelCode`. Of several
  instances of a kernel the one with most registers live comes first.
- `prepare`, with nothing but `folder` (or null) and `settings` that override those in force there, by dotted names:
  null; the worker of a first CUDA file starts before there is one.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kernel_lsp.compiler.machine_code.opcodes import role_of
from kernel_lsp.compiler.machine_code.sass import SassInstruction
from kernel_lsp.compiler.ptx.lines import ptx_lines
from kernel_lsp.compiler.triton.ttgir_lines import ttgir_lines
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import CannotJudgeError, SourceError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.facts import (
    ArchFacts,
    Compile,
    compiles_alone,
    facts_of_all,
    machine_code,
    open_builder,
    workload_paths,
)
from kernel_lsp.lsp.service import Emit, Handler
from kernel_lsp.lsp.wire import IntermediateCode, IntermediateLine, KernelCode, MachineInstruction
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import base_name

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
    """Yield the handler, with the compile workers that it keeps warm."""
    async with open_builder() as build:
        warm = False

        async def analyse(params: dict[str, Any], emit: Emit) -> Any:
            nonlocal warm
            if params["part"] == "prepare":
                folder = params["folder"] and Path(params["folder"])
                return await build.prepare(load_settings(folder, overrides=params["settings"], strict=False)[0])
            source, settings = (
                SourceFile(Path(params["path"]), params["text"]),
                Settings.model_validate(params["settings"]),
            )
            paths = workload_paths(source, None, settings)
            waits = not warm and params["part"] == "facts" and paths != [None] and compiles_alone(source)
            async with _first_facts(build, source, settings, emit) if waits else nullcontext():
                builds = [await build(source, settings, path) for path in paths]
            warm = True
            if params["part"] in ("code", "lines"):
                read = _codes if params["part"] == "code" else _lines
                parts = [await asyncio.to_thread(read, source, next(iter(b.values())), settings) for b in builds]
                return [asdict(one) for one in dict.fromkeys(one for part in parts for one in part)]
            return _FACTS.dump_python(facts_of_all(builds), mode="json")

        yield analyse


@asynccontextmanager
async def _first_facts(build: Compile, source: SourceFile, settings: Settings, emit: Emit) -> AsyncGenerator[None]:
    """Emit a file's facts without its workload, if it compiles so, unless the block ends before.

    A workload needs torch, which takes seconds to import; what a kernel costs is known before.
    """

    async def compile_alone() -> None:
        built = await build(source, settings, alone=True)
        if all(one.ok for one in built.values()):
            emit({"facts": _FACTS.dump_python(facts_of_all([built]), mode="json")})

    compiling = asyncio.create_task(compile_alone())
    try:
        yield
    finally:
        compiling.cancel()
        await asyncio.gather(compiling, return_exceptions=True)


def _lines(source: SourceFile, built: Built, settings: Settings) -> list[Line]:
    try:
        codes = machine_code(built, settings)
    except CannotJudgeError:
        return []
    found: list[Line] = []
    for kernel in codes:
        lines: dict[int, list[SassInstruction]] = {}
        for instruction in kernel.code.instructions:
            if (line := instruction.line_in(str(source.path))) is not None:
                lines.setdefault(line, []).append(instruction)
        for line, code in sorted(lines.items()):
            live = max(one.live for one in code)
            found.append(Line(line, kernel.arch, kernel.name, live, tuple(map(_text, code))))
    return found


def _codes(source: SourceFile, built: Built, settings: Settings) -> list[KernelCode]:
    if not built.ok:
        raise SourceError(f"It does not compile: {built.first_error}", source.path)
    path = str(source.path)
    found: list[KernelCode] = []
    for kernel in machine_code(built, settings):
        labels: dict[int, list[str]] = {}
        for name, index in kernel.code.labels:
            labels.setdefault(index, []).append(name)
        looped = {position for loop in kernel.code.loops for position in loop.body}
        steps = tuple(
            MachineInstruction(
                one.offset,
                one.guard,
                one.opcode,
                one.operands,
                one.line_in(path),
                one.live,
                role_of(one.opcode),
                position in looped,
                tuple(labels.get(position, ())),
            )
            for position, one in enumerate(kernel.code.instructions)
        )
        texts = {
            "TTGIR": ttgir_lines(kernel.ttgir or "", path),
            "PTX": ptx_lines(kernel.ptx or "", kernel.code.function, path),
        }
        made = [IntermediateCode(name, tuple(starmap(IntermediateLine, lines))) for name, lines in texts.items()]
        found.append(KernelCode(kernel.arch, kernel.name, steps, tuple(one for one in made if one.lines)))
    names = [base_name(one.name) for one in found]
    return sorted(
        found, key=lambda one: (names.index(base_name(one.name)), -max(step.live for step in one.instructions))
    )


def _text(instruction: SassInstruction) -> str:
    guard = f"@{instruction.guard} " if instruction.guard else ""
    return f"{guard}{instruction.opcode} {instruction.operands}".rstrip()
