"""The kernel that measures errors in one pass, on the emulator: it reads what tensor operations read."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp import device  # noqa: E402
from kernel_lsp.compiler.cuda.build import build_cuda  # noqa: E402
from kernel_lsp.device.device import device_named  # noqa: E402
from kernel_lsp.runner.workers import fused  # noqa: E402
from kernel_lsp.runner.workers.allocations import WatchedAllocations  # noqa: E402
from kernel_lsp.runner.workers.comparison import distance, read, scale  # noqa: E402
from kernel_lsp.runner.workers.emulator import Emulator  # noqa: E402
from kernel_lsp.runner.workers.error_bounds import Bounds  # noqa: E402
from kernel_lsp.source.candidate import SourceFile  # noqa: E402

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def compiled(name):
    path = Path(next(iter(device.__path__))) / name
    built = build_cuda(SourceFile(path, path.read_text()), "sm_80")
    assert built.binary is not None, built.log
    return built.binary


@pytest.fixture(scope="module")
def binary():
    return compiled("distance.cu")


@pytest.fixture(scope="module")
def probes():
    return compiled("probes.cu")


@pytest.fixture
def measure(binary):
    """Both readings of an output: by the kernel, with nothing found amiss in it, and by tensor operations."""

    def run(actual, expected, allowed: float = 4.0):
        emulator = Emulator(device_named("sm_80"))
        emulator.begin(["actual", "expected"], [actual, expected])
        with torch.no_grad(), emulator.placement(), WatchedAllocations(emulator):
            found = fused.FusedMeasure(emulator.module(binary, {}, {}))(
                actual, expected, scale(expected, actual.dtype), allowed
            )
        assert emulator.end()["findings"] == ()
        return found, read(actual, expected, scale(expected, actual.dtype), allowed)

    return run


def alike(found, wanted) -> bool:
    """Whether two readings say the same, but for the order in which squares were added."""
    if found._replace(squares=0) != wanted._replace(squares=0):
        return False
    return found.squares == wanted.squares or math.isclose(found.squares, wanted.squares, rel_tol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 1000, 1025, 5000])
def test_errors_of_rounding_are_read_alike(measure, dtype, size):
    expected = torch.randn(size, dtype=torch.float64)
    found, wanted = measure(expected.to(dtype), expected)
    assert alike(found, wanted)
    assert found.first is None
    assert 0 < found.largest <= 0.5 or dtype is torch.float64


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_first_wrong_element_and_their_number_are_read_alike(measure, dtype):
    expected = torch.randn(3000, dtype=torch.float64)
    actual = expected.to(dtype, copy=True)
    actual[[2999, 1234, 1235]] += 1
    found, wanted = measure(actual, expected)
    assert alike(found, wanted)
    assert (found.wrong, found.first) == (3, 1234)


SPECIAL = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 65503.0, 65519.9, 65520.0, 1e5, -1e5, 3.3895e38, 3.396e38]
SPECIAL += [3.4028235e38, 3.5e38, -3.5e38, 1e300, 1.7e308, -1.7e308, 5e-324, 1e-310, 1e-40, 1e-8]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_out_of_the_ordinary_are_read_alike(measure, dtype):
    values = torch.tensor(SPECIAL, dtype=torch.float64)
    actual = values.to(dtype)
    for exact in values:
        found, wanted = measure(actual, torch.full_like(values, exact))
        assert alike(found, wanted), exact
    for output in actual:
        found, wanted = measure(output.repeat(len(values)), values)
        assert alike(found, wanted), output


def test_an_output_with_strides_is_read(measure):
    expected = torch.randn(40, 30, dtype=torch.float64)
    found, wanted = measure(expected.float().t().contiguous().t(), expected)
    assert alike(found, wanted)


def test_other_types_are_left_to_tensor_operations(measure):
    assert measure(torch.ones(8, dtype=torch.int32), torch.ones(8, dtype=torch.int32))[0] is None
    assert measure(torch.ones(8), torch.ones(8))[0] is None
    assert measure(torch.ones(0), torch.ones(0, dtype=torch.float64))[0] is None


def test_a_distance_is_the_same_by_either(measure):
    expected = torch.randn(2000, dtype=torch.float64)
    actual = expected.float()
    actual[700] += 1
    size, bounds = scale(expected, actual.dtype), Bounds(4.0, 1.0)
    quick = distance(actual, expected, size, bounds, lambda *arguments: measure(*arguments[:2], arguments[3])[0])
    slow = distance(actual, expected, size, bounds)
    assert (quick.first_wrong, quick.wrong, quick.max, quick.expected, quick.actual) == (
        *(slow.first_wrong, slow.wrong, slow.max, slow.expected, slow.actual),
    )
    assert quick.rms == pytest.approx(slow.rms, rel=1e-12)


@pytest.fixture
def checksum(probes):
    def run(tensor, salt=0) -> int:
        emulator = Emulator(device_named("sm_80"))
        emulator.begin(["tensor"], [tensor])
        with torch.no_grad(), emulator.placement(), WatchedAllocations(emulator):
            total = fused.FusedChecksum(emulator.module(probes, {}, {}), salt)(tensor)
        assert emulator.end()["findings"] == ()
        return int(total)

    return run


def weighed(data: bytes, salt: int = 0) -> int:
    """What the kernel says in words of its source."""
    whole = len(data) // 16 * 16
    numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)] + list(data[whole:])
    total = 0
    for place, number in enumerate(numbers, 1 + salt):
        mixed = place * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1
        total += number * ((mixed ^ mixed >> 32) | 1)
    return total & (1 << 64) - 1


@pytest.mark.parametrize("nbytes", [0, 1, 15, 16, 17, 4096, 8191, 40_003])
def test_a_checksum_is_the_same_sum_however_it_is_added(checksum, nbytes):
    data = torch.randint(0, 256, (nbytes,), dtype=torch.uint8)
    for salt in (0, 12_345 << 48):
        assert checksum(data, salt) & (1 << 64) - 1 == weighed(data.numpy().tobytes(), salt)


def test_a_checksum_tells_a_change_anywhere_and_another_order(checksum):
    values = torch.randn(3000)
    usual = checksum(values)
    for place in (0, 1500, 2999):
        other = values.clone()
        other[place] = -other[place]
        assert checksum(other) != usual
    assert checksum(values.flip(0)) != usual
    assert checksum(values.clone()) == usual
