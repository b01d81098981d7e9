"""Machine code (SASS) as records: instructions with source lines and live registers, loops, and counts by line.

`nvdisasm` runs once for each cubin; its listing is cached. Safe in the parent process: nothing heavy is imported and
none of the user's code is run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernel_lsp.compiler.machine_code.flow import Loop, branch_targets, innermost_loops
from kernel_lsp.compiler.machine_code.lines import Place, read_lines
from kernel_lsp.compiler.machine_code.nvdisasm import listing
from kernel_lsp.compiler.machine_code.opcodes import kind_of
from kernel_lsp.compiler.toolchain.file_cache import FileCache

_FUNCTION = re.compile(r"^\.text\.(\S+?):")
_LABEL = re.compile(r"^(\.L\w+|\$\S+?|[\w$.]+):")
_INSTRUCTION = re.compile(
    r"^\s+/\*(?P<offset>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*?)\s*;"
    r"\s*// \|\s*(?P<live>\d*)"
)


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction.

    Attributes:
        offset: bytes from the start of its function.
        guard: predicate it depends on, `P0` or `!UP1`; empty where it always executes.
        opcode: with all its modifiers, `LDG.E.128`.
        operands: as nvdisasm prints them; branch targets are labels.
        frames: source lines it comes from, its own first, then the calls it was inlined at; empty if unknown.
        live: general registers in use at it, for one thread.
    """

    offset: int
    guard: str
    opcode: str
    operands: str
    frames: tuple[Place, ...]
    live: int

    @property
    def kind(self) -> str:
        """Return its short name; see `kind_of`."""
        return kind_of(self.opcode)

    def line_in(self, path: str) -> int | None:
        """Return the innermost line of `path` that it comes from; None if there is none."""
        return next((place.line for place in self.frames if place.path == path), None)


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of one function.

    Attributes:
        function: its symbol.
        instructions: in order, without the padding at the end.
        loops: the innermost ones, in order of their first instruction.
        labels: names of branch targets, each with the index of its instruction.
    """

    function: str
    instructions: tuple[SassInstruction, ...]
    loops: tuple[Loop, ...]
    labels: tuple[tuple[str, int], ...] = ()

    @property
    def peak(self) -> SassInstruction | None:
        """Return the first instruction with the most live registers; None if there are no instructions."""
        return max(self.instructions, key=lambda one: one.live, default=None)

    def body(self, loop: Loop) -> tuple[SassInstruction, ...]:
        """Return the instructions of one of its loops."""
        return tuple(self.instructions[index] for index in loop.body)


@dataclass(frozen=True, slots=True)
class LineCode:
    """The machine code of one source line.

    Attributes:
        line: from 1.
        instructions: number of them.
        kinds: number of each kind (see `Instruction.kind`), most frequent first.
        live: most registers in use at one of them.
    """

    line: int
    instructions: int
    kinds: dict[str, int]
    live: int


def mix(instructions: Iterable[SassInstruction]) -> dict[str, int]:
    """Return the number of instructions of each kind, most frequent first."""
    return dict(Counter(one.kind for one in instructions).most_common())


def by_line(code: MachineCode, path: str) -> tuple[LineCode, ...]:
    """Return the machine code of each line of `path`, by line; inlined code counts at the line of its call."""
    lines: dict[int, list[SassInstruction]] = {}
    for instruction in code.instructions:
        if (line := instruction.line_in(path)) is not None:
            lines.setdefault(line, []).append(instruction)
    return tuple(
        LineCode(line, len(lines[line]), mix(lines[line]), max(one.live for one in lines[line]))
        for line in sorted(lines)
    )


def disassemble(cubin: bytes, cache: FileCache | None = None, *, by_triton: bool = False) -> tuple[MachineCode, ...]:
    """Return the code of every function in `cubin`, in the order of the listing.

    Args:
        cubin: an ELF image.
        cache: where listings are looked up and kept.
        by_triton: whether Triton's own toolkit made it, so that its own nvdisasm is asked first.

    Raises:
        CannotJudgeError: there is no nvdisasm that can read it.
        CubinError: not a cubin.
    """
    return read_listing(listing(cubin, cache, by_triton=by_triton), cubin)


def read_listing(printed: str, cubin: bytes) -> tuple[MachineCode, ...]:
    """Return the machine code in a listing printed by `nvdisasm -c -lrm count` for `cubin`.

    Raises:
        CubinError: `cubin` is none.
    """
    tables = read_lines(cubin)
    places: dict[Place, Place] = {}  # shares equal records: there are far fewer places than instructions
    found: list[MachineCode] = []
    for function, lines in _functions(printed.splitlines()):
        table = tables.get(function)
        labels: dict[str, int] = {}
        instructions: list[SassInstruction] = []
        for line in lines:
            if instruction := _INSTRUCTION.match(line):
                offset = int(instruction["offset"], 16)
                frames = tuple(places.setdefault(place, place) for place in table.at(offset)) if table else ()
                instructions.append(
                    SassInstruction(
                        offset,
                        instruction["guard"] or "",
                        instruction["opcode"],
                        instruction["operands"],
                        frames,
                        int(instruction["live"] or 0),
                    )
                )
            elif label := _LABEL.match(line):
                labels[label[1]] = len(instructions)
        code = _without_padding(instructions, labels)
        targets = tuple((name, index) for name, index in labels.items() if index < len(code))
        found.append(MachineCode(function, code, innermost_loops(code, labels), targets))
    return tuple(found)


def _functions(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    starts = [(number, found[1]) for number, line in enumerate(lines) if (found := _FUNCTION.match(line))]
    ends = [number for number, _ in starts[1:]] + [len(lines)]
    for (start, function), end in zip(starts, ends, strict=True):
        yield function, lines[start + 1 : end]


def _without_padding(instructions: list[SassInstruction], labels: Mapping[str, int]) -> tuple[SassInstruction, ...]:
    """Return the instructions without the padding at the end: NOPs, and an unreachable branch to itself before them."""
    end = len(instructions)
    while end and instructions[end - 1].opcode == "NOP":
        end -= 1
    last = instructions[end - 1] if end else None
    if last and last.opcode == "BRA" and any(labels.get(name) == end - 1 for name in branch_targets(last.operands)):
        end -= 1
    return tuple(instructions[:end])
