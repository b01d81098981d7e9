"""The machine code and PTX of a text as a listing, for editors that show it as a file."""

from collections.abc import Iterable

from kernel_lsp.lsp.wire import KernelCode, MachineInstruction


def as_listing(kernels: Iterable[KernelCode], kernel: str | None = None) -> str:
    """Return the machine code of kernels, each followed by its PTX; with `kernel` only of that one's instances."""
    parts: list[str] = []
    for code in kernels:
        if kernel in (None, code.name.partition("<")[0].partition("[")[0]):
            most = max((one.live for one in code.instructions), default=0)
            parts.append(f"// {code.name}")
            parts.append(f"// {len(code.instructions)} instructions on {code.arch}, at most {most} registers live")
            parts.append("//line  addr live   | in an innermost loop")
            parts += [line for one in code.instructions for line in _lines(one)]
            parts.append("")
            if code.ptx:
                parts.append(f"// {code.name}: PTX")
                parts += [f"{one.line or '':>5} {one.text}".rstrip() for one in code.ptx]
                parts.append("")
    return "\n".join(parts)


def _lines(one: MachineInstruction) -> list[str]:
    guard = f"@{one.guard}" if one.guard else ""
    place = f"{one.line or '':>5} {one.offset:05x} {one.live:>4} {'|' if one.looped else ' '}{guard:>5}"
    return [*(f"{label}:" for label in one.labels), f"{place} {one.opcode} {one.operands}".rstrip()]
