"""Tells from PTX how much of Blackwell's tensor memory a kernel allocates."""

import re

from kernel_lsp.compiler.ptx.lines import ptx_lines

COLUMNS = 512
"""Columns of tensor memory in a multiprocessor (PTX ISA, "Tensor Memory")."""
_ALLOCATES = re.compile(r"\btcgen05\.alloc\.[^;\[]*\[[^\]]*\],\s*([^;\s]+)\s*;")


def allocated_columns(ptx: str, entry: str) -> int | None:
    """Return the columns that one block of a kernel allocates; 0 if it allocates none.

    None where it is not known: the number is computed, or several instructions allocate, which may be for one another.
    """
    code = " ".join(text for text, _ in ptx_lines(ptx, entry, ""))
    counts = _ALLOCATES.findall(code)
    if not counts:
        return 0
    said = counts[0]
    if said.startswith("%"):
        made = re.findall(rf"\b(\w+)\.[\w.:]+\s+{re.escape(said)}\s*,\s*([^;]+);", code)
        said = made[0][1] if len(made) == 1 and made[0][0] == "mov" else ""
    return int(said) if len(counts) == 1 and said.isdecimal() else None
