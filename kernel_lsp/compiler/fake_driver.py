"""A fake of what programs ask CUDA's driver for through its Python bindings: tensor maps. Worker processes only."""

import contextlib
from collections.abc import Generator, Sequence
from typing import Any
from unittest import mock

from kernel_lsp.emulate.tensormap import BYTES, TensorMap


@contextlib.contextmanager
def fake_driver() -> Generator[None]:
    """Make `cuTensorMapEncodeTiled` of the bindings give maps that the emulator reads, if the bindings are there."""
    try:
        from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:
        yield
        return

    def encode(
        kind: Any,
        rank: Any,
        address: Any,
        shape: Sequence[Any],
        strides: Sequence[Any],
        box: Sequence[Any],
        steps: Sequence[Any],
        interleave: Any,
        swizzle: Any,
        _promotion: Any,
        fill: Any,
    ) -> tuple[Any, Any]:
        """Return status and map, as the driver does."""
        count = int(rank)
        tensor = TensorMap(
            kind=int(kind),
            address=int(address),
            shape=_numbers(shape)[:count],
            strides=_numbers(strides)[: count - 1],
            box=_numbers(box)[:count],
            steps=_numbers(steps)[:count],
            swizzle=int(swizzle),
            fills_with_nan=bool(int(fill)),
        )
        if int(interleave) or tensor.fault():
            return driver.CUresult.CUDA_ERROR_INVALID_VALUE, None
        data, made = tensor.encode(), driver.CUtensorMap()
        words = (data[at : at + 8] for at in range(0, BYTES, 8))
        made.opaque = [driver.cuuint64_t(int.from_bytes(word, "little")) for word in words]
        return driver.CUresult.CUDA_SUCCESS, made

    with mock.patch.object(driver, "cuTensorMapEncodeTiled", encode):
        yield


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
