"""Words for the memory that an access touches: elements of a tensor or of a shared array, without addresses, which
differ between runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_lsp.emulate.memory import Buffer
from kernel_lsp.emulate.program import Variable

VERBS = {"read": "reads", "write": "writes", "atomic": "atomically updates"}

_MANGLED = re.compile(r"(?=(?<!\d)(\d+)([A-Za-z_]\w*))")
_AFTER_THE_NAME = re.compile(r"E?|_\d+_?")
_COMPILERS_OWN = "global_smem"  # Triton's one array, which holds whatever it likes
_NULL = 4096  # bytes at the start of memory, where no process has anything
_FARTHEST = 1 << 32  # bytes; nothing can be told from a place beyond


@dataclass(frozen=True, slots=True)
class SharedVariables:
    """The shared variables of a launch, with their offsets in the shared memory of a block."""

    offsets: Mapping[Variable, int]

    def named(self, address: int, size: int) -> str:
        """Return the place of an access: "element 3 of `tile`", "bytes 16 to 31 of `tile`" or "... of shared memory".

        It is an element where the alignment of the variable is the access's width, as that of an array's type is.
        Several dimensions are counted as one, since machine code has no more.
        """
        before = [(offset, variable) for variable, offset in self.offsets.items() if offset <= address]
        if not before:
            return f"{_bytes(address, size)} of shared memory"
        offset, variable = max(before, key=lambda one: one[0])
        name, place = _name_in(variable.name), address - offset
        if not name:
            return f"{_bytes(address, size)} of shared memory"
        element, rest = divmod(place, size)
        if rest or size != variable.align:
            return f"{_bytes(place, size)} of `{name}`"
        return f"`{name}`" if size == variable.size and not place else f"element {element:,} of `{name}`"


def touched(buffer: Buffer, index: int, size: int) -> str:
    """Return what an access of `size` bytes at byte `index` of a buffer touches: "`x[3]`", "`x[4]` to `x[7]`"."""
    name, item, place = _name(buffer), buffer.item, index - buffer.start
    if not item:
        return f"{_bytes(place, size)} of {name}"
    first, within = divmod(place, item)
    if within or size % item:
        return f"{_count(size, 'byte')} from byte {within} of {_element(buffer, first)} on"
    last = first + size // item - 1
    return _element(buffer, first) + (f" to {_element(buffer, last)}" if last > first else "")


def outside(buffer: Buffer | None, address: int, size: int) -> str:
    """Return what an access outside all buffers touches, of which `buffer` is the nearest, and why it may not."""
    index = address - buffer.address if buffer else 0
    if buffer is None or address < _NULL or not -_FARTHEST < index < _FARTHEST:
        where = "through a null pointer" if 0 <= address < _NULL else "that are in no tensor, nor near one"
        return f"{_count(size, 'byte')} {where}"
    place, name = touched(buffer, index, size), _name(buffer)
    if not -buffer.size <= index < 2 * buffer.size:  # as likely counted from another tensor
        place, name = f"what would be {place}", f"{name}, the nearest tensor,"
    if index < 0:
        return f"{place}, before the start of {name.rstrip(',')}"
    held = buffer.size - buffer.start
    has = _count(held // buffer.item, "element") if buffer.item else _count(held, "byte")
    if buffer.gaps or buffer.start:
        return f"{place}, but the memory of {name} ends after {has}"
    return f"{place}, but {name} has {has}"


def index_of(place: tuple[int, int, int], extent: tuple[int, int, int]) -> str:
    """Return an index of a thread or block in as many dimensions as there are: "3", "(3, 0)", "(3, 0, 1)"."""
    used = max((axis for axis in range(3) if extent[axis] > 1), default=0) + 1
    return str(place[0]) if used == 1 else f"({', '.join(map(str, place[:used]))})"


def _name(buffer: Buffer) -> str:
    return f"`{buffer.name}`" if buffer.name else "a tensor without a name"


def _element(buffer: Buffer, number: int) -> str:
    return f"`{buffer.name}[{number}]`" if buffer.name else f"element {number:,} of a tensor without a name"


def _bytes(first: int, size: int) -> str:
    return f"byte {first:,}" if size == 1 else f"bytes {first:,} to {first + size - 1:,}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _name_in(symbol: str) -> str:
    """Return the name that a shared variable has in the source; empty if it is the compiler's own.

    A variable of a function is mangled as `_ZZ<function>E<length><name>`, one of a namespace as `_ZN...<name>E`.
    """
    if not symbol.startswith("_Z"):
        return "" if symbol == _COMPILERS_OWN else symbol
    for found in _MANGLED.finditer(symbol):
        length, rest = int(found[1]), found[2]
        if len(rest) >= length and _AFTER_THE_NAME.fullmatch(rest[length:]):
            return rest[:length]
    return ""
