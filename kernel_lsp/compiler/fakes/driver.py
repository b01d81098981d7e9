"""A fake of what programs ask CUDA's driver for through its Python bindings: tensor maps. Worker processes only."""

import contextlib
from collections.abc import Generator, Sequence
from typing import Any
from unittest import mock

from kernel_lsp.emulate.tensormap import BYTES, Im2col, TensorMap


@contextlib.contextmanager
def fake_driver() -> Generator[None]:
    """Make the bindings' functions for tensor maps give maps that the emulator reads, if the bindings are there."""
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
        return answer(tensor, interleave)

    def encode_im2col(
        kind: Any,
        rank: Any,
        address: Any,
        shape: Sequence[Any],
        strides: Sequence[Any],
        lower: Sequence[Any],
        upper: Sequence[Any],
        channels: Any,
        pixels: Any,
        steps: Sequence[Any],
        interleave: Any,
        swizzle: Any,
        _promotion: Any,
        fill: Any,
    ) -> tuple[Any, Any]:
        """Return status and map, as the driver does."""
        count = int(rank)
        corners = _numbers(lower)[: count - 2], _numbers(upper)[: count - 2]
        tensor = TensorMap(
            kind=int(kind),
            address=int(address),
            shape=_numbers(shape)[:count],
            strides=_numbers(strides)[: count - 1],
            box=(1,) * count,
            steps=_numbers(steps)[:count],
            swizzle=int(swizzle),
            fills_with_nan=bool(int(fill)),
            im2col=Im2col(*corners, int(channels), int(pixels)),
        )
        return answer(tensor, interleave)

    def answer(tensor: TensorMap, interleave: Any) -> tuple[Any, Any]:
        if int(interleave) or tensor.fault():
            return driver.CUresult.CUDA_ERROR_INVALID_VALUE, None
        data, made = tensor.encode(), driver.CUtensorMap()
        words = (data[at : at + 8] for at in range(0, BYTES, 8))
        made.opaque = [driver.cuuint64_t(int.from_bytes(word, "little")) for word in words]
        return driver.CUresult.CUDA_SUCCESS, made

    tiled = mock.patch.object(driver, "cuTensorMapEncodeTiled", encode)
    with tiled, mock.patch.object(driver, "cuTensorMapEncodeIm2col", encode_im2col):
        yield


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
