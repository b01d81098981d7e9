"""Control flow of machine code: basic blocks, dominators, and the loops that hold no other loop.

Loops are natural loops (Aho, Lam, Sethi, Ullman, "Compilers", section 9.6): a branch back to a block that dominates it,
and all blocks that reach it without passing there. Code that the compiler moved out of line counts where it belongs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_TARGET = re.compile(r"`\(([^)]+)\)|\.L\w+")
_JUMPS = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_START = -1  # stands before every entry


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop: the positions of its instructions in their function, in order."""

    body: tuple[int, ...]


class FlowInstruction(Protocol):
    """An instruction as the flow analysis sees it; `guard` is empty where it always executes."""

    @property
    def opcode(self) -> str: ...  # noqa: D102
    @property
    def guard(self) -> str: ...  # noqa: D102
    @property
    def operands(self) -> str: ...  # noqa: D102


def branch_targets(operands: str) -> list[str]:
    """Return the labels among the operands of a branch, including those that nvdisasm lists for a jump table."""
    return [found[1] or found[0] for found in _TARGET.finditer(operands)]


def innermost_loops(code: Sequence[FlowInstruction], labels: Mapping[str, int]) -> tuple[Loop, ...]:
    """Return the innermost loops of a function.

    Args:
        code: its instructions.
        labels: label -> position of the instruction it stands before.
    """
    blocks = _blocks(code, labels)
    loops = _loops({start: after for start, (_, after) in blocks.items()})
    innermost = [header for header, body in loops.items() if not any(h in body for h in loops if h != header)]
    return tuple(
        Loop(tuple(position for start in sorted(loops[header]) for position in range(start, blocks[start][0])))
        for header in sorted(innermost)
    )


def _blocks(code: Sequence[FlowInstruction], labels: Mapping[str, int]) -> dict[int, tuple[int, list[int]]]:
    """Return the basic blocks: first instruction -> end position, and the blocks that may follow."""
    reconvergence: dict[str, int] = {}  # barrier register -> where threads that wait at it go on
    leaves: dict[int, list[int]] = {}
    for position, operation in enumerate(code):
        base, guard, operands = operation.opcode.partition(".")[0], operation.guard, operation.operands
        targets = [labels[name] for name in branch_targets(operands) if name in labels]
        if base == "BSSY" and targets:
            reconvergence[operands.partition(",")[0].strip()] = targets[0]
        elif base == "BSYNC" and (waiting := reconvergence.get(operands.strip())) is not None:
            leaves[position] = [waiting]
        elif base in _JUMPS and targets:
            always = not guard and (base != "BRA" or re.fullmatch(r"`\([^)]+\)", operands.strip()) is not None)
            leaves[position] = targets if always else [*targets, position + 1]
        elif base in _ENDS or base in _JUMPS:
            leaves[position] = [position + 1] if guard else []
    starts = {0, *labels.values(), *(position + 1 for position in leaves)}
    starts |= {target for targets in leaves.values() for target in targets}
    ordered = sorted(start for start in starts if start < len(code))
    blocks: dict[int, tuple[int, list[int]]] = {}
    for start, end in zip(ordered, [*ordered, len(code)][1:], strict=True):
        after = leaves.get(end - 1, [end])
        blocks[start] = end, [target for target in after if target < len(code)]
    return blocks


def _loops(after: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
    """Return header block -> blocks of its loop. Loops with the same header count as one."""
    before: dict[int, set[int]] = {block: set() for block in after}
    for block, targets in after.items():
        for target in targets:
            before[target].add(block)
    entries = [block for block in sorted(after) if block == 0 or not before[block]]
    order = _postorder(entries, after)
    dominator = _dominators(order, before, entries)

    def dominates(header: int, block: int) -> bool:
        while block != _START and block != header:
            block = dominator[block]
        return block == header

    loops: dict[int, set[int]] = {}
    for block in order:
        for header in after[block]:
            if dominates(header, block):
                body = loops.setdefault(header, {header})
                pending = [block]
                while pending:
                    inside = pending.pop()
                    if inside not in body:
                        body.add(inside)
                        pending += before[inside] & dominator.keys()
    return loops


def _postorder(entries: Sequence[int], after: Mapping[int, Sequence[int]]) -> list[int]:
    order: list[int] = []
    seen: set[int] = set()
    for entry in entries:
        pending = [(entry, False)]
        while pending:
            block, done = pending.pop()
            if done:
                order.append(block)
            elif block not in seen:
                seen.add(block)
                pending.append((block, True))
                pending += ((target, False) for target in after[block] if target not in seen)
    return order


def _dominators(order: Sequence[int], before: Mapping[int, set[int]], entries: Sequence[int]) -> dict[int, int]:
    """Return block -> immediate dominator, by the iteration of Cooper, Harvey and Kennedy (2001) over a postorder.

    `_START` dominates all entries: the function's own and those of the functions that it calls within the same code.
    """
    number = {block: position for position, block in enumerate(order)} | {_START: len(order)}
    dominator = {_START: _START} | dict.fromkeys(entries, _START)

    def meet(one: int, other: int) -> int:
        while one != other:
            if number[one] < number[other]:
                one = dominator[one]
            else:
                other = dominator[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            if block in entries:
                continue
            known = [one for one in before[block] if one in dominator]
            now = known[0]
            for one in known[1:]:
                now = meet(now, one)
            if dominator.get(block) != now:
                dominator[block], changed = now, True
    return dominator
