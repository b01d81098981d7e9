"""Compile rewritten kernels with NVRTC for their PTX; run them on the emulator, or with the host compiler."""

import asyncio
import ctypes
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import nvidia.cu13
import pytest
from cuda.bindings import nvrtc

from kernel_lsp import check as checking
from kernel_lsp.check import FileReport, find_kernel_files
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import Device, device_named
from kernel_lsp.emulate.machine import Options, run
from kernel_lsp.emulate.memory import Buffer, GlobalMemory
from kernel_lsp.emulate.ptx import load
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel
from tests.shared_folder import shared_folder

Rewrite = Callable[[SourceFile, SourceFile | None, Kernel, Device], Iterator[Candidate]]
_INCLUDE = next(Path(p) / "include" for p in nvidia.cu13.__path__)
_HOST_FLAGS = ("-std=c++20", "-O1", "-fno-strict-aliasing", "-w", "-fPIC", "-pthread")


def cuda_kernel(text: str) -> tuple[SourceFile, Kernel]:
    """The only kernel of a CUDA text."""
    file = SourceFile(Path("kernel.cu"), text)
    (kernel,) = find_kernels(text, file.path)
    return file, kernel


def rewritten(rewrite: Rewrite, text: str, workload: str | None = None, gpu: str = "H100") -> list[Candidate]:
    """All candidates for a kernel's text on a GPU."""
    file, kernel = cuda_kernel(text)
    launch = SourceFile(Path("workload.py"), workload) if workload else None
    return list(rewrite(file, launch, kernel, device_named(gpu)))


def _compiled(text: str, arch: str) -> tuple[object, str]:
    """NVRTC's program of a CUDA text, and the log; a compile error fails the test with the compiler's words."""
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    options = [f"-arch={arch}".encode(), f"-I{_INCLUDE}".encode(), f"-I{_INCLUDE}/cccl".encode(), b"-std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode() + text
    return program, log.decode().strip("\0\n")


def warnings(text: str, arch: str) -> str:
    """What NVRTC and ptxas say of a CUDA text that they compile for an architecture; empty if nothing."""
    return _compiled(text, arch)[1]


def ptx(text: str) -> str:
    """PTX of a CUDA text for sm_90; a compile error fails the test with the compiler's words."""
    program, _ = _compiled(text, "sm_90")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    out = bytearray(size)
    nvrtc.nvrtcGetPTX(program, out)
    return out.decode()


@cache
def _host_cuda(compiler: str) -> Path:
    """The header that stands in for CUDA, compiled once for all tests: it takes longer than any kernel."""
    with shared_folder("host-cuda") as folder:
        header = folder / "host_cuda.h"
        if not header.exists():
            shutil.copy(Path(__file__).with_name(header.name), header)
            subprocess.run([compiler, *_HOST_FLAGS, "-x", "c++-header", header], check=True)
    return header


def host_runner(folder: Path, text: str) -> Callable[..., None]:
    """`run(grid, block, *arguments)` for the first kernel of a text, one host thread for each device thread of a block.

    Grid and block are numbers, or pairs (x, y). Arguments are numpy arrays (passed as pointers, changed in place), ints
    and floats.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to run kernels on the host")
    _, kernel = cuda_kernel(text)
    parameters = ", ".join(f"{p.type} {p.name}" for p in kernel.parameters)
    arguments = ", ".join(p.name for p in kernel.parameters)
    launch = f"host_launch({{gx, gy}}, {{bx, by}}, [=] {{ {kernel.name}({arguments}); }});"
    entry = f'extern "C" void run(unsigned gx, unsigned gy, unsigned bx, unsigned by, {parameters}) {{ {launch} }}'
    source, library = folder / "kernel.cpp", folder / f"kernel{abs(hash(text))}.so"
    body = re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)
    source.write_text(f"{body}\n{entry}\n")
    included = ["-include", str(_host_cuda(compiler))]
    subprocess.run([compiler, *_HOST_FLAGS, "-shared", *included, str(source), "-o", str(library)], check=True)
    entry_point = ctypes.CDLL(str(library)).run
    scalar = {"int": ctypes.c_int, "float": ctypes.c_float, "size_t": ctypes.c_size_t, "unsigned": ctypes.c_uint}

    def run(grid: int | tuple[int, int], block: int | tuple[int, int], *values: np.ndarray | float) -> None:
        converted = [
            ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else scalar[p.type.replace("const ", "")](v)
            for p, v in zip(kernel.parameters, values, strict=True)
        ]
        shape = [n for size in (grid, block) for n in (size if isinstance(size, tuple) else (size, 1))]
        entry_point(*shape, *converted)

    return run


def emulated(text: str, grid: tuple[int, int], block: tuple[int, int], *given: object) -> list[np.ndarray]:
    """The arrays that the only kernel of a text is given, after a launch on the emulator, which must find nothing.

    Other arguments are 32-bit numbers; a tuple is a struct with such members, each of which is aligned by its size.
    """
    program, memory, arrays = load(ptx(text).rstrip("\0")), GlobalMemory(), list[tuple[np.ndarray, Buffer]]()
    (name,) = [name for name, function in program.functions.items() if function.entry]
    function = program.functions[name]
    parameters = bytearray(function.parameter_bytes)

    def number(value: object) -> float:
        if not isinstance(value, np.ndarray):
            assert isinstance(value, int | float)
            return value
        allocation = memory.allocate(f"array{len(arrays)}", value.reshape(-1), initialised=True)
        arrays.append((value, allocation))
        return allocation.address

    for one, argument in zip(function.parameters, given, strict=True):
        values: tuple[object, ...] = argument if isinstance(argument, tuple) else (argument,)
        kinds = ("Q" if isinstance(v, np.ndarray) else "f" if isinstance(v, float) else "i" for v in values)
        packed = struct.pack("".join(kinds), *map(number, values))
        at = function.parameter_offsets[one.name]
        parameters[at : at + len(packed)] = packed
    found = run(program, name, (*grid, 1), (*block, 1), 0, bytes(parameters), memory, Options(budget=10_000_000))
    assert not found.findings
    return [one.data.view(value.dtype).reshape(value.shape) for value, one in arrays]


def unaligned(values: np.ndarray, by: int) -> np.ndarray:
    """A copy of `values` that starts `by` elements after a 64-byte boundary."""
    raw = np.zeros(values.nbytes + 64 + by * values.itemsize, np.uint8)
    start = -raw.ctypes.data % 64 + by * values.itemsize
    out = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


def checked(folder: Path, files: dict[str, tuple[str, str]]) -> dict[str, FileReport]:
    """The reports of kernels, each with its workload, as on a machine without a GPU."""
    paths: dict[str, Path] = {}
    for name, (text, workload) in files.items():
        paths[name] = folder / f"{name}.cu"
        paths[name].write_text(text)
        paths[name].with_name(f"{name}_workload.py").write_text(workload)
    reports = asyncio.run(checking.check(find_kernel_files(paths.values()), Settings()))
    by_path = {report.path: report for report in reports}
    return {name: by_path[path] for name, path in paths.items()}
