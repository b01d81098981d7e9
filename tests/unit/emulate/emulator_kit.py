"""Compiles CUDA source for the tests of the emulator and launches it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.emulate.findings import Finding
from kernel_lsp.emulate.machine import LaunchResult, Options, run
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.ptx import load

HOPPER = (Path(__file__).parent / "hopper.cuh").read_text()
"""Functions for the instructions of Hopper, which sources of tests begin with."""


@cache
def compiled(source: str, arch: str = "sm_80") -> str:
    """PTX of CUDA source."""
    build = compile_nvrtc(source, "kernel.cu", arch, options=("-std=c++17",))
    assert build.binary is not None, build.log
    assert build.binary.ptx is not None
    return build.binary.ptx


@dataclass
class Launched:
    """What a launch did: the arrays it was given, as it left them, and what was found."""

    arrays: list[np.ndarray]
    result: LaunchResult

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.result.findings

    @property
    def where(self) -> set[tuple[str, int]]:
        return {(finding.kind.value, finding.location.line) for finding in self.findings if finding.location}


def launch(
    ptx: str,
    entry: str,
    grid: int | tuple[int, int, int],
    block: int | tuple[int, int, int],
    *arguments: object,
    shared: int = 0,
    empty: Sequence[int] = (),
    memory: GlobalMemory | None = None,
    options: Options | None = None,
) -> Launched:
    """Run a kernel; arrays are copied into buffers `a0`, `a1`, ..., those in `empty` hold nothing yet."""
    program, memory = load(ptx), memory or GlobalMemory()
    function = program.functions[entry]
    block_of_parameters = bytearray(function.parameter_bytes)
    buffers = []
    for number, (parameter, value) in enumerate(zip(function.parameters, arguments, strict=True)):
        if isinstance(value, np.ndarray):
            buffer = memory.allocate(f"a{number}", value, initialised=number not in empty)
            buffers.append((buffer, value))
            raw = buffer.address.to_bytes(8, "little")
        elif isinstance(value, bytes):
            raw = value
        elif isinstance(value, float):
            raw = np.array(value, f"<f{parameter.size}").tobytes()
        else:
            raw = int(value).to_bytes(parameter.size, "little", signed=True)  # type: ignore[call-overload]
        start = function.parameter_offsets[parameter.name]
        block_of_parameters[start : start + len(raw)] = raw
    triple = [(shape, 1, 1) if isinstance(shape, int) else shape for shape in (grid, block)]
    result = run(program, entry, triple[0], triple[1], shared, bytes(block_of_parameters), memory, options)
    return Launched([buffer.data.view(value.dtype).reshape(value.shape) for buffer, value in buffers], result)


def line_of(source: str, text: str) -> int:
    """The line of the only place where `text` stands in the source."""
    (line,) = (number for number, each in enumerate(source.splitlines(), start=1) if text in each)
    return line
