"""What outputs of a recording are full of when a segment starts."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.runner.workers.stopwatch import poison  # noqa: E402

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.float64)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("byte", [0x01, 0x7F, 0xFF])
def test_each_byte_of_each_element_is_that_one_and_what_lies_between_is_left(dtype: torch.dtype, byte: int) -> None:
    whole = torch.zeros(6, 4, dtype=dtype)
    poison(whole[:, ::2], byte)
    assert bool((whole[:, ::2].contiguous().view(torch.uint8) == byte).all())
    assert not bool(whole[:, 1::2].any())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_an_output_of_no_dimension_is_poisoned_too(dtype: torch.dtype) -> None:
    loss = torch.zeros((), dtype=dtype)
    poison(loss, 0x7F)
    assert loss.reshape(1).view(torch.uint8).tolist() == [0x7F] * dtype.itemsize
