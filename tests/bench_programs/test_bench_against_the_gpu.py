"""The programs that hold the emulator to the GPU: what they make of two memories, and of a profiler's answer."""

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from tests.bench.access_counters import METRICS, compared, difference_percent, measured  # noqa: E402
from tests.bench.emulator_agreement import difference  # noqa: E402
from tests.bench.replay import Memory  # noqa: E402


def memory(values, dtype) -> Memory:
    data = torch.tensor(values, dtype=dtype).view(torch.uint8).numpy()
    return Memory("y", dtype, 0, data)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_neighbouring_values_are_one_unit_apart(dtype):
    one = torch.ones((), dtype=dtype)
    up = torch.nextafter(one.double(), one.double() + 1) if dtype is torch.float64 else one + torch.finfo(dtype).eps
    found = difference(memory([1.0, 0.5], dtype), memory([float(up), 0.5], dtype))
    assert (found["elements"], found["other_bits"], found["largest_ulp"]) == (2, 1, 1)


def test_values_on_both_sides_of_zero_are_counted_through_it():
    tiny = 2.0**-149
    assert difference(memory([tiny], torch.float32), memory([-tiny], torch.float32))["largest_ulp"] == 2
    assert difference(memory([0.0], torch.float32), memory([-0.0], torch.float32))["largest_ulp"] == 0
    assert difference(memory([float("nan")], torch.float32), memory([1.0], torch.float32))["largest_ulp"] > 1 << 20


def test_integers_differ_in_bits_alone():
    found = difference(memory([1, 2, 3], torch.int64), memory([1, 5, 3], torch.int64))
    assert (found["other_bits"], found["largest_ulp"]) == (1, 0)


def test_the_profiler_is_read_launch_by_launch():
    rows = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for launch, factor in ((0, 1), (10, 1000), (9, 2)):
        rows += [f'"{launch}","k","{metric}","","{factor * 10:,}"' for metric in METRICS.values()]
    log = "\n".join(["==PROF== Connected to process 1", *rows])
    assert [counts["load_sectors"] for counts in measured(log)] == [10, 20, 10_000]


def test_a_difference_is_a_share_of_the_gpus_count():
    assert difference_percent(101, 100) == pytest.approx(1.0)
    assert difference_percent(0, 0) == 0.0
    assert difference_percent(3, 0) == 300.0


def test_conflicts_that_the_gpu_has_now_and_then_count_as_a_share_of_its_wavefronts():
    times = [dict.fromkeys(METRICS, 10) | {"shared_store_conflicts": seen} for seen in (12, 3, 7)]
    for counts in times:
        counts["shared_store_conflicts of"] = 600
    found = compared(dict.fromkeys(METRICS, 10) | {"shared_store_conflicts": 0}, times)
    assert found["gpu"]["shared_store_conflicts"] == 3
    assert found["difference_percent"]["shared_store_conflicts"] == pytest.approx(-0.5)
    assert found["gpu_each_time"] == {"shared_store_conflicts": [12, 3, 7]}
