"""Pipelines compiled and run on the emulator, and files of what it made of them."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.device.device import device_named
from kernel_lsp.emulate.machine import Options, run
from kernel_lsp.emulate.memory import GlobalMemory
from kernel_lsp.emulate.ptx import load
from tests.bench.pipelines.pipeline import ENTRY, Array, Pipeline

ARCH = "sm_90a"
_DEVICE = device_named("sm_90")


@dataclass(frozen=True, slots=True)
class Emulated:
    """What the emulator made of a pipeline.

    Attributes:
        seed, digest: which pipeline it is.
        cubin: its machine code.
        after: the bytes of its buffers; None for one that is as it was.
        findings: the emulator's, which should be none.
        seconds: of the emulator alone.
    """

    seed: int
    digest: str
    cubin: bytes
    after: tuple[Array | None, ...]
    findings: tuple[str, ...]
    seconds: float

    def contents(self, pipeline: Pipeline) -> tuple[Array, ...]:
        """The bytes of all buffers of the pipeline."""
        pairs = zip(pipeline.buffers, self.after, strict=True)
        return tuple(buffer.raw if data is None else data for buffer, data in pairs)


def emulate(pipeline: Pipeline) -> Emulated:
    """Compile and emulate a pipeline.

    Raises:
        ValueError: it does not compile, or the driver would refuse a map.
        KernelLspError: the emulator does not run it.
    """
    build = compile_nvrtc(pipeline.source, "pipeline.cu", ARCH, options=("-std=c++17",))
    if build.binary is None or build.binary.ptx is None:
        raise ValueError(f"pipeline {pipeline.seed} does not compile:\n{build.log}")
    memory = GlobalMemory()
    buffers = [memory.allocate(f"b{number}", buffer.raw) for number, buffer in enumerate(pipeline.buffers)]
    program = load(build.binary.ptx)
    function = program.functions[ENTRY]
    block = bytearray(function.parameter_bytes)
    values = [each.at(buffers[each.buffer].address) for each in pipeline.maps]
    for value in values:
        if (fault := value.fault()) is not None:
            raise ValueError(f"pipeline {pipeline.seed} has a map that is none: {fault}")
    packed = [value.encode() for value in values] + [buffer.address.to_bytes(8, "little") for buffer in buffers]
    for parameter, data in zip(function.parameters, packed, strict=True):
        start = function.parameter_offsets[parameter.name]
        block[start : start + len(data)] = data
    began = time.process_time()
    shape = (pipeline.grid, 1, 1), (pipeline.threads, 1, 1), pipeline.shared
    result = run(program, ENTRY, *shape, bytes(block), memory, Options(device=_DEVICE))
    seconds = time.process_time() - began
    found = tuple(
        f"{f.kind.value} at line {f.location.line if f.location else 0}: {f.message}" for f in result.findings
    )
    pairs = zip(pipeline.buffers, (np.array(buffer.data) for buffer in buffers), strict=True)
    after = tuple(None if np.array_equal(data, before.raw) else data for before, data in pairs)
    return Emulated(pipeline.seed, pipeline.digest, build.binary.cubin, after, found, round(seconds, 3))


def write(path: Path, emulated: Iterable[Emulated]) -> None:
    """Write what the emulator made of pipelines into one file."""
    arrays: dict[str, Array] = {}
    index: list[dict[str, object]] = []
    for one in emulated:
        index.append({"seed": one.seed, "digest": one.digest, "findings": one.findings, "seconds": one.seconds})
        index[-1]["buffers"] = len(one.after)
        arrays[f"{one.seed} cubin"] = np.frombuffer(one.cubin, np.uint8)
        arrays |= {f"{one.seed} after {number}": data for number, data in enumerate(one.after) if data is not None}
    with path.open("wb") as file:
        np.savez_compressed(file, index=np.frombuffer(json.dumps(index).encode(), np.uint8), **arrays)


def read(path: Path, skip: int = 0) -> Iterator[Emulated]:
    """Give what is in a file that `write` has written, but for the first few."""
    with np.load(path) as held:
        for one in json.loads(held["index"].tobytes())[skip:]:
            seed = one["seed"]
            names = [f"{seed} after {number}" for number in range(one["buffers"])]
            after = tuple(held.get(name) for name in names)
            cubin = held[f"{seed} cubin"].tobytes()
            yield Emulated(seed, one["digest"], cubin, after, tuple(one["findings"]), one["seconds"])
