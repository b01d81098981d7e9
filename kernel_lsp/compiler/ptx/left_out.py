"""PTX without the memory accesses, barriers or repetitions of one source line: the time that is saved is its price.

The rest must still be computed, so a loaded value is replaced by a zero, and a store or a jump back happens on a
condition that never holds, neither of which the assembler can know: they come from a comparison with the size of the
grid. Answers are wrong without a line, and a loop ends after one turn.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_lsp.compiler.ptx.lines import placed_lines

_NEVER, _ZERO = "%kl_never", "%kl_zero"
_HEAD = f"""\t.reg .pred {_NEVER};
\t.reg .b32 {_ZERO};
\tmov.u32 {_ZERO}, %nctaid.z;
\tsetp.eq.u32 {_NEVER}, {_ZERO}, 65535;
\tselp.b32 {_ZERO}, 1, 0, {_NEVER};"""
_STATEMENT = re.compile(r"^\s*(?:@(?P<not>!?)(?P<guard>[%\w]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);\s*$")
_LABEL = re.compile(r"^\s*([$\w]+):\s*$")
_REGISTERS = re.compile(r"^\s*\.reg\s+\.\w*?(?P<bits>\d+|pred)\s+(?P<name>%\w+?)(?:<\d+>)?\s*;", re.MULTILINE)
_LOADS = re.compile(r"(?:ld\.(?:\w+\.)*?(?:global|shared)|ldmatrix)\b")
_STORES = re.compile(r"(?:st\.(?:\w+\.)*?(?:global|shared)|cp\.async\.c[ag])")
_BARRIERS = re.compile(r"(?:bar|barrier)\.(?:cta\.)?(?:sync|red)?\b|bar\.warp\.sync")
_MBARRIERS = re.compile(r"\bmbarrier\.|\bcp\.async\.bulk")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """PTX without some work of a line.

    Attributes:
        line: of the source, from 1.
        what: the work, in a word or two: `loads`, `loads and stores`, `barrier`, `loop`.
        ptx: the whole module.
    """

    line: int
    what: str
    ptx: str


def leave_out_each_line(ptx: str, entry: str, path: str) -> tuple[LeftOut, ...]:
    """Return for each line of `path` the kernel's PTX without its accesses and barriers, and without its repetition.

    Empty for a kernel whose threads wait for copies (`mbarrier`): without one of them they would wait forever.
    """
    body = list(placed_lines(ptx, entry, path))
    if any(_MBARRIERS.search(text) for _, text, _ in body):
        return ()
    texts = ptx.splitlines()
    registers = {name: bits for bits, name in _REGISTERS.findall("\n".join(text for _, text, _ in body))}
    labels: set[str] = set()
    edits: dict[tuple[int, bool], list[tuple[int, str, str]]] = {}
    for index, text, line in body:
        if label := _LABEL.match(text):
            labels.add(label[1])
        statement = _STATEMENT.match(text)
        if statement is None or line is None:
            continue
        for kind, replaced in _replaced(statement, registers, labels):
            edits.setdefault((line, kind == "loop"), []).append((index, kind, replaced))
    start = next((index for index, text, _ in body if text.strip() == "{"), None)
    if start is None:
        return ()
    return tuple(
        LeftOut(line, _words([kind for _, kind, _ in made]), _edited(texts, start, made))
        for (line, _), made in sorted(edits.items())
    )


def _replaced(statement: re.Match[str], registers: dict[str, str], labels: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the kind of work that a statement does, and what stands in its place; nothing for any other statement."""
    opcode, operands = statement["opcode"], statement["operands"].strip()
    guard = f"@{statement['not']}{statement['guard']} " if statement["guard"] else ""
    if _LOADS.match(opcode):
        target = operands.partition("[")[0].strip().rstrip(",").strip()
        names = [name.strip() for name in target.strip("{} ").split(",")]
        zeros = [_zero(name, registers) for name in names]
        if all(zeros):
            yield "loads", "\n".join(f"\t{guard}{zero}" for zero in zeros)
    elif _STORES.match(opcode):  # whatever its own condition is
        yield "stores", f"\t@{_NEVER} {opcode} {operands};"
    elif opcode.startswith("red."):
        yield "atomics", f"\t@{_NEVER} {opcode} {operands};"
    elif opcode.startswith("atom.") and (zero := _zero(operands.partition(",")[0].strip(), registers)):
        yield "atomics", f"\t{guard}{zero}"
    elif _BARRIERS.match(opcode) and "red" not in opcode:
        yield "barrier", ""
    elif opcode in ("bra", "bra.uni") and operands in labels:
        yield "loop", f"\t@{_NEVER} bra {operands};"


def _zero(register: str, registers: dict[str, str]) -> str:
    """Return the instruction that makes a register zero; empty for one of another size."""
    bits = registers.get(re.sub(r"\d+$", "", register)) or registers.get(register)
    match bits:
        case "16":
            return f"cvt.u16.u32 {register}, {_ZERO};"
        case "32":
            return f"mov.b32 {register}, {_ZERO};"
        case "64":
            return f"mov.b64 {register}, {{{_ZERO}, {_ZERO}}};"
        case _:
            return ""


def _edited(texts: list[str], start: int, made: list[tuple[int, str, str]]) -> str:
    edited = list(texts)
    for index, _, replaced in made:
        edited[index] = replaced
    edited[start] = f"{edited[start]}\n{_HEAD}"
    return "\n".join(edited) + "\n"


def _words(kinds: list[str]) -> str:
    return " and ".join(dict.fromkeys(kinds))
