"""Resources of the kernels in a cubin, read from the ELF image itself: no toolkit, no GPU, about 0.1 ms.

The layout is that of `readelf -S` plus NVIDIA's `.nv.info` attributes, with the meanings that `cuobjdump -elf` prints.
Two generations are in use: toolkits up to 12 write ABI 7 for architectures before sm_100, everything newer ABI 8.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence

from kernel_lsp.compiler.machine_code.binary import KernelFacts
from kernel_lsp.compiler.machine_code.elf import Section, read_sections, read_symbols

_CUDA_MACHINE = 190
_FORMAT_SIZED = 0x04

# Attributes of `.nv.info` (for all kernels, by symbol) and `.nv.info.KERNEL`.
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_PARAMETER = 0x17
REGISTERS = 0x2F
_LARGE_PARAMETER = 0x45  # replaces the former where a kernel takes more bytes than its field can count
_BARRIERS = 0x4C

_SYSTEM_SHARED_BYTES = 1024  # included in `.nv.shared.KERNEL` from sm_90 on; before, it is not in the image
_PARAMETERS = ".nv.constant0."
_UNKNOWN = 0xFFFFFFFF  # stack of a recursive function


class CubinError(ValueError):
    """The bytes are not a cubin this reader understands."""


def read_cubin(cubin: bytes, names: Mapping[str, str] | None = None) -> tuple[KernelFacts, ...]:
    """Return the facts of every kernel in `cubin`, in the order of their names; the spill counts are None.

    Args:
        cubin: an ELF image as NVRTC, nvcc, ptxas or Triton makes it.
        names: entry symbol -> what the user calls the kernel; an entry not in it is called by its symbol.

    Raises:
        CubinError: not a cubin, or cut short.
    """
    try:
        return _read(cubin, names or {})
    except (struct.error, IndexError, ValueError) as error:
        raise CubinError(f"not a readable cubin: {error}") from error


def cubin_arch(cubin: bytes) -> str:
    """Return the architecture that a cubin was made for, `sm_90` and the like.

    Raises:
        CubinError: not a cubin.
    """
    if cubin[:4] != b"\x7fELF" or len(cubin) < 64 or struct.unpack_from("<H", cubin, 18) != (_CUDA_MACHINE,):
        raise CubinError("not a readable cubin: no ELF image for CUDA")
    (flags,) = struct.unpack_from("<I", cubin, 48)
    abi = cubin[8]
    return f"sm_{(flags >> 8 if abi >= 8 else flags) & 0xFF}"


def code_digest(cubin: bytes) -> str:
    """Return SHA-256 of the instructions and constants in a cubin; line tables and file names do not count.

    Raises:
        CubinError: as `read_cubin`.
    """
    return _digest(_code_sections(cubin))


def kernel_digests(cubin: bytes) -> dict[str, str]:
    """Return, by kernel symbol, SHA-256 of the kernel's code and constants and of all that it shares with others.

    Raises:
        CubinError: as `read_cubin`.
    """
    sections = _code_sections(cubin)
    entries = [s.name.removeprefix(_PARAMETERS) for s in sections if s.name.startswith(_PARAMETERS)]
    owners = {section.name: next((e for e in entries if section.name.endswith(f".{e}")), None) for section in sections}
    return {e: _digest([s for s in sections if owners[s.name] in (None, e)]) for e in entries}


def _code_sections(cubin: bytes) -> list[Section]:
    try:
        sections = sorted(read_sections(cubin), key=lambda section: section.name)
    except (struct.error, IndexError, ValueError) as error:
        raise CubinError(f"not a readable cubin: {error}") from error
    return [section for section in sections if section.name.startswith((".text.", ".nv.constant", ".nv.global"))]


def _digest(sections: Sequence[Section]) -> str:
    digest = hashlib.sha256()
    for section in sections:
        digest.update(f"{section.name} {section.size} ".encode())
        digest.update(section.data)
    return digest.hexdigest()


def _read(cubin: bytes, names: Mapping[str, str]) -> tuple[KernelFacts, ...]:
    reserved = _SYSTEM_SHARED_BYTES if int(cubin_arch(cubin).removeprefix("sm_")) >= 90 else 0
    sections = read_sections(cubin)
    by_name = {section.name: section for section in sections}
    symbols = read_symbols(by_name[".symtab"], sections) if ".symtab" in by_name else []
    totals: dict[int, dict[str, int]] = {REGISTERS: {}, _FRAME_SIZE: {}, _MIN_STACK_SIZE: {}}
    if ".nv.info" in by_name:
        for attribute, value in info_attributes(by_name[".nv.info"].data):
            if attribute in totals:
                symbol, amount = struct.unpack_from("<II", value)
                totals[attribute][symbols[symbol].name] = amount
    # A `__device__` function that was not inlined has a `.text` too; only kernels have attributes of their own with
    # a parameter block, which stands in `.nv.constant0`.
    entries = sorted(name.removeprefix(_PARAMETERS) for name in by_name if name.startswith(_PARAMETERS))
    facts: list[KernelFacts] = []
    for entry in entries:
        text = by_name[f".text.{entry}"]
        info = by_name.get(f".nv.info.{entry}")
        shared = by_name.get(f".nv.shared.{entry}")
        parameters: list[tuple[int, int, int]] = []
        barriers = text.flags >> 20 & 0x7F  # ABI 7 keeps the count here, ABI 8 in an attribute
        threads: dict[int, tuple[int, int, int]] = {}
        for attribute, value in info_attributes(info.data) if info else ():
            if attribute == _PARAMETER:
                _, ordinal, offset, size = struct.unpack_from("<IHHI", value)
                parameters.append((ordinal, offset, size >> 18))
            elif attribute == _LARGE_PARAMETER:
                _, ordinal, offset, size = struct.unpack_from("<IHHI", value)
                parameters.append((ordinal, offset, size))
            elif attribute == _BARRIERS:
                barriers = value[0]
            elif attribute in (_MAX_THREADS, _REQUIRED_THREADS):
                threads[attribute] = struct.unpack_from("<III", value)
        stack = (totals[_FRAME_SIZE].get(entry, 0), totals[_MIN_STACK_SIZE].get(entry, 0))
        facts.append(
            KernelFacts(
                entry=entry,
                name=names.get(entry, entry),
                registers=totals[REGISTERS].get(entry, 0),
                stack_bytes=max(amount for amount in (*stack, 0) if amount != _UNKNOWN),
                shared_bytes=max(shared.size - reserved, 0) if shared else 0,
                parameters=tuple((offset, size) for _, offset, size in sorted(parameters)),
                barriers=barriers,
                max_threads=threads.get(_MAX_THREADS),
                required_threads=threads.get(_REQUIRED_THREADS),
            )
        )
    return tuple(facts)


def info_attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the attributes of a `.nv.info` section: number, and value as a view of the image."""
    at = 0
    while at + 4 <= len(data):
        form, attribute = data[at], data[at + 1]
        if form == _FORMAT_SIZED:
            (size,) = struct.unpack_from("<H", data, at + 2)
            yield attribute, data[at + 4 : at + 4 + size]
            at += 4 + size
        else:
            yield attribute, data[at + 2 : at + 4]
            at += 4
