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
