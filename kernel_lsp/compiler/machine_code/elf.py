"""Reads sections and symbols of an ELF image, as far as cubins need them (System V ABI)."""

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One section. `size` also counts a section that has no bytes in the image, such as shared memory."""

    name: str
    flags: int
    link: int
    data: memoryview
    size: int
    address: int


@dataclass(frozen=True, slots=True)
class MappedSegment:
    """A part of memory that the loader makes of an image: its kind, its rights, from which address to which."""

    kind: int
    flags: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """One symbol: its name, the number of its section, its offset in that section, its size in bytes, and its type."""

    name: str
    section: int
    value: int
    size: int = 0
    kind: int = 0


def read_sections(image: bytes | bytearray) -> list[Section]:
    """Return all sections by number, as views of the image; they are writable if the image is.

    Raises:
        struct.error, IndexError, ValueError: not a whole 64-bit ELF image.
    """
    (table,) = struct.unpack_from("<Q", image, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry_size) for i in range(count)]
    names_offset = headers[names_index][4]
    view = memoryview(image)
    return [
        Section(read_string(image, names_offset + name), flags, link, view[offset : offset + size], size, address)
        for name, _, flags, address, offset, size, link, *_ in headers
    ]


def read_segments(image: bytes) -> list[MappedSegment]:
    """Return what the loader maps of an image; raises as `read_sections`."""
    (table,) = struct.unpack_from("<Q", image, 32)
    entry_size, count = struct.unpack_from("<HH", image, 54)
    headers = (struct.unpack_from("<IIQQQQQQ", image, table + i * entry_size) for i in range(count))
    return [MappedSegment(kind, flags, start, start + size) for kind, flags, _, start, _, _, size, _ in headers]


def read_symbols(table: Section, sections: list[Section]) -> list[ElfSymbol]:
    """Return the symbols of the symbol table `table`, by number; raises as `read_sections`."""
    strings = bytes(sections[table.link].data)
    return [
        ElfSymbol(read_string(strings, name), section, value, size, kind & 0xF)
        for name, kind, _, section, value, size in struct.iter_unpack("<IBBHQQ", table.data)
    ]


def read_string(data: bytes | bytearray, start: int) -> str:
    """Return the text from `start` to the next zero byte."""
    return data[start : data.index(b"\0", start)].decode()
