"""A program that repeats recorded launches through the driver alone, for running under compute-sanitizer.

`python -I replay.py FILE`, or without one: then it says `ready PID` once it has a context, and waits for a line with
the file. It imports nothing beyond the standard library, so that it starts at once, and gives each buffer an allocation
of its own, so that an access past its end is one past an allocation. Memory not written before a launch is not written
here either.

The file is JSON: `images` (cubins, base64), `data` (contents, base64) and `launches`, each with its image, entry, grid,
block, shared bytes, `memories` (size, and the number of their content or null) and `arguments` (bytes as base64, or the
memory they point into and how far).
"""

import base64
import ctypes
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TypedDict

_SHARED_LIMIT = 48 << 10
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Value(TypedDict):
    """An argument by its bytes, base64."""

    bytes: str


class Pointer(TypedDict):
    """An argument that points into a memory, by the memory's number and how far."""

    memory: int
    offset: int


class ReplayedLaunch(TypedDict):
    """One launch."""

    image: int
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    memories: list[tuple[int, int | None]]
    arguments: list[Value | Pointer]


class RecordedLaunches(TypedDict):
    """The content of a file."""

    images: list[str]
    data: list[str]
    launches: list[ReplayedLaunch]


def main(path: str) -> None:
    """Repeat the launches in a file, each from the memory it was given."""
    _repeat(path, _Driver())


def wait() -> None:
    """Make ready for launches, say so, and repeat those in the file that is told."""
    driver = _Driver()
    print(f"ready {os.getpid()}", flush=True)
    path = _first_line()
    _watch_parent()
    _repeat(path, driver)


def _repeat(path: str, driver: "_Driver") -> None:
    told: RecordedLaunches = json.loads(Path(path).read_text(encoding="utf-8"))
    images = [base64.b64decode(image) for image in told["images"]]
    data = [base64.b64decode(content) for content in told["data"]]
    for launch in told["launches"]:
        driver.repeat(launch, images[launch["image"]], data)


class _Driver:
    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._functions: dict[tuple[int, str], ctypes.c_void_p] = {}
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuDeviceGet", ctypes.byref(device), 0)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._check("cuCtxSetCurrent", context)

    def repeat(self, launch: ReplayedLaunch, image: bytes, data: list[bytes]) -> None:
        places = [self._allocate(nbytes) for nbytes, _ in launch["memories"]]
        for place, (_, content) in zip(places, launch["memories"], strict=True):
            if content is not None and data[content]:
                self._check("cuMemcpyHtoD_v2", place, data[content], ctypes.c_size_t(len(data[content])))
        buffers: list[ctypes.c_uint64 | ctypes.Array[ctypes.c_char]] = []
        for argument in launch["arguments"]:
            if "memory" in argument:
                value = places[argument["memory"]].value + argument["offset"]
                buffers.append(ctypes.c_uint64(value))
            else:
                held = base64.b64decode(argument["bytes"])
                buffers.append(ctypes.create_string_buffer(held, len(held)))
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(b) for b in buffers))
        function = self._function(launch["image"], image, launch["entry"])
        if launch["shared_bytes"] > _SHARED_LIMIT:
            self._check("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, launch["shared_bytes"])
        shape = (*launch["grid"], *launch["block"], launch["shared_bytes"])
        self._check("cuLaunchKernel", function, *shape, None, pointers, None)
        self._check("cuCtxSynchronize")
        for place in places:
            self._check("cuMemFree_v2", place)

    def _allocate(self, nbytes: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self._check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 1)))
        return pointer

    def _function(self, number: int, image: bytes, entry: str) -> ctypes.c_void_p:
        if (number, entry) not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._check("cuModuleLoadData", ctypes.byref(module), image)
            self._check("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
            self._functions[number, entry] = function
        return self._functions[number, entry]

    def _check(self, call: str, *arguments: object) -> None:
        status = getattr(self._cuda, call)(*arguments)
        if status:
            sys.exit(f"{call} failed: CUDA error {status}")


def _first_line() -> str:
    """Return the first line of standard input, or end where the parent has ended before."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            os.killpg(0, signal.SIGKILL)
        line += more
    return line.decode().rstrip("\n")


def _watch_parent() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of standard input, which closes when the parent ends; then kill this process group."""
    while os.read(0, 1 << 10):  # not through `sys.stdin`, whose lock would be held when this program ends
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _watch_parent()
        main(sys.argv[1])
    else:
        wait()
