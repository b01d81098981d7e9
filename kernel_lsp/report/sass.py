"""Source and machine code interleaved: for people with colours and marks, for programs as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kernel_lsp.compiler.machine_code.opcodes import Role, role_of
from kernel_lsp.compiler.machine_code.sass import MachineCode, SassInstruction, by_line, mix
from kernel_lsp.judge.facts import KernelMachineCode

_STYLES = {
    Role.GLOBAL: "bold cyan",
    Role.SHARED: "bold blue",
    Role.LOCAL: "bold red",
    Role.TENSOR: "bold green",
    Role.ATOMIC: "bold magenta",
    Role.BARRIER: "bold yellow",
    Role.SHUFFLE: "yellow",
    Role.SPECIAL: "magenta",
}


def sass_view(kernel: KernelMachineCode, path: Path, text: str) -> RenderableType:
    """A kernel's instructions in their order, each run of them under the source line it comes from.

    Beside each stand its offset, the registers live at it (the most are marked) and a bar where it is in an innermost
    loop. Instructions whose line is in no file but a header stand under the line that called it.

    Args:
        kernel: what is shown.
        path: the kernel file.
        text: its source.
    """
    name, lines = str(path.absolute()), text.splitlines()
    peak = kernel.code.peak
    looped = {position for loop in kernel.code.loops for position in loop.body}
    title = f"  {kernel.arch}: {len(kernel.code.instructions)} instructions"
    if peak is not None:
        line = peak.line_in(name)
        title += f", most registers live: {peak.live}" + (f" (line {line})" if line else "")
    parts = [Text.assemble((kernel.name, "bold"), title), *_loops(kernel.code, name), Text("  offset  live", "dim")]
    at: int | None = None
    for position, instruction in enumerate(kernel.code.instructions):
        line = instruction.line_in(name)
        if line != at and line is not None:
            source = lines[line - 1].strip() if line <= len(lines) else ""
            parts.append(Text.assemble((f"{line:>5} | ", "dim"), (source, "italic")))
            at = line
        parts.append(_instruction(instruction, position in looped, instruction is peak))
    for part in parts:
        part.no_wrap, part.overflow = True, "ignore"
    return Group(*parts)


def sass_record(kernel: KernelMachineCode, path: Path) -> dict[str, Any]:
    """The same as JSON values: instructions, and what was made of each line of `path` and of each loop."""
    code, name = kernel.code, str(path.absolute())
    return {
        "arch": kernel.arch,
        "name": kernel.name,
        "peak": code.peak,
        "lines": by_line(code, name),
        "loops": [{"lines": _lines(code.body(loop), name), "kinds": mix(code.body(loop))} for loop in code.loops],
        "instructions": code.instructions,
    }


def _loops(code: MachineCode, name: str) -> list[Text]:
    found: list[Text] = []
    for loop in code.loops:
        body = code.body(loop)
        lines = _lines(body, name)
        counts = mix(one for one in body if role_of(one.opcode))
        place = f"lines {lines[0]}-{lines[-1]}" if len(lines) > 1 else f"line {lines[0]}" if lines else "no line"
        notable = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        found.append(Text(f"  innermost loop, {place}: {len(body)} instructions" + (f": {notable}" if notable else "")))
    return found


def _lines(instructions: Sequence[SassInstruction], name: str) -> list[int]:
    return sorted({line for one in instructions if (line := one.line_in(name)) is not None})


def _instruction(instruction: SassInstruction, looped: bool, peak: bool) -> Text:
    role = role_of(instruction.opcode)
    guard = f"@{instruction.guard}" if instruction.guard else ""
    return Text.assemble(
        (f"    {instruction.offset:04x}  ", "dim"),
        (f"{instruction.live:>4}", "bold red" if peak else "dim"),
        ("*" if peak else " ", "bold red"),
        (" | " if looped else "   ", "green"),
        (f"{guard:>5} ", "dim"),
        (instruction.opcode, _STYLES[role] if role else ""),
        f" {instruction.operands}" if instruction.operands else "",
    )
