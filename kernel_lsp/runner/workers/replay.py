"""A program that repeats recorded launches through the driver alone, for running under compute-sanitizer or ncu.

`python -I replay.py FILE`, or without one: then it says `ready PID` once it has a context, and waits for a line with
the file. `python -I replay.py FILE ROUNDS` times the launches beside each other instead, as versions of one.

It imports nothing beyond the standard library, so that it starts at once, and gives each buffer an allocation of its
own, so that an access past its end is one past an allocation. Memory not written before a launch is not written here
either.

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
_TIMED_US, _MOST_REPEATS = 300.0, 64  # of one stretch: long beside what an event costs
_THIS_THREAD = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
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


def compare(path: str, rounds: int) -> None:
    """Time the launches in a file, versions of one: all work in the memory of the first.

    Prints `begun N` before the first run of each, and in the end `times` and the microseconds of each, round by round.
    """
    told: RecordedLaunches = json.loads(Path(path).read_text(encoding="utf-8"))
    driver = _Driver()
    images = [base64.b64decode(image) for image in told["images"]]
    first, *_ = told["launches"]
    places = driver.fill(first, [base64.b64decode(content) for content in told["data"]])
    repeats = 1
    timed: list[_Repeated] = []
    for number, launch in enumerate(told["launches"]):
        print(f"begun {number}", flush=True)
        once = _Repeated(driver, launch, images[launch["image"]], places, 1)
        once.run()  # loads its code
        if number == 0:
            repeats = max(1, min(_MOST_REPEATS, round(_TIMED_US / max(once.run(), 1))))
        timed.append(_Repeated(driver, launch, images[launch["image"]], places, repeats))
        timed[-1].run()
    times: list[list[float]] = [[] for _ in timed]
    for _ in range(rounds):
        for found, one in zip(times, timed, strict=True):
            found.append(one.run() / repeats)
    print("times " + json.dumps(times), flush=True)


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
        self.check("cuInit", 0)
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.check("cuCtxSetCurrent", context)

    def repeat(self, launch: ReplayedLaunch, image: bytes, data: list[bytes]) -> None:
        places = self.fill(launch, data)
        self.launch(launch, image, places, None)
        self.check("cuCtxSynchronize")
        for place in places:
            self.check("cuMemFree_v2", place)

    def fill(self, launch: ReplayedLaunch, data: list[bytes]) -> list[ctypes.c_uint64]:
        """Return newly allocated memory for a launch, with the contents that were recorded."""
        places = [self._allocate(nbytes) for nbytes, _ in launch["memories"]]
        for place, (_, content) in zip(places, launch["memories"], strict=True):
            if content is not None and data[content]:
                self.check("cuMemcpyHtoD_v2", place, data[content], ctypes.c_size_t(len(data[content])))
        return places

    def launch(
        self,
        launch: ReplayedLaunch,
        image: bytes,
        places: list[ctypes.c_uint64],
        stream: ctypes.c_void_p | None,
        times: int = 1,
    ) -> None:
        """Launch so many times on a stream."""
        buffers: list[ctypes.c_uint64 | ctypes.Array[ctypes.c_char]] = []
        for argument in launch["arguments"]:
            if "memory" in argument:
                value = places[argument["memory"]].value + argument["offset"]
                buffers.append(ctypes.c_uint64(value))
            else:
                held = base64.b64decode(argument["bytes"])
                buffers.append(ctypes.create_string_buffer(held, len(held)))
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(b) for b in buffers))
        function = self.load(launch, image)
        if launch["shared_bytes"] > _SHARED_LIMIT:
            self.check("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, launch["shared_bytes"])
        shape = (*launch["grid"], *launch["block"], launch["shared_bytes"])
        for _ in range(times):
            self.check("cuLaunchKernel", function, *shape, stream, pointers, None)

    def _allocate(self, nbytes: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 1)))
        return pointer

    def load(self, launch: ReplayedLaunch, image: bytes) -> ctypes.c_void_p:
        """Return a launch's function, loaded once."""
        number, entry = launch["image"], launch["entry"]
        if (number, entry) not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.check("cuModuleLoadData", ctypes.byref(module), image)
            self.check("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
            self._functions[number, entry] = function
        return self._functions[number, entry]

    def check(self, call: str, *arguments: object) -> None:
        """Make a call of the driver's; end the program if it fails."""
        status = getattr(self._cuda, call)(*arguments)
        if status:
            sys.exit(f"{call} failed: CUDA error {status}")


class _Repeated:
    """A launch, so many times without pause: a CUDA graph, so that the host is not what is timed."""

    def __init__(
        self, driver: _Driver, launch: ReplayedLaunch, image: bytes, places: list[ctypes.c_uint64], times: int
    ) -> None:
        self._check = driver.check
        self._stream, self._graph = ctypes.c_void_p(), ctypes.c_void_p()
        self._events = ctypes.c_void_p(), ctypes.c_void_p()
        self._check("cuStreamCreate", ctypes.byref(self._stream), 0)
        for event in self._events:
            self._check("cuEventCreate", ctypes.byref(event), 0)
        captured = ctypes.c_void_p()
        driver.load(launch, image)  # no capture allows that
        self._check("cuStreamBeginCapture_v2", self._stream, _THIS_THREAD)
        driver.launch(launch, image, places, self._stream, times)
        self._check("cuStreamEndCapture", self._stream, ctypes.byref(captured))
        self._check("cuGraphInstantiateWithFlags", ctypes.byref(self._graph), captured, ctypes.c_ulonglong(0))

    def run(self) -> float:
        """Launch all; return the microseconds."""
        milliseconds = ctypes.c_float()
        self._check("cuEventRecord", self._events[0], self._stream)
        self._check("cuGraphLaunch", self._graph, self._stream)
        self._check("cuEventRecord", self._events[1], self._stream)
        self._check("cuStreamSynchronize", self._stream)
        self._check("cuEventElapsedTime", ctypes.byref(milliseconds), *self._events)
        return milliseconds.value * 1000


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
    if len(sys.argv) > 2:
        _watch_parent()
        compare(sys.argv[1], int(sys.argv[2]))
    elif len(sys.argv) > 1:
        _watch_parent()
        main(sys.argv[1])
    else:
        wait()
