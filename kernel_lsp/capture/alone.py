"""Makes a workload of a snapshot: of a kernel that a program launches whose functions are not seen, such as one in C++.

The kernel's text must be in the working folder. It is launched with the grid and block of the kept launch, on memory
like that.
"""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kernel_lsp.capture.device_record import launches_of
from kernel_lsp.capture.snapshot import Snapshot
from kernel_lsp.compiler.machine_code.symbols import declared_name, demangle
from kernel_lsp.errors import CannotJudgeError, SourceError
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.files import read_source
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import between_commas
from kernel_lsp.workload.capture import Capture, CapturedCase, LaunchedAlone

_SCRIPT = Path(__file__).parent / "inject" / "describe_launch.py"
_SECONDS = 300.0
_SUFFIXES = (".cu", ".cuh")
_SKIPPED = frozenset(("build", "dist", "node_modules", "site-packages", "third_party"))
_MOST_FILES = 500
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|signed)\b|\bstd::|\s+")
_TENSORS = {
    "float": "float32", "double": "float64", "__half": "float16", "half": "float16", "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16", "bool": "bool", "char": "int8", "int8_t": "int8", "unsignedchar": "uint8",
    "uint8_t": "uint8", "short": "int16", "int16_t": "int16", "int": "int32", "int32_t": "int32",
    "unsignedint": "int32", "unsigned": "int32", "uint32_t": "int32", "long": "int64", "longlong": "int64",
    "int64_t": "int64", "unsignedlong": "int64", "unsignedlonglong": "int64", "uint64_t": "int64", "size_t": "int64",
}  # fmt: skip
_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4}
_NUMBERS = {
    "float": "f", "double": "d", "bool": "?", "char": "b", "int8_t": "b", "unsignedchar": "B", "uint8_t": "B",
    "short": "h", "int16_t": "h", "unsignedshort": "H", "uint16_t": "H", "int": "i", "int32_t": "i", "unsignedint": "I",
    "unsigned": "I", "uint32_t": "I", "long": "q", "longlong": "q", "int64_t": "q", "unsignedlong": "Q",
    "unsignedlonglong": "Q", "uint64_t": "Q", "size_t": "Q",
}  # fmt: skip


class NoWorkloadError(CannotJudgeError):
    """A kept launch of which no workload can be made; its message is the reason."""


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An argument that is the address of elements of a type, as torch calls it."""

    name: str
    dtype: str
    address: int


def capture_alone(snapshot: Snapshot, program: str, records: Path) -> Capture:
    """Return the capture of a kept launch's kernel.

    Args:
        snapshot: the launch.
        program: name of the program that made it.
        records: folder of the program's records, which have the GPU times.

    Raises:
        NoWorkloadError: the text is not in the working folder, or the kernel takes something else than pointers and
            numbers.
    """
    kernel, text = _text_of(snapshot)
    types = _types(snapshot, kernel)
    names = [parameter.name or f"arg{number}" for number, parameter in enumerate(kernel.parameters)]
    given = list(_arguments(snapshot, names, types))
    described, mutated = _described(snapshot, [one for one in given if isinstance(one, _Pointer)])
    arguments = {
        name: described[name] if isinstance(one, _Pointer) else one for name, one in zip(names, given, strict=True)
    }
    launches, same, seconds, whole = launches_of(records, snapshot.symbol, snapshot.grid, snapshot.block)
    count = max(same, 1)
    return Capture(
        program=program,
        kernel=str(kernel.path.resolve()),
        function=snapshot.name,
        kernels=(kernel.name,),
        text=text,
        cases=(CapturedCase(arguments, mutated, 0, count, seconds),),
        calls=max(launches, count),
        dropped={"with another grid or block": launches - same} if launches > same else {},
        seconds=seconds,
        gpu_seconds=seconds,
        program_gpu_seconds=whole,
        launched=LaunchedAlone(snapshot.grid, snapshot.block, snapshot.shared, tuple(types)),
    )


def _text_of(snapshot: Snapshot) -> tuple[Kernel, str]:
    """Return the kernel in the project's text, and the text."""
    wanted = declared_name(snapshot.name)
    found: list[tuple[Kernel, str]] = []
    for path in _files(Path.cwd()):
        try:
            source = read_source(path)
        except SourceError:
            continue
        if wanted.rpartition("::")[2] in source.text:
            kernels = find_cuda_kernels(source.text, path)
            found += [(kernel, source.text) for kernel in kernels if kernel.name == wanted]
    if not found:
        raise NoWorkloadError(f"no .cu file of the working folder defines `{wanted}`")
    if len(found) > 1:
        files = ", ".join(dict.fromkeys(str(kernel.path) for kernel, _ in found))
        raise NoWorkloadError(f"`{wanted}` is defined more than once: {files}")
    return found[0]


