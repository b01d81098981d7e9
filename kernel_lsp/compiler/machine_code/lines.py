"""Maps machine code to source lines: reads the line table of a cubin, with inlined calls.

The table is DWARF 3 (`.debug_line`) with one opcode of NVIDIA's: it names the row of the same function that holds the
call an instruction was inlined at. This reader takes a millisecond; `nvdisasm -gi` takes 0.25 s and cannot count
registers in the same run. Both agree on all kernels that `tests/bench/facts_agreement.py` builds.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_lsp.compiler.machine_code.cubin import CubinError
from kernel_lsp.compiler.machine_code.elf import Section, read_sections, read_string, read_symbols
from kernel_lsp.source.compiler_paths import joined, unescaped

_TEXT = ".text."
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS, _INLINED_AT = 0x01, 0x02, 0x90


@dataclass(frozen=True, slots=True)
class Place:
    """A line, from 1, of the file at `path`, spelled as the compiler was given it."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class LineTable:
    """Source lines of one function: from the offset `starts[i]` on, code belongs to `frames[i]`."""

    starts: tuple[int, ...]
    frames: tuple[tuple[Place, ...], ...]

    def at(self, offset: int) -> tuple[Place, ...]:
        """Return the places of the instruction at `offset`: its own line, then the calls it was inlined at.

        Empty where the table has no entry.
        """
        index = bisect_right(self.starts, offset) - 1
        return self.frames[index] if index >= 0 else ()


@dataclass(frozen=True, slots=True)
class _Row:
    function: str
    offset: int
    place: Place | None  # None at the end of a function's code
    caller: int  # row, from 1, of the call that this was inlined at; 0 if it was not


def read_lines(cubin: bytes) -> dict[str, LineTable]:
    """Return the line table of each function by symbol; empty where there is no line information.

    Raises:
        CubinError: not a cubin, or its line table cannot be read.
    """
    try:
        sections = read_sections(cubin)
        table = next((section for section in sections if section.name == ".debug_line"), None)
        rows = _rows(bytes(table.data), _functions(sections)) if table else ()
        by_function: dict[str, list[_Row]] = {}
        for row in rows:
            by_function.setdefault(row.function, []).append(row)
        return {function: _table(its_rows) for function, its_rows in by_function.items()}
    except (struct.error, IndexError, ValueError, KeyError) as error:
        raise CubinError(f"no readable line table: {error}") from error


def _table(rows: list[_Row]) -> LineTable:
    # Of several rows at one offset the last counts; the others exist to be named as callers.
    frames = {row.offset: tuple(_frames(row, rows)) for row in rows}
    starts = sorted(frames)
    return LineTable(tuple(starts), tuple(frames[start] for start in starts))


def _frames(row: _Row, rows: list[_Row]) -> Iterator[Place]:
    for _ in range(len(rows)):
        if row.place is not None:
            yield row.place
        if not row.caller:
            return
        row = rows[row.caller - 1]


def _functions(sections: list[Section]) -> dict[int, str]:
    """Return offset of an address in the line table -> the function whose address is filled in there at load time."""
    functions: dict[int, str] = {}
    for relocations in sections:
        if relocations.name in (".rela.debug_line", ".rel.debug_line"):
            symbols = read_symbols(sections[relocations.link], sections)
            layout = "<QQq" if relocations.name.startswith(".rela") else "<QQ"
            for offset, info, *_ in struct.iter_unpack(layout, relocations.data):
                section = sections[symbols[info >> 32].section].name
                functions[offset] = section.removeprefix(_TEXT)
    return functions


def _rows(data: bytes, functions: dict[int, str]) -> Iterator[_Row]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        yield from _unit(data, at + 4, at + 4 + length, functions)
        at += 4 + length


def _unit(data: bytes, at: int, end: int, functions: dict[int, str]) -> Iterator[_Row]:
    version, header = struct.unpack_from("<HI", data, at)
    if version not in (2, 3):
        raise ValueError(f"DWARF version {version}")
    step, _, line_base, line_range, opcode_base = struct.unpack_from("<BBbBB", data, at + 6)
    lengths = data[at + 11 : at + 10 + opcode_base]
    files = _files(data, at + 10 + opcode_base)
    at += 6 + header
    function, offset, file, line, caller = "", 0, 1, 1, 0
    while at < end:
        opcode = data[at]
        at += 1
        if opcode >= opcode_base:
            advance, line_step = divmod(opcode - opcode_base, line_range)
            offset += advance * step
            line += line_base + line_step
            yield _Row(function, offset, Place(files[file], line), caller)
        elif opcode == 0:
            size, at = _unsigned(data, at)
            kind, operand = data[at], at + 1
            at += size
            if kind == _SET_ADDRESS:
                function, offset = functions[operand], struct.unpack_from("<Q", data, operand)[0]
            elif kind == _INLINED_AT:
                caller, _ = _unsigned(data, operand)
            elif kind == _END_SEQUENCE:
                yield _Row(function, offset, None, 0)
                function, offset, file, line, caller = "", 0, 1, 1, 0
        elif opcode == _COPY:
            yield _Row(function, offset, Place(files[file], line), caller)
        elif opcode == _ADVANCE_PC:
            amount, at = _unsigned(data, at)
            offset += amount * step
        elif opcode == _ADVANCE_LINE:
            amount, at = _signed(data, at)
            line += amount
        elif opcode == _SET_FILE:
            file, at = _unsigned(data, at)
        elif opcode == _CONST_ADD_PC:
            offset += (255 - opcode_base) // line_range * step
        elif opcode == _FIXED_ADVANCE_PC:
            offset += struct.unpack_from("<H", data, at)[0]
            at += 2
        else:
            for _ in range(lengths[opcode - 1]):
                _, at = _unsigned(data, at)


def _files(data: bytes, at: int) -> list[str]:
    """Return the paths by their numbers in the table, which begin at 1."""
    folders = [""]
    while data[at]:
        folders.append(read_string(data, at))
        at += len(folders[-1].encode()) + 1
    at += 1
    files = [""]
    while data[at]:
        name = read_string(data, at)
        at += len(name.encode()) + 1
        folder, at = _unsigned(data, at)
        for _ in range(2):  # time and size
            _, at = _unsigned(data, at)
        files.append(joined(folders[folder], name) if folder and not name.startswith("/") else unescaped(name))
    return files


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, after = _unsigned(data, at)
    bits = 7 * (after - at)
    return (value - (1 << bits) if value >> (bits - 1) else value), after
