"""Packs a launch for the hardware: grid and block, and arguments as the bytes that a kernel reads."""

import ctypes
import math
import re
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any

from kernel_lsp.errors import NotBuiltError, WorkloadError

_ADDRESS = struct.Struct("<Q")
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_FLOATING = re.compile(r"float|double|half")
_INTEGRAL = re.compile(r"int|long|short|char|bool|size_t|unsigned|\*")
_UNSIGNED = re.compile(r"\bu|\bsize_t|bool|\*")
_TENSOR_MAP_BYTES = 128
_VECTOR = re.compile(r"(char|short|int|long|float|double|half|bfloat16)[234]\b(?!.*\*)")


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Blocks in x, y, z; threads of each in x, y, z; bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


def launch_shape(shape: Any, kernel: str) -> LaunchShape:
    """Return the launch configuration in `module.kernel[grid, block, shared_bytes]`.

    Raises:
        WorkloadError: the brackets hold no launch configuration.
    """
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise WorkloadError(f"launch `{kernel}` as `module.{kernel}[grid, block](...)`")
    grid, block = (_three(part, kernel) for part in shape[:2])
    return LaunchShape(grid, block, _whole(shape[2], kernel) if len(shape) == 3 else 0)


def missing_kernel(name: str, built: Collection[str], declared: Collection[str]) -> WorkloadError:
    """Return the error for a launch of a kernel that was not built.

    Args:
        name: what `launch` asks for, such as `scale` or `sum<256>`.
        built: names that can be launched.
        declared: kernels in the source; instances of a template among them are built as far as they are known.
    """
    known = ", ".join(sorted(built)) or "none"
    said = f"`launch` asks for a kernel `{name}` that the file does not have (it has: {known})"
    return NotBuiltError(said) if "<" in name and name.partition("<")[0] in declared else WorkloadError(said)


def pack_arguments(kernel: str, values: Sequence[Any], sizes: Sequence[int], types: Sequence[str]) -> list[bytes]:
    """Return the packed arguments of a launch, given `sizes` from the compiled kernel and `types` from the source.

    Raises:
        WorkloadError: there are too many or too few, or one cannot be what the kernel reads.
    """
    if len(values) != len(sizes):
        raise WorkloadError(f"`{kernel}` takes {len(sizes)} arguments, `launch` gives {len(values)}")
    declared = chain(types, repeat(""))
    packed: list[bytes] = []
    try:
        for value, size, kind in zip(values, sizes, declared):  # noqa: B905  # types of templates may be fewer
            packed.append(_pack(value, size, kind))
    except _UnfitError as unfit:
        raise WorkloadError(f"`{kernel}` argument {len(packed)} is {unfit}") from None
    return packed


def pack_argument(value: Any, size: int, declared: str, what: str) -> bytes:
    """Return one argument as the `size` bytes that the compiled kernel reads; `declared` is its type in the source.

    A tensor is passed as its address. A Python number takes the parameter's size; the declared type decides between
    signed, unsigned and floating point, and where a template hides it, the Python type does. For a pointer, a number is
    an address. A numpy scalar passes its own bytes, and so does a `CUtensorMap` of CUDA's Python bindings.

    Raises:
        WorkloadError: the value cannot be what the kernel reads; it is called `what`.
    """
    try:
        return _pack(value, size, declared)
    except _UnfitError as unfit:
        raise WorkloadError(f"{what} is {unfit}") from None


class _UnfitError(Exception):
    """A value is not what a kernel reads; the text follows "is"."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """How a type in the source packs a Python number."""

    floating: bool
    integral: bool
    unsigned: bool
    truth: bool
    bfloat16: bool
    vector: bool

    @classmethod
    @cache
    def of(cls, text: str) -> "_Declared":
        """Read a type; a launch packs each of its arguments anew, and a kernel is launched often."""
        floating = bool(_FLOATING.search(text)) and "*" not in text
        return cls(
            floating=floating,
            integral=not floating and bool(_INTEGRAL.search(text)),
            unsigned=bool(_UNSIGNED.search(text)),
            truth="bool" in text,
            bfloat16="bfloat16" in text,
            vector=bool(_VECTOR.search(text)),
        )


def _pack(value: Any, size: int, declared: str) -> bytes:
    if type(value) in (bool, int, float):
        return _pack_number(value, size, declared)
    if hasattr(value, "data_ptr"):
        address = _ADDRESS.pack(value.data_ptr())
        return address if size == _ADDRESS.size else _sized(address, size, "a tensor")
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return _sized(value.tobytes(), size, f"a {value.dtype} scalar")
    if hasattr(value, "getPtr"):
        if size != _TENSOR_MAP_BYTES:
            raise _UnfitError(f"a {type(value).__name__}, but the kernel reads {size} bytes there")
        return ctypes.string_at(int(value.getPtr()), size)
    if not isinstance(value, (bool, int, float)):
        raise _UnfitError(f"a {type(value).__name__}; pass a tensor, a number or a numpy scalar")
    return _pack_number(value, size, declared)


def _pack_number(value: float, size: int, declared: str) -> bytes:
    kind = _Declared.of(declared)
    if kind.vector:
        raise _UnfitError(f"the number {value}, but the kernel declares `{declared.strip()}`")
    if isinstance(value, float) and kind.integral:
        raise _UnfitError(f"the float {value}, but the kernel declares `{declared.strip()}`")
    try:
        if kind.floating or isinstance(value, float):
            if size not in _FLOATS:
                raise _UnfitError(f"a float, but the kernel reads {size} bytes there")
            number = float(value)
            return _bfloat16(number) if kind.bfloat16 and size == 2 else struct.pack(_FLOATS[size], number)
        if kind.truth:
            value = bool(value)
        signed = not kind.unsigned if kind.integral else value < 0
        return int(value).to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise _UnfitError(f"{value}, which does not fit the {size} bytes the kernel reads") from None


def _bfloat16(value: float) -> bytes:
    """Return the bfloat16 bytes of a number, rounded to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if math.isfinite(value):
        bits += 0x7FFF + (bits >> 16 & 1)
        if bits & 0x7F80_0000 == 0x7F80_0000:
            raise OverflowError
    return struct.pack("<I", bits)[2:]


def _sized(data: bytes, size: int, kind: str) -> bytes:
    if len(data) != size:
        raise _UnfitError(f"{kind} of {len(data)} bytes, but the kernel reads {size} bytes there")
    return data


def _three(shape: Any, kernel: str) -> tuple[int, int, int]:
    if type(shape) is int:
        return shape, 1, 1
    extents = [_whole(one, kernel) for one in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if not 1 <= len(extents) <= 3:
        raise WorkloadError(f"`{kernel}` is launched with {shape!r}; a grid or block has one to three extents")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _whole(number: Any, kernel: str) -> int:
    if type(number) is int:
        return number
    if (whole := int(number)) != number:
        fix = "Round up, as in `(n + 255) // 256`."
        raise WorkloadError(f"`{kernel}` is launched with {number}, which is no whole number", fix=fix)
    return whole
