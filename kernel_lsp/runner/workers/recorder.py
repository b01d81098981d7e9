"""Record every launch of a run with the memory that it reaches, so that another process can repeat it.

Worker processes only. CUDA launches are heard of from `driver.LoadedModule`, Triton's from the launchers that its
driver makes: so a recorder must be there before a kernel's first launch. The file it writes is read by `replay.py`.
"""

import base64
import contextlib
import ctypes
import json
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.triton.launchers import Kind, TritonDriver, TritonMetadata, TritonSource
from kernel_lsp.device.arguments import LaunchShape, pack_argument
from kernel_lsp.device.driver import Listener, check, cu
from kernel_lsp.runner.messages.subject_answers import LaunchFile
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.replay import Pointer, RecordedLaunches, ReplayedLaunch, Value

_MOST_BYTES = 64 << 20
_LAUNCHES = Path("launches.json")


class NotRepeatableError(Exception):
    """A launch that cannot be repeated from a file; the message says why."""


@dataclass(slots=True)
class _Memory:
    """Device memory that a launch may reach; `written` is True once something has written there."""

    address: int
    nbytes: int
    written: bool
    owner: Tensor


@dataclass(slots=True)
class LaunchRecorder:
    """The recorded launches of runs.

    It listens to torch's memory operations (`allocations.Listener`) and to launches.
    """

    begun: bool = False
    _memories: list[_Memory] = field(default_factory=list[_Memory])
    _images: dict[bytes, int] = field(default_factory=dict[bytes, int])
    _data: list[bytes] = field(default_factory=list[bytes])
    _launches: list[ReplayedLaunch] = field(default_factory=list[ReplayedLaunch])
    _size: int = 0

    def pause(self) -> None:
        """Stop recording until the next run begins, and forget the memory of the last one."""
        self.begun = False
        self._memories.clear()

    def begin(self, inputs: Sequence[object]) -> None:
        """Start a run on these inputs; launches before it are not kept."""
        self.begun = True
        for value in inputs:
            if isinstance(value, Tensor) and value.numel():
                self._memories.append(_Memory(value.data_ptr(), _span(value), written=True, owner=value))

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Note the memory of a tensor from a factory function."""
        if tensor.numel() and tensor.is_cuda:
            self._memories.append(_Memory(tensor.data_ptr(), _span(tensor), initialised, tensor))

    def written(self, tensor: Tensor) -> None:
        """Note that an operation of torch wrote to a tensor."""
        memory = self._find(tensor.data_ptr()) if tensor.numel() else None
        if memory is not None:
            memory.written = True

    def launch(
        self, image: bytes, entry: str, shape: LaunchShape, packed: Sequence[bytes], given: Sequence[object]
    ) -> None:
        """Record a launch that is about to be made; `given` are the arguments before they were packed.

        Raises:
            NotRepeatableError: too much memory would have to be kept.
        """
        if not self.begun:
            return
        torch.cuda.synchronize()
        for value in given:
            if isinstance(value, Tensor) and value.numel() and self._find(value.data_ptr()) is None:
                storage = value.untyped_storage()  # a result of a torch operation
                self._memories.append(_Memory(storage.data_ptr(), storage.nbytes(), written=True, owner=value))
        reached: dict[int, int] = {}
        memories: list[tuple[int, int | None]] = []
        arguments: list[Value | Pointer] = []
        for data in packed:
            memory = self._find(struct.unpack("<Q", data)[0]) if len(data) == 8 else None
            if memory is None:
                arguments.append({"bytes": base64.b64encode(data).decode()})
                continue
            if memory.address not in reached:
                reached[memory.address] = len(memories)
                memories.append((memory.nbytes, self._keep(memory) if memory.written else None))
            offset = struct.unpack("<Q", data)[0] - memory.address
            arguments.append({"memory": reached[memory.address], "offset": offset})
        self._launches.append(
            {
                "image": self._images.setdefault(image, len(self._images)),
                "entry": entry,
                "grid": shape.grid,
                "block": shape.block,
                "shared_bytes": shape.shared_bytes,
                "memories": memories,
                "arguments": arguments,
            }
        )
        for memory in self._memories:
            memory.written = memory.written or memory.address in reached

    def save(self, path: Path) -> int:
        """Write the recorded launches to a file, and return their number."""
        images = [base64.b64encode(image).decode() for image in self._images]
        data = [base64.b64encode(content).decode() for content in self._data]
        recorded = RecordedLaunches(images=images, data=data, launches=self._launches)
        path.write_text(json.dumps(recorded), encoding="utf-8")
        return len(self._launches)

    def _find(self, address: int) -> _Memory | None:
        """Return the memory that an address points into, the latest first: freed memory may have been reused."""
        for memory in reversed(self._memories):
            if memory.address <= address < memory.address + memory.nbytes:
                return memory
        return None

    def _keep(self, memory: _Memory) -> int:
        self._size += memory.nbytes
        if self._size > _MOST_BYTES:
            raise NotRepeatableError(f"its launches reach more than {_MOST_BYTES >> 20} MiB on small cases")
        content = ctypes.create_string_buffer(memory.nbytes)
        check(cu.cuMemcpyDtoH(ctypes.addressof(content), memory.address, memory.nbytes), "copying to the host")
        self._data.append(content.raw)
        return len(self._data) - 1


@contextlib.contextmanager
def hearing_triton(recorder: LaunchRecorder) -> Generator[None]:
    """Record Triton's launches in this block before they are made, except of kernels that were launched before."""
    from triton.runtime.driver import driver as active_driver

    active = cast(TritonDriver, active_driver.active)
    make = active.launcher_cls

    def launcher(source: TritonSource, metadata: TritonMetadata) -> Callable[..., object]:
        made = make(source, metadata)

        def launch(x: int, y: int, z: int, stream: int, function: object, *rest: object) -> object:
            # Packed metadata, launch metadata and two hooks come before the arguments.
            if x * y * z and recorder.begun:
                recorder.launch(*_triton_launch(source, metadata, images[function], (x, y, z), rest[4:]))
            return made(x, y, z, stream, function, *rest)

        return launch

    images: dict[object, bytes] = {}
    load = active.utils.load_binary

    def load_binary(name: str, cubin: bytes, *rest: object) -> Sequence[object]:
        loaded = load(name, cubin, *rest)
        images[loaded[1]] = cubin
        return loaded

    active.launcher_cls, active.utils.load_binary = launcher, load_binary
    try:
        yield
    finally:
        active.launcher_cls, active.utils.load_binary = make, load


