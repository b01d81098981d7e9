"""Performance hints: what they say, and the thresholds under which they say nothing."""

from pathlib import Path

import pytest

from kernel_lsp.check.hints import counter_hints, resource_hints
from kernel_lsp.compiler.machine_code.occupancy import next_cliffs, occupancy
from kernel_lsp.judge.emulation import EmulatedRun, KernelTotals, LineCounters
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels

TEXT = "template <int N>\n__global__ void f(float* y) {\n    y[0] = 1;\n    y[1] = 2;\n}\n"
TRITON = "import triton\n@triton.jit\ndef f(x):\n    pass\n"


def resources(registers=32, shared=0, threads=256, arch="sm_90", name="f<4>", **changes) -> KernelResources:
    at = occupancy(arch, registers, shared, threads)
    facts = {"spill_bytes": 0, "stack_bytes": 0, "limiter": str(at.limiters[0]), "occupancy": at.share}
    cliffs = next_cliffs(arch, registers, shared, threads)
    return KernelResources(
        name=name, registers=registers, shared_bytes=shared, threads=threads, cliffs=cliffs, **facts | changes
    )


def of_resources(*kernels: KernelResources) -> list[tuple[str | None, int, str]]:
    source = SourceFile(Path("k.cu"), TEXT)
    found = resource_hints(source, find_kernels(TEXT, source.path), kernels)
    return [(d.code, d.line, d.message.partition(". ")[0]) for d in found]


def counters(line=3, instructions=1000, **counts) -> LineCounters:
    return LineCounters("f<4>", str(Path("k.cu").absolute()), line, instructions, 32 * instructions, **counts)


def of_counters(*lines: LineCounters, suffix=".cu", least=0) -> list[tuple[str | None, int, str]]:
    lines = tuple(
        LineCounters(**{n: getattr(x, n) for n in x.__slots__} | {"path": x.path.replace(".cu", suffix)}) for x in lines
    )
    totals = (KernelTotals("f<4>", 1, 1, {}, least, 0, False),)
    run = EmulatedRun("n=1", "normal", 4000, counters=lines, totals=totals)
    found = counter_hints(SourceFile(Path(f"k{suffix}"), TRITON if suffix == ".py" else TEXT), [run])
    return [(d.code, d.line, d.message.partition(". ")[0]) for d in found]


def test_spills():
    assert of_resources(resources(spill_bytes=12)) == []
    assert of_resources(resources(spill_bytes=16)) == [("KL032", 2, "`f<4>` spills 16 bytes a thread")]


def test_what_fixes_a_triton_kernel_is_said_in_its_terms():
    source = SourceFile(Path("k.py"), TRITON)
    for changes in ({"registers": 88}, {"spill_bytes": 16}):
        (found,) = resource_hints(source, find_kernels(source.text, source.path), [resources(name="f[]", **changes)])
        assert "num_warps" in found.message
        assert "maxnreg" in found.message
        assert "__launch_bounds__" not in found.message


def test_of_several_instances_the_worst_one_speaks():
    found = of_resources(resources(name="f<2>", spill_bytes=16), resources(name="f<8>", spill_bytes=64))
    assert found == [("KL032", 2, "`f<8>` spills 64 bytes a thread")]


def test_an_array_in_local_memory():
    said = "`f<4>` keeps 32 bytes a thread in local memory, though it spills nothing"
    assert of_resources(resources(stack_bytes=32)) == [("KL034", 2, said)]
    assert of_resources(resources(stack_bytes=8)) == []
    assert [rule for rule, *_ in of_resources(resources(stack_bytes=32, spill_bytes=32))] == ["KL032"]


def test_figures_for_assumed_types_are_hints_at_nothing():
    source = SourceFile(Path("k.cu"), TEXT)
    kernels, spilled = find_kernels(TEXT, source.path), resources(spill_bytes=64)
    assert resource_hints(source, kernels, [spilled])
    assert resource_hints(source, kernels, [spilled], guessed={"f"}) == []


def test_a_stack_that_library_functions_take_is_no_array_of_the_kernel():
    source = SourceFile(Path("k.cu"), TEXT)
    kernels, stacked = find_kernels(TEXT, source.path), resources(stack_bytes=32, entry="_f")
    assert resource_hints(source, kernels, [stacked], own_stack={"_f"})
    assert resource_hints(source, kernels, [stacked], own_stack=()) == []


def test_occupancy_just_past_a_cliff():
    said = "`f<4>` has an occupancy of 25%, limited by registers; 8 registers a thread fewer would give 38%"
    assert of_resources(resources(registers=88)) == [("KL033", 2, said)]
    assert of_resources(resources(registers=128)) == [], "far from the next cliff"
    assert of_resources(resources(registers=40)) == [], "high enough"


