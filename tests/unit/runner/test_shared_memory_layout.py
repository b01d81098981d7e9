"""How inputs lie in the memory that two processes share: aligned, guarded, and as unaligned or strided as asked."""

import msgspec
import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.device.shared_buffer import (  # noqa: E402
    TensorSpec,
    lay_out,
    make_buffer,
    open_buffer,
    row_major,
    torch_dtype,
)
from kernel_lsp.policy import GUARD_BYTES, POISON_BYTE  # noqa: E402
from kernel_lsp.runner import messages  # noqa: E402

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
KINDS = [(dtype, (5, 7), (7, 1)) for dtype in DTYPES]


def views(kinds, **layout):
    specs, nbytes = lay_out(kinds, **layout)
    buffer = make_buffer(nbytes, "cpu")
    return buffer, specs, [buffer.view(spec) for spec in specs]


@pytest.mark.parametrize(
    "layout", [{}, {"shifted": True}, {"strided": True}, {"padded": True}, {"misaligned": 3}], ids=str
)
def test_tensors_hold_what_is_written_and_never_touch_a_guard_or_each_other(layout):
    buffer, specs, tensors = views(KINDS, **layout)
    buffer.poison()
    written = [torch.randint(0, 2, (5, 7)).to(tensor.dtype) for tensor in tensors]
    for tensor, values in zip(tensors, written, strict=True):
        tensor.copy_(values)
    for spec, tensor, values in zip(specs, tensors, written, strict=True):
        assert (tensor.dtype, tensor.shape) == (values.dtype, values.shape)
        assert torch.equal(tensor, values)
        for guard in (
            buffer.data[spec.offset - GUARD_BYTES : spec.offset],
            buffer.data[spec.offset + spec.span :][:GUARD_BYTES],
        ):
            assert guard.numel() == GUARD_BYTES
            assert bool((guard == POISON_BYTE).all())


def test_plain_tensors_start_where_fresh_allocations_do():
    _, _, tensors = views(KINDS)
    for tensor in tensors:
        assert tensor.data_ptr() % 512 == 0
        assert tensor.is_contiguous()


def test_shifted_tensors_are_aligned_to_one_element_only():
    _, _, tensors = views(KINDS, shifted=True)
    for tensor in tensors:
        assert tensor.data_ptr() % 512 == tensor.itemsize
        assert tensor.is_contiguous()


def test_strided_tensors_use_every_second_element():
    _, _, tensors = views(KINDS, strided=True)
    for tensor in tensors:
        assert tensor.stride() == (14, 2)
        assert not tensor.is_contiguous()


def test_what_lies_between_the_elements_of_a_strided_tensor_stays_poisoned():
    buffer, (spec,), (tensor,) = views([(torch.float32, (4,), (1,))], strided=True)
    buffer.poison()
    tensor.zero_()
    words = buffer.data[spec.offset : spec.offset + spec.span].view(torch.float32)
    assert torch.isnan(words[1::2]).all()
    assert torch.equal(words[::2], torch.zeros(4))


def test_what_a_tensor_fills_whole_need_not_be_poisoned():
    kinds = [(torch.float32, (5, 7), (7, 1)), (torch.float32, (5, 7), (1, 5)), (torch.float32, (0, 4), (4, 1))]
    buffer, specs, (whole, turned, *_) = views([*kinds, (torch.float32, (3,), (2,))])
    buffer.data.zero_()
    buffer.poison(specs)
    assert bool((whole == 0).all())
    assert torch.isnan(turned).all()
    for spec in specs:
        assert bool((buffer.data[spec.offset - GUARD_BYTES : spec.offset] == POISON_BYTE).all())
        assert bool((buffer.data[spec.offset + spec.span :][:GUARD_BYTES] == POISON_BYTE).all())
    gaps = buffer.data[specs[3].offset : specs[3].offset + specs[3].span].view(torch.float32)
    assert torch.isnan(gaps).all()


def test_the_users_own_strides_are_kept():
    _, _, (transposed, sliced, expanded) = views(
        [(torch.float32, (5, 7), (1, 5)), (torch.float32, (5, 7), (64, 1)), (torch.float32, (5, 7), (0, 1))]
    )
    assert [t.stride() for t in (transposed, sliced, expanded)] == [(1, 5), (64, 1), (0, 1)]


@pytest.mark.parametrize("layout", [{}, {"shifted": True}, {"strided": True}], ids=str)
def test_empty_tensors_and_single_values_have_a_place(layout):
    _, _, (empty, single) = views([(torch.float32, (0, 4), (4, 1)), (torch.float64, (), ())], **layout)
    assert empty.shape == (0, 4)
    single.fill_(3.0)
    assert single.item() == 3.0


def test_a_place_travels_as_a_message():
    spec = TensorSpec("bfloat16", (3, 4), (4, 1), 16384, 24)
    assert msgspec.msgpack.decode(messages.encode(spec), type=TensorSpec) == spec
    assert torch_dtype(spec.dtype) is torch.bfloat16


def test_a_copy_to_publish_is_row_major_whatever_the_tensors_strides():
    spec = row_major(torch.zeros(6, 4, dtype=torch.float16).t(), 512)
    assert spec == TensorSpec("float16", (4, 6), (6, 1), 512, 48)


def test_poison_is_not_a_number_in_every_floating_point_type():
    buffer = make_buffer(64, "cpu")
    buffer.poison()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.isnan(buffer.data.view(dtype)).all()


def test_what_one_opener_writes_the_maker_reads():
    made = make_buffer(64, "cpu")
    opened = open_buffer(made.handle)
    opened.data[3] = 42
    assert int(made.data[3]) == 42


def test_rows_lie_apart_and_are_as_aligned_as_before():
    dense, rows, turned = (4, 8, 64), (512, 64, 1), (1, 4, 32)
    _, specs, tensors = views([(torch.float32, dense, rows), (torch.float32, dense, turned)], padded=True)
    assert [spec.stride for spec in specs] == [(8 * 80, 80, 1), (1, 20, 160)], "a row runs where the stride is 1"
    assert not tensors[0].is_contiguous()
    assert tensors[0][0, 1].data_ptr() % 16 == 0
    assert tensors[0][0].is_contiguous() is False


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((7,), (1,)), ((), ()), ((5, 7), (14, 2)), ((3, 0), (1, 1)), ((3, 4), (5, 1)), ((6, 1), (1, 1))],
)
def test_what_has_no_rows_to_move_apart_stays(shape, stride):
    (spec,), _ = lay_out([(torch.float32, shape, stride)], padded=True)
    assert spec.stride == stride


def test_one_tensor_alone_starts_half_a_vector_past_its_alignment():
    kinds = [(torch.float32, (8,), (1,)), (torch.float16, (8,), (1,)), (torch.complex128, (8,), (1,))]
    for number, off in ((1, [8, 0, 0]), (2, [0, 8, 0]), (3, [0, 0, 16]), (4, [0, 0, 0])):
        specs, _ = lay_out(kinds, misaligned=number)
        assert [spec.offset % 512 for spec in specs] == off