def _files(root: Path) -> Iterator[Path]:
    found = 0
    for above, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(_SUFFIXES) and (found := found + 1) <= _MOST_FILES:
                yield Path(above) / name


def _types(snapshot: Snapshot, kernel: Kernel) -> list[str]:
    """Return the types of the parameters: by the symbol, where template parameters have their values, else the text."""
    declaration = demangle(snapshot.symbol)
    if declaration == snapshot.symbol:
        types = [parameter.type for parameter in kernel.parameters]
    else:
        given = declaration[declaration.rindex(snapshot.name) + len(snapshot.name) + 1 : -1]
        types = [one for part in between_commas(given, "([{<", ")]}>") if (one := part.strip())]
    if len(types) != len(snapshot.parameters) or len(types) != len(kernel.parameters):
        raise NoWorkloadError(f"the text of `{kernel.name}` has other parameters than the kernel that was launched")
    return types


def _arguments(snapshot: Snapshot, names: Sequence[str], types: Sequence[str]) -> Iterator[_Pointer | dict[str, Any]]:
    for name, kind, (offset, size) in zip(names, types, snapshot.parameters, strict=True):
        plain = _QUALIFIERS.sub("", kind)
        data = snapshot.arguments[offset : offset + size]
        code = _NUMBERS.get(plain)
        if (dtype := _TENSORS.get(plain.removesuffix("*"))) and plain.endswith("*"):
            yield _Pointer(name, dtype, int.from_bytes(data, "little"))
        elif code is not None and struct.calcsize(f"<{code}") == size:
            value = struct.unpack(f"<{code}", data)[0]
            yield {"kind": type(value).__name__, "value": repr(value) if isinstance(value, float) else value}
        else:
            raise NoWorkloadError(f"its argument `{name}` is a `{kind}`, neither a number nor a pointer to numbers")


def _described(snapshot: Snapshot, pointers: Sequence[_Pointer]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the tensors behind pointers as plain data, and the names of those that the launch changed.

    A tensor reaches to the end of its allocation, or to the next pointer into that.
    """
    wanted = list[dict[str, Any]]()
    found, first = dict[str, Any](), dict[int, str]()
    for one in pointers:
        if (other := first.setdefault(one.address, one.name)) != one.name:
            found[one.name] = {"kind": "like", "name": other}
            continue
        block = next(
            (n for n, (base, size) in enumerate(snapshot.memory) if base <= one.address < base + size),
            None,
        )
        if block is None:
            raise NoWorkloadError(f"its argument `{one.name}` points to no memory of the GPU")
        base, size = snapshot.memory[block]
        end = min([base + size, *(p.address for p in pointers if p.address > one.address)])
        files = {when: str(snapshot.folder / f"memory-{block}.{when}") for when in ("before", "after")}
        count = (end - one.address) // _BYTES.get(one.dtype, 8)
        place = {"address": one.address, "start": one.address - base, "count": count}
        wanted.append({"name": one.name, "dtype": one.dtype, **place, **files})
    try:
        command = [sys.executable, str(_SCRIPT), json.dumps(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        said = cast("dict[str, Any]", json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NoWorkloadError(f"its memory cannot be described: {error}") from None
    if not said["mutated"]:
        raise NoWorkloadError("the kept launch changed nothing")
    return found | said["arguments"], tuple(said["mutated"])