def test_occupancy_by_shared_memory_and_by_small_blocks():
    (rule, _, said), *more = of_resources(resources(shared=114 * 1024, threads=512))
    assert (rule, more) == ("KL033", [])
    assert "limited by shared memory" in said
    assert "bytes of shared memory fewer would give 50%" in said
    (rule, _, said), *more = of_resources(resources(threads=32, arch="sm_86"))
    assert (rule, more) == ("KL033", [])
    assert "an occupancy of 33%, limited by blocks; blocks of 96 threads would give 100%" in said
    assert of_resources(resources(threads=32)) == [], "half of the warps will do"


def test_access_that_is_spread_out():
    line = counters(load_requests=100, load_sectors=3200, load_ideal_sectors=400)
    said = "this load needs 32 sectors where 4 would do: threads of a warp are far apart in memory"
    assert of_counters(line) == [("KL030", 3, said)]
    assert of_counters(line, suffix=".py") == [("KL030", 3, said)]
    store = counters(store_requests=10, store_sectors=320, store_ideal_sectors=40)
    assert [rule for rule, *_ in of_counters(store)] == ["KL030"]


@pytest.mark.parametrize(
    ("sectors", "ideal"),
    [(500, 400), (799, 400), (200, 100), (100, 400)],
    ids=["odd start", "under twice", "few more", "shared by threads"],
)
def test_access_that_is_near_enough(sectors, ideal):
    assert of_counters(counters(load_requests=100, load_sectors=sectors, load_ideal_sectors=ideal)) == []


def test_what_is_rare_in_its_kernel_is_no_hint():
    rare = counters(load_requests=10, load_sectors=320, load_ideal_sectors=40)
    bulk = counters(line=4, load_requests=1000, load_sectors=4000, load_ideal_sectors=4000)
    assert of_counters(rare, bulk) == []


def test_triton_decides_itself_how_wide_a_threads_access_is():
    line = counters(load_requests=100, load_sectors=1600, load_ideal_sectors=200)
    assert [rule for rule, *_ in of_counters(line)] == ["KL030"]
    assert of_counters(line, suffix=".py") == []


def test_bank_conflicts():
    line = counters(shared_load_requests=100, shared_load_wavefronts=3200, shared_load_conflicts=3100)
    said = "this load of shared memory takes 32 passes where one would do: a bank conflict"
    assert of_counters(line) == [("KL031", 3, said)]
    mild = counters(shared_load_requests=100, shared_load_wavefronts=150, shared_load_conflicts=50)
    assert of_counters(mild) == []
    wide = counters(shared_store_requests=100, shared_store_wavefronts=400, shared_store_conflicts=0)
    assert of_counters(wide) == [], "16 bytes a thread take four passes anyhow"


def test_narrow_access():
    line = counters(load_requests=100, load_sectors=200, load_ideal_sectors=200)
    assert of_counters(line) == [("KL035", 3, "this load moves 2 bytes a thread where up to 16 would do")]
    assert of_counters(line, suffix=".py") == []
    broadcast = counters(load_requests=100, load_sectors=100, load_ideal_sectors=200)
    assert of_counters(broadcast) == []
    uniform = counters(load_requests=100, load_sectors=100, load_ideal_sectors=100, bytes_read=100 * 32 * 2)
    assert of_counters(uniform) == [], "all threads of a warp read one half"
    whole = counters(load_requests=100, load_sectors=400, load_ideal_sectors=400)
    assert of_counters(whole) == []


def test_divergence():
    path = str(Path("k.cu").absolute())
    counts = {"instructions": 100, "lane_instructions": 400, "divergent_branches": 5}
    busy = LineCounters("f<4>", path, 3, **counts, working_lanes=3200)
    whole = LineCounters("f<4>", path, 4, instructions=900, lane_instructions=28800, working_lanes=28800)
    said = "on average 4 of a warp's 32 threads are active here, while the others wait"
    assert of_counters(busy, whole) == [("KL036", 3, said)]
    more = LineCounters("f<4>", path, 4, instructions=10000, lane_instructions=320000, working_lanes=320000)
    assert of_counters(busy, more) == []
    few = LineCounters("f<4>", path, 3, **counts, working_lanes=400)
    assert of_counters(few, whole) == [], "a block of 4 threads, or 4 rows with a thread each"


def test_traffic_far_above_the_least():
    line = counters(load_requests=100, load_sectors=400, load_ideal_sectors=400)
    assert of_counters(line, least=1280) == [], "too little to tell"
    line = counters(load_requests=1000, load_sectors=4000, load_ideal_sectors=4000)
    said = "the kernel moves 10 times the 12,800 bytes that have to be moved, most of it here"
    assert of_counters(line, least=12800) == [("KL037", 3, said)]
    assert of_counters(line, least=32000) == []
    spread = counters(load_requests=1000, load_sectors=32000, load_ideal_sectors=4000)
    assert [rule for rule, *_ in of_counters(spread, least=12800)] == ["KL030"], "one cause, one hint"


def test_lines_of_other_files_are_left_out():
    header = LineCounters("f<4>", "/elsewhere/k.cuh", 3, 1, 32, load_requests=1, load_sectors=32, load_ideal_sectors=4)
    assert of_counters(header) == []
