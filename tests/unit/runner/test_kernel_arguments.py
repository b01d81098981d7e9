"""A Python value becomes exactly the bytes that the compiled kernel reads, or is refused."""

import math
import struct

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from kernel_lsp.device.arguments import missing_kernel, pack_argument  # noqa: E402
from kernel_lsp.errors import NotBuiltError, WorkloadError  # noqa: E402


def pack(value, size: int, declared: str = "") -> bytes:
    return pack_argument(value, size, declared, "`k` argument 0")


def refusal(value, size: int, declared: str = "") -> str:
    with pytest.raises(WorkloadError) as caught:
        pack(value, size, declared)
    assert caught.value.message.startswith("`k` argument 0 is ")
    return caught.value.message


@pytest.mark.parametrize(
    ("value", "size", "declared", "layout"),
    [
        (7, 4, "int", "<i"),
        (-7, 4, "int", "<i"),
        (-7, 4, "const int", "<i"),
        (2**31 - 1, 4, "int", "<i"),
        (2**32 - 1, 4, "unsigned int", "<I"),
        (2**32 - 1, 4, "uint32_t", "<I"),
        (2**40, 8, "long long", "<q"),
        (-(2**40), 8, "int64_t", "<q"),
        (2**64 - 1, 8, "size_t", "<Q"),
        (2**64 - 1, 8, "unsigned long long", "<Q"),
        (-3, 2, "short", "<h"),
        (200, 1, "unsigned char", "<B"),
        (-100, 1, "char", "<b"),
        (True, 1, "bool", "<?"),
        (False, 1, "bool", "<?"),
        (2, 1, "bool", "<?"),
        (2**32 - 1, 4, "unsigned", "<I"),
        (-1, 8, "ptrdiff_t", "<q"),
        (True, 4, "int", "<i"),
        (1.5, 4, "float", "<f"),
        (3, 4, "float", "<f"),
        (True, 4, "const float", "<f"),
        (1e-6, 8, "double", "<d"),
        (3, 8, "double", "<d"),
        (1.5, 2, "half", "<e"),
        (2, 2, "__half", "<e"),
        (math.inf, 4, "float", "<f"),
        (-math.inf, 2, "half", "<e"),
    ],
)
def test_a_number_takes_the_declared_type(value, size, declared, layout):
    assert pack(value, size, declared) == struct.pack(layout, value)


@pytest.mark.parametrize(
    ("value", "size", "layout"),
    [(5, 4, "<i"), (-5, 4, "<i"), (2**32 - 1, 4, "<I"), (-5, 8, "<q"), (1.5, 4, "<f"), (1.5, 8, "<d"), (1.5, 2, "<e")],
)
@pytest.mark.parametrize("declared", ["", "T", "const scalar_t"])
def test_where_a_template_hides_the_type_the_python_type_decides(value, size, layout, declared):
    assert pack(value, size, declared) == struct.pack(layout, value)


@pytest.mark.parametrize(
    "value", [1.0, 1.01, -1.01, 3.14159265, 1.00390625, 1.01171875, 1e-40, 3e38, 3.396e38, math.inf, -math.inf, 2]
)
def test_bfloat16_is_rounded_as_torch_rounds_it(value):
    rounded = torch.tensor([float(value)], dtype=torch.bfloat16).view(torch.uint8)
    assert pack(value, 2, "__nv_bfloat16") == bytes(rounded.tolist())


@pytest.mark.parametrize(("size", "declared"), [(2, "__nv_bfloat16"), (2, "half"), (4, "float"), (8, "double")])
def test_nan_stays_nan(size, declared):
    dtype = {"__nv_bfloat16": torch.bfloat16, "half": torch.float16, "float": torch.float32, "double": torch.float64}
    packed = torch.frombuffer(bytearray(pack(math.nan, size, declared)), dtype=dtype[declared])
    assert bool(torch.isnan(packed))


@pytest.mark.parametrize(
    ("value", "size", "declared"),
    [
        (2**31, 4, "int"),
        (-(2**31) - 1, 4, "int"),
        (2**32, 4, "unsigned int"),
        (-1, 4, "unsigned int"),
        (-1, 4, "uint32_t"),
        (-1, 8, "size_t"),
        (2**63, 8, "long long"),
        (128, 1, "char"),
        (2**15, 2, "short"),
        (2**32, 4, "T"),
        (1e39, 4, "float"),
        (1e5, 2, "half"),
        (1e39, 2, "__nv_bfloat16"),
        (3.4e38, 2, "__nv_bfloat16"),
        pytest.param(10**400, 8, "double", id="a number of 401 digits"),
    ],
)
def test_a_number_out_of_range_is_refused(value, size, declared):
    assert "does not fit" in refusal(value, size, declared)


def test_a_float_for_an_integer_is_refused():
    assert refusal(2.5, 4, "int") == "`k` argument 0 is the float 2.5, but the kernel declares `int`"


def test_a_float_for_a_parameter_of_another_size_is_refused():
    assert "reads 16 bytes" in refusal(1.0, 16, "T")


@pytest.mark.parametrize(
    ("size", "declared"),
    [(4, "half2"), (4, "__half2"), (4, "__nv_bfloat162"), (8, "float2"), (16, "float4"), (8, "int2"), (4, "uchar4")],
)
def test_a_number_is_no_vector(size, declared):
    assert f"declares `{declared}`" in refusal(1, size, declared)


@pytest.mark.parametrize("declared", ["float*", "const float* __restrict__", "half *", "int*", "const T*", "float4*"])
def test_an_address_may_be_a_tensor_or_a_number(declared):
    x = torch.zeros(4)
    address = struct.pack("<Q", x.data_ptr())
    assert pack(x, 8, declared) == address
    assert pack(x.data_ptr(), 8, declared) == address
    assert pack(0, 8, declared) == bytes(8)


def test_a_tensor_where_a_number_is_wanted_is_refused():
    assert (
        refusal(torch.zeros(1), 4, "int") == "`k` argument 0 is a tensor of 8 bytes, but the kernel reads 4 bytes there"
    )


@pytest.mark.parametrize(
    ("scalar", "declared"),
    [
        (numpy.float32(1.5), "float"),
        (numpy.uint64(2**64 - 1), "size_t"),
        (numpy.int8(-1), "char"),
        (numpy.float16(2), "T"),
    ],
)
def test_a_numpy_scalar_passes_its_own_bytes(scalar, declared):
    assert pack(scalar, scalar.nbytes, declared) == scalar.tobytes()


def test_a_numpy_scalar_of_another_size_is_refused():
    assert "a float64 scalar of 8 bytes" in refusal(numpy.float64(1.5), 4, "float")


@pytest.mark.parametrize("value", [None, "text", [1], (1, 2), 1j])
def test_other_kinds_are_refused(value):
    assert f"a {type(value).__name__}; pass a tensor, a number or a numpy scalar" in refusal(value, 4, "int")


@pytest.mark.parametrize(
    ("name", "excused"), [("sum<97>", True), ("sum", False), ("total<97>", False), ("sum_of_any<97>", False)]
)
def test_only_an_instance_of_a_template_in_the_file_may_not_be_built_yet(name, excused):
    error = missing_kernel(name, ["sum<64>", "scale"], ["sum", "scale"])
    assert isinstance(error, NotBuiltError) is excused
    assert f"a kernel `{name}` that the file does not have (it has: scale, sum<64>)" in error.message
