"""PTX kernels of many instances each: written, assembled with what is illegal left out, run on the GPU."""

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.bench.fuzz.instance import LANES, REGISTERS, Array, Instance, register

_ENTRY = "probe"
_ERROR = re.compile(r"line (\d+); error\s*: (.*)")
_SLOT = 8  # bytes of one value in memory, whatever its type
_SCRATCH = 16


@dataclass(frozen=True)
class Kernel:
    """Instances that one kernel runs, and its machine code."""

    instances: tuple[Instance, ...]
    cubin: bytes

    @property
    def sources(self) -> int:
        """Slots that each instance's sources take."""
        return _most(self.instances, "sources")

    @property
    def results(self) -> int:
        """Slots that each instance's results take."""
        return _most(self.instances, "results")


@dataclass
class Assembled:
    """What the assembler made of all instances."""

    kernels: list[Kernel] = field(default_factory=list)
    refused: list[tuple[Instance, str]] = field(default_factory=list)


def assemble(instances: Sequence[Instance], ptxas: Path, arch: str, *, threads: int, size: int = 48) -> Assembled:
    """Instances as machine code, `size` to a kernel. What the assembler refuses comes back with its message."""
    batches = [tuple(instances[i : i + size]) for i in range(0, len(instances), size)]
    whole = Assembled()
    with ThreadPoolExecutor(threads) as pool:
        for part in pool.map(lambda batch: _assemble_batch(batch, ptxas, arch), batches):
            whole.kernels += part.kernels
            whole.refused += part.refused
    return whole


def _assemble_batch(batch: tuple[Instance, ...], ptxas: Path, arch: str) -> Assembled:
    result = Assembled()
    while batch:
        text, owners = write(batch, arch)
        cubin, log = _run_ptxas(text, ptxas, arch)
        if cubin is not None:
            result.kernels.append(Kernel(batch, cubin))
            return result
        wrong = {owners[int(line)]: message for line, message in _ERROR.findall(log) if int(line) in owners}
        if not wrong and len(batch) > 1:
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                part = _assemble_batch(half, ptxas, arch)
                result.kernels += part.kernels
                result.refused += part.refused
            return result
        wrong = wrong or {0: log.strip()}
        result.refused += [(batch[i], message) for i, message in wrong.items()]
        batch = tuple(instance for i, instance in enumerate(batch) if i not in wrong)
    return result


def _run_ptxas(text: str, ptxas: Path, arch: str) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "probe.ptx"), Path(folder, "probe.cubin")
        source.write_text(text)
        command = [ptxas, f"--gpu-name={arch}", source, "--output-file", cubin]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return (cubin.read_bytes() if done.returncode == 0 else None), done.stdout + done.stderr


def write(instances: Sequence[Instance], arch: str) -> tuple[str, dict[int, int]]:
    """A kernel's PTX, and for each of its lines that belongs to an instance, which one."""
    sources, results = _most(instances, "sources"), _most(instances, "results")
    lines = [
        ".version 8.5",
        f".target {arch}",
        ".address_size 64",
        f".visible .entry {_ENTRY}(.param .u64 p_in, .param .u64 p_out, .param .u64 p_scratch)",
        "{",
        ".reg .b32 tid; .reg .b64 at, from, into, scratch;",
        "mov.u32 tid, %tid.x;",
        "mul.wide.u32 at, tid, 8;",
        "ld.param.u64 from, [p_in]; ld.param.u64 into, [p_out]; ld.param.u64 scratch, [p_scratch];",
        "add.s64 from, from, at; add.s64 into, into, at; add.s64 scratch, scratch, at; add.s64 scratch, scratch, at;",
    ]
    owners: dict[int, int] = {}
    for index, instance in enumerate(instances):
        body = _body(instance, index, sources, results)
        for line in "\n".join(body).splitlines():
            lines.append(line)
            owners[len(lines)] = index
    return "\n".join([*lines, "ret;", "}", ""]), owners


def _body(instance: Instance, index: int, sources: int, results: int) -> Iterable[str]:
    names = {f"a{i}": f"a{i}" for i in range(len(instance.sources))}
    names |= {f"d{i}": f"d{i}" for i in range(len(instance.results))}
    yield "{"
    if "{scratch}" in instance.text:
        names["scratch"] = "mine"
        yield f".reg .b64 mine; add.s64 mine, scratch, {index * LANES * _SCRATCH};"
    for i, x in enumerate(instance.sources):
        kind, address = register(x), f"[from+{(index * sources + i) * LANES * _SLOT}]"
        if kind == "pred":
            yield f".reg .pred a{i}; .reg .b16 h{i}; ld.global.b16 h{i}, {address}; setp.ne.b16 a{i}, h{i}, 0;"
        else:
            yield f".reg .{kind} a{i}; ld.global.{kind} a{i}, {address};"
    for i, kind in enumerate(instance.results):
        yield f".reg .{kind} d{i};"
    yield instance.text.format(**names)
    for i, kind in enumerate(instance.results):
        address = f"[into+{(index * results + i) * LANES * _SLOT}]"
        if kind == "pred":
            yield f".reg .b32 w{i}; selp.b32 w{i}, 1, 0, d{i}; st.global.b32 {address}, w{i};"
        else:
            yield f"st.global.{kind} {address}, d{i};"
    yield "}"


def _most(instances: Sequence[Instance], what: str) -> int:
    return max((len(getattr(instance, what)) for instance in instances), default=0)


def packed_sources(kernel: Kernel) -> Array:
    """The memory the kernel reads: shape (instances, sources, LANES), 8 bytes a value."""
    memory = np.zeros((len(kernel.instances), kernel.sources, LANES), np.uint64)
    for i, instance in enumerate(kernel.instances):
        for k, x in enumerate(instance.sources):
            memory[i, k] = x
    return memory


def run(kernel: Kernel) -> list[tuple[Array, ...]]:
    """The hardware's raw results of every instance of a kernel, on the current GPU.

    Raises:
        CudaError: it cannot be loaded or failed; after a failed launch nothing more can run in this process.
    """
    import torch

    from kernel_lsp.device.driver import check, cu

    module = check(cu.cuModuleLoadData(kernel.cubin), "loading the kernel")
    function = check(cu.cuModuleGetFunction(module, _ENTRY.encode()), "finding the kernel")
    count = len(kernel.instances)
    given = torch.from_numpy(packed_sources(kernel).reshape(-1).view(np.int64)).cuda()
    made = torch.zeros(count * kernel.results * LANES, dtype=torch.int64, device="cuda")
    scratch = torch.zeros(count * LANES * _SCRATCH // 8, dtype=torch.int64, device="cuda")
    addresses = [ctypes.c_uint64(x.data_ptr()) for x in (given, made, scratch)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in addresses))
    stream = torch.cuda.current_stream().cuda_stream
    shape = (1, 1, 1, LANES, 1, 1, 0)
    check(cu.cuLaunchKernel(function, *shape, stream, ctypes.addressof(pointers), 0), "launching the kernel")
    check(cu.cuStreamSynchronize(stream), "running the kernel")
    memory = made.cpu().numpy().view(np.uint64).reshape(count, kernel.results, LANES)
    check(cu.cuModuleUnload(module), "unloading the kernel")
    return [
        tuple(memory[i, k].astype(REGISTERS[kind]) for k, kind in enumerate(instance.results))
        for i, instance in enumerate(kernel.instances)
    ]