def record_launches(
    runs: Sequence[tuple[Sequence[object], Callable[[], object]]], listeners: list[Listener], *, triton: bool
) -> LaunchFile:
    """Return the file that keeps the launches of these runs, each with its inputs, or why there is none.

    `listeners` hear the launches of compiled CUDA kernels; where `triton`, those of Triton's are heard too. Later
    launches of the process are not recorded.
    """
    recorder = LaunchRecorder()
    listeners.append(recorder.launch)
    try:
        with hearing_triton(recorder) if triton else contextlib.nullcontext():
            for inputs, run in runs:
                recorder.pause()
                run()  # what compiles or tunes itself at first use has done so
                recorder.begin(inputs)
                with WatchedAllocations(recorder):
                    run()
        torch.cuda.synchronize()
    except NotRepeatableError as error:
        return LaunchFile(reason=str(error))
    finally:
        listeners.remove(recorder.launch)
        recorder.pause()  # launchers that Triton has made keep it
    file = _LAUNCHES.absolute()
    if not recorder.save(file):
        return LaunchFile(reason="its launches are made by host code, which is not repeated")
    return LaunchFile(str(file))


def _triton_launch(
    source: TritonSource,
    metadata: TritonMetadata,
    cubin: bytes,
    grid: tuple[int, int, int],
    arguments: Sequence[object],
) -> tuple[bytes, str, LaunchShape, list[bytes], list[object]]:
    """Return a Triton launch as arguments of `LaunchRecorder.launch`."""
    if getattr(metadata, "num_ctas", 1) > 1 or metadata.launch_cooperative_grid:
        raise NotRepeatableError("a Triton kernel is launched in clusters or as a cooperative grid")
    if metadata.global_scratch_size or getattr(metadata, "profile_scratch_size", 0):
        raise NotRepeatableError("a Triton kernel asks for scratch memory")
    given: list[object] = []
    for kind, argument in zip(source.signature.values(), arguments, strict=True):
        given += _machine_values(kind, argument)
    facts = next(k for k in read_cubin(cubin) if k.entry == metadata.name)
    sizes = [size for _, size in facts.parameters]
    given += [0] * (len(sizes) - len(given))  # pointers to scratch memory follow the function's parameters
    packed = [
        pack_argument(0 if value is None else value, size, "", f"`{metadata.name}` argument {number}")
        for number, (value, size) in enumerate(zip(given, sizes, strict=True))
    ]
    return cubin, metadata.name, LaunchShape(grid, (32 * metadata.num_warps, 1, 1), metadata.shared), packed, given


def _machine_values(kind: Kind, argument: object) -> list[object]:
    """Return the machine's arguments for one argument of a Triton function; none for a compile-time constant."""
    if kind == "constexpr":
        return []
    if isinstance(kind, tuple):
        values = zip(kind, cast(Sequence[object], argument), strict=True)
        return [machine for one, value in values for machine in _machine_values(one, value)]
    if kind.startswith(("tensordesc", "nvTmaDesc")):
        raise NotRepeatableError("a Triton kernel is given a tensor descriptor")
    return [float(cast(float, argument)) if kind.startswith(("fp", "bf")) else argument]


def _span(tensor: Tensor) -> int:
    """Return the bytes from the first element of a tensor to its last."""
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach * tensor.itemsize
