"""A few blocks of a launch in place of its whole grid.

The blocks that are left out would have written to global memory too, so its bytes are unknown afterwards, except to
whoever did not write them. A later launch may still be looked at: either nothing that it loads decides where it goes
and what it addresses (`steered_by_data`), or it ends at the first unknown value that does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_lsp.emulate.decode import Decoded
from kernel_lsp.emulate.program import Address, PtxInstruction, Register
from kernel_lsp.emulate.transfers import space_of

_LOADS = ("ld", "ldu")
_STORES = ("st", "stmatrix")


@dataclass(frozen=True, slots=True)
class BlockSample:
    """The selection of blocks to run in each launch, with their budget.

    Attributes:
        count: blocks of a launch: its first, its last, and others by chance.
        seed: of that chance.
        budget: instructions that the blocks of one launch may execute together, side by side.
        total: instructions for all launches of a run.
    """

    count: int = 3
    seed: int = 0
    budget: int = 50_000
    total: int = 200_000

    def blocks(self, grid_blocks: int, launch: int) -> tuple[int, ...]:
        """Return the linear numbers of the blocks to run, ascending, of a grid of `grid_blocks` in launch number
        `launch`.
        """
        if grid_blocks <= self.count:
            return tuple(range(grid_blocks))
        ends = (0, grid_blocks - 1)[: self.count]
        chance = random.Random(f"{self.seed} {launch}")
        others = chance.sample(range(1, grid_blocks - 1), self.count - len(ends))
        return tuple(sorted((*ends, *others)))


def steered_by_data(decoded: Decoded) -> bool:
    """Return True if values that a kernel loads may decide its branches, addresses or active threads.

    Registers are followed through the text without regard to order, shared and local memory as one cell each: it may
    say yes where no is true, never the reverse. Calls are not followed.
    """
    code = decoded.function.code
    held = set[int]()
    spaces = {"global", "param"}
    while True:
        before = len(held), len(spaces)
        for position, instruction in enumerate(code):
            _follow(decoded, position, instruction, held, spaces)
        if (len(held), len(spaces)) == before:
            break
    return any(_steers(decoded, position, instruction, held) for position, instruction in enumerate(code))


def _follow(decoded: Decoded, position: int, instruction: PtxInstruction, held: set[int], spaces: set[str]) -> None:
    """Add the registers and spaces that hold loaded values after this instruction."""
    parts, flow = instruction.parts, decoded.flow(position)
    name, space = parts[0], space_of(parts)
    space = "shared" if space == "cluster" else space
    if name in _LOADS:
        constant = "const" in parts or (space == "param" and decoded.function.entry)
        if not constant and (space in spaces or not space):
            held.update(flow.results)
    elif name == "atom" or name in ("ldmatrix", "wmma"):
        held.update(flow.results)
    elif name == "cp":
        spaces.add("shared")
    else:
        if not held.isdisjoint(flow.sources):
            held.update(flow.results)
            if name in _STORES:
                spaces.update((space,) if space else ("shared", "local"))


def _steers(decoded: Decoded, position: int, instruction: PtxInstruction, held: set[int]) -> bool:
    """Return True if one of the registers held decides this instruction's target, or its effect on others."""
    flow, name = decoded.flow(position), instruction.parts[0]
    if name == "call" or (flow.guard is not None and flow.guard in held):
        return True
    slots = decoded.slots
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register) and slots[operand.base.name] in held:
            return True
    if name == "shfl":
        return any(not held.isdisjoint(group) for group in flow.operands[1:])
    if name in ("vote", "match", "redux"):
        return not held.isdisjoint(flow.operands[-1])
    if name in ("bar", "barrier", "cp", "brx", "elect"):
        return not held.isdisjoint(flow.sources)
    return name == "wmma" and "mma" not in instruction.parts and not held.isdisjoint(flow.operands[-1])
