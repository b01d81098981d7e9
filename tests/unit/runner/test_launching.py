"""A compiled kernel is launched with the arguments of this launch, whatever the one before was given."""

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.driver")

from kernel_lsp.device import driver  # noqa: E402 - after what it needs
from kernel_lsp.errors import WorkloadError  # noqa: E402 - likewise

SIZES = (8, 4, 2, 128, 8)
TYPES = ("const float*", "int", "half", "CUtensorMap", "double")


class Driver:
    """Keeps what each launch reads at its pointers."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes, self.launches = sizes, list[tuple[Any, ...]]()

    def cuModuleLoadData(self, _cubin: bytes) -> tuple[int, int]:  # noqa: N802 - the driver's name
        return 0, 1

    def cuModuleGetFunction(self, _module: int, entry: bytes) -> tuple[int, bytes]:  # noqa: N802
        return 0, entry

    def cuLaunchKernel(self, function: bytes, *given: int) -> tuple[int]:  # noqa: N802
        *extents, stream, pointers, _extra = given
        places = (ctypes.c_void_p * len(self.sizes)).from_address(pointers)
        read = [ctypes.string_at(at, size) for at, size in zip(places, self.sizes, strict=True)]
        self.launches.append((function, tuple(extents), stream, read))
        return (0,)


class Map:
    """A tensor map as the bindings give it: an address of 128 bytes."""

    def __init__(self, byte: int) -> None:
        self._memory = ctypes.create_string_buffer(bytes([byte]) * 128, 128)

    def getPtr(self) -> int:  # noqa: N802 - the bindings' name
        return ctypes.addressof(self._memory)


def load(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> tuple[driver.LoadedModule, Driver]:
    fake = Driver(sizes)
    monkeypatch.setattr(driver, "cu", fake)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: SimpleNamespace(cuda_stream=7))
    offsets: Iterator[int] = iter(range(0, 8 * len(sizes), 8))
    kernel = SimpleNamespace(entry="_k", parameters=tuple((next(offsets), size) for size in sizes))
    image = SimpleNamespace(cubin=b"cubin", entries={"k": "_k"}, kernels=[kernel])
    return driver.LoadedModule(image, {"k": TYPES}), fake


def test_each_launch_reads_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    module, fake = load(monkeypatch, SIZES)
    x, y = torch.zeros(4), torch.ones(4)
    module.k[(3, 2), 64, 512](x, -5, 1.5, Map(7), 0.25)
    module.k[1, (32, 4)](y, 9, 2.0, Map(9), -1.0)
    whole = lambda tensor: tensor.data_ptr().to_bytes(8, "little")  # noqa: E731
    assert fake.launches == [
        (
            b"_k",
            (3, 2, 1, 64, 1, 1, 512),
            7,
            [whole(x), b"\xfb\xff\xff\xff", b"\x00\x3e", b"\x07" * 128, b"\0" * 6 + b"\xd0\x3f"],
        ),
        (
            b"_k",
            (1, 1, 1, 32, 4, 1, 0),
            7,
            [whole(y), b"\x09\0\0\0", b"\x00\x40", b"\x09" * 128, b"\0" * 6 + b"\xf0\xbf"],
        ),
    ]


def test_a_kernel_without_parameters_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    module, fake = load(monkeypatch, ())
    module.k[1, 32]()
    assert fake.launches == [(b"_k", (1, 1, 1, 32, 1, 1, 0), 7, [])]


def test_an_argument_too_many_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, fake = load(monkeypatch, (8,))
    with pytest.raises(WorkloadError, match="`k` takes 1 arguments, `launch` gives 2"):
        module.k[1, 32](torch.zeros(1), 3)
    assert not fake.launches
