"""The machine code of a text, and what it was made from, as a listing for editors that show it as a file.

The first line of each part names its columns and the kernel: editors keep it in sight while the rest is scrolled.
"""

from collections.abc import Iterable

from kernel_lsp.lsp.wire import KernelCode, MachineInstruction


def as_listing(kernels: Iterable[KernelCode], kernel: str | None = None) -> str:
    """Return the machine code of kernels, each followed by what it was made from.

    Args:
        kernels: in order.
        kernel: name of the only one whose instances are wanted; all by default.
    """
    parts: list[str] = []
    for code in kernels:
        if kernel in (None, code.name.partition("<")[0].partition("[")[0]):
            most = max((one.live for one in code.instructions), default=0)
            parts.append(f"//line  addr live   {code.name}")
            parts.append(f"// {len(code.instructions)} instructions on {code.arch}, at most {most} registers live")
            parts.append("//                 | in an innermost loop")
            parts += [line for one in code.instructions for line in _lines(one)]
            parts.append("")
            for made in code.intermediate:
                parts.append(f"//line  {code.name}: {made.name}")
                parts += [f"{one.line or '':>5} {one.text}".rstrip() for one in made.lines]
                parts.append("")
    return "\n".join(parts)


def _lines(one: MachineInstruction) -> list[str]:
    guard = f"@{one.guard}" if one.guard else ""
    place = f"{one.line or '':>5} {one.offset:05x} {one.live:>4} {'|' if one.looped else ' '}{guard:>5}"
    return [*(f"{label}:" for label in one.labels), f"{place} {one.opcode} {one.operands}".rstrip()]
