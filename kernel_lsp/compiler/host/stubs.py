"""Finds the kernels' host stubs in a library: the range of their code, and the template instances they launch."""

from dataclasses import dataclass

from kernel_lsp.compiler.machine_code.elf import read_sections, read_symbols
from kernel_lsp.compiler.machine_code.symbols import declared_name, demangle, kernel_name

_FUNCTION = 2
_ANONYMOUS = "(anonymous namespace)::"


@dataclass(frozen=True, slots=True)
class Stub:
    """The host stub of one kernel.

    Attributes:
        start: offset of its code from the start of the library.
        end: end of its code, exclusive.
        symbol: its mangled name.
        name: as a launch would write it, `ops::scale<float, 256>`.
    """

    start: int
    end: int
    symbol: str
    name: str


def read_stubs(library: bytes, kernels: frozenset[str]) -> tuple[Stub, ...]:
    """Return the stubs of `kernels` in a host library, in order of address.

    `kernels` are names with namespaces and without template arguments.
    """
    sections = read_sections(library)
    table = next(section for section in sections if section.name == ".symtab")
    found: list[Stub] = []
    for symbol in read_symbols(table, sections):
        if not symbol.size or not symbol.section or "." in symbol.name:
            continue
        name = kernel_name(symbol.name)
        if declared_name(demangle(symbol.name)).removeprefix("void ").replace(_ANONYMOUS, "") in kernels:
            found.append(Stub(symbol.value, symbol.value + symbol.size, symbol.name, name))
    return tuple(sorted(found, key=lambda stub: stub.start))
