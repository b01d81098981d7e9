"""What a trace of the GPU says of a version: whose kernels ran, in which order, and whether the times agree."""

import dataclasses

import pytest

from kernel_lsp.judge.integrity.trace import (
    GpuOperation,
    OwnKernels,
    claims_too_little,
    harness_names,
    left_out,
    out_of_order,
    out_of_time,
    passed_off,
    read_launch,
    read_operations,
    read_timed,
)
from kernel_lsp.runner.messages.subject_answers import HeardLaunch, TracedOperation

SCALE_ENTRY, SOFTMAX_ENTRY = "_Z5scalePKfPfi", "_ZN3ops7softmaxIfEEvPKT_PS1_i"
OWN = OwnKernels(frozenset({SCALE_ENTRY, SOFTMAX_ENTRY}))
SCALE, SOFTMAX = "scale(float const*, float*, int)", "void ops::softmax<float>(float const*, float*, int)"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass::Params)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
MAIN, SIDE = 7, 13


def kernel(name: str, start: float, us: float, stream: int = MAIN) -> GpuOperation:
    return GpuOperation("kernel", name, stream, start, start + us)


def launch(*work: GpuOperation, spin: float = 300.0, end: float = 900.0) -> list[GpuOperation]:
    """A trace as a worker makes it: a spinning kernel from 0 on, the work, a clock reading."""
    return [kernel("spin", 0.0, spin), *work, kernel("read_clock", end, 2.0)]


def seen(*work: GpuOperation):
    return read_launch(launch(*work), OWN)


def test_a_workers_answer_is_read_in_the_order_of_time() -> None:
    later = TracedOperation("kernel", "b", 7, 10.5, 2.0, grid=(4, 1, 1), block=(9, 1, 1))
    first = TracedOperation("memset", "Memset (Device)", 7, 3.0, 1.5, nbytes=64)
    a, b = read_operations([later, first])
    assert (a.kind, a.nbytes, a.end_us, a.grid) == ("memset", 64, 4.5, None)
    assert (b.name, b.grid, b.block, b.us) == ("b", (4, 1, 1), (9, 1, 1), 2.0)


def test_marks_are_no_part_of_a_launch() -> None:
    found = seen(kernel(SCALE, 301.0, 40.0), kernel(SOFTMAX, 345.0, 20.0))
    assert [(g.name, g.own, g.calls, g.us) for g in found.groups] == [(SCALE, True, 1, 40.0), (SOFTMAX, True, 1, 20.0)]
    assert found.span_us == 64.0
    assert found.own_share == 1.0


@pytest.mark.parametrize("lost", ["spin", "read_clock"])
def test_a_trace_without_the_harnesss_kernels_says_nothing(lost: str) -> None:
    with pytest.raises(ValueError, match="harness"):
        read_launch([o for o in launch(kernel(SCALE, 301.0, 40.0)) if o.name != lost], OWN)


def test_a_version_that_launches_nothing_has_no_share() -> None:
    found = seen()
    assert (found.groups, found.span_us, found.own_share) == ((), 0.0, None)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (SCALE, True),
        ("scale(float const*,float*,int)", True),  # demanglers differ in their blanks
        ("scale(double const*, double*, int)", False),  # another overload, which the build does not hold
        ("void (anonymous namespace)::hidden<4>(int)", False),
        (GEMM, False),
    ],
)
def test_where_no_launch_is_heard_a_kernel_is_known_by_its_whole_declaration(name: str, own: bool) -> None:
    assert OWN.among([kernel(name, 301.0, 40.0)]) == [own]


def on(grid: int, name: str = SCALE, start: float = 301.0) -> GpuOperation:
    return dataclasses.replace(kernel(name, start, 10.0), grid=(grid, 1, 1))


def heard(*grids: int, entry: str = SCALE_ENTRY) -> OwnKernels:
    """Launches of one symbol that our launchers made, on grids of so many blocks."""
    launches = tuple(HeardLaunch(entry, (grid, 1, 1), (128, 1, 1)) for grid in grids)
    return OwnKernels(frozenset({SCALE_ENTRY, SOFTMAX_ENTRY}), launches)


def test_where_launches_are_heard_a_name_alone_proves_nothing() -> None:
    assert heard().among([on(4)]) == [False]
    assert heard(4).among([on(4)]) == [True]
    assert heard(4).among([on(8)]) == [False], "another grid"
    assert heard(4).among([on(4, SOFTMAX)]) == [False], "another symbol, though the build holds it"
    assert heard(4).among([kernel(SCALE, 301.0, 10.0)]) == [False], "an unknown grid"


def test_each_launch_that_was_heard_accounts_for_one_operation() -> None:
    work = [on(4, start=float(start)) for start in range(300, 400, 20)]
    assert heard(4, 8, 4).among(work) == [True, True, False, False, False]
    assert heard(4, 4, 4, 4, 4, 4).among(work) == [True] * 5


def test_a_heard_launch_is_no_copy_of_that_name() -> None:
    copied = dataclasses.replace(on(4), kind="memcpy")
    assert heard(4).among([copied, on(4)]) == [False, True]


def test_a_triton_kernel_is_known_by_its_plain_symbol() -> None:
    own = OwnKernels(frozenset({"add_kernel"}), (HeardLaunch("add_kernel", (4, 1, 1), (128, 1, 1)),))
    assert own.among([on(4, "add_kernel"), on(4, "add_kernel_2")]) == [True, False]


def test_a_library_that_is_called_like_an_own_kernel_does_not_pass_for_it() -> None:
    """One launch was heard; what ran under its name a second time is a library's."""
    work = launch(on(4), on(4, start=320.0))
    assert [(g.own, g.calls) for g in read_launch(work, heard(4)).groups] == [(True, 1), (False, 1)]


def test_kernels_that_were_built_and_never_launched_are_named() -> None:
    assert seen(kernel(SCALE, 301.0, 40.0)).never == (SOFTMAX,)


def test_one_stream_is_in_order() -> None:
    assert out_of_order(seen(kernel(SCALE, 301.0, 40.0))) is None


def test_a_side_stream_that_waits_and_is_waited_for_is_in_order() -> None:
    assert out_of_order(seen(kernel(SCALE, 301.0, 40.0), kernel(SOFTMAX, 305.0, 500.0, SIDE))) is None


def test_work_that_does_not_wait_for_its_inputs_is_out_of_order() -> None:
    assert out_of_order(seen(kernel(SCALE, 120.0, 40.0, SIDE))) == (
        "works on another stream without waiting for what was enqueued before it (`scale`)"
    )


def test_work_that_nothing_waits_for_is_out_of_order() -> None:
    assert out_of_order(seen(kernel(SOFTMAX, 310.0, 2000.0, SIDE))) == (
        "returns before its work is done: on the caller's stream nothing waits for `ops::softmax`"
    )


def test_work_after_the_return_is_out_of_order() -> None:
    found = out_of_order(seen(kernel(SCALE, 301.0, 4.0), kernel(SOFTMAX, 1500.0, 20.0)))
    assert found is not None
    assert "returns before its work is done" in found


BASELINE = seen(kernel(SCALE, 301.0, 100.0))


def test_own_kernels_are_legitimate() -> None:
    assert passed_off(seen(kernel(SOFTMAX, 301.0, 50.0)), BASELINE) is None


def test_setting_memory_to_zero_beside_a_short_kernel_is_legitimate() -> None:
    zeroed = GpuOperation("memset", "Memset (Device)", MAIN, 301.0, 340.0)
    assert passed_off(seen(zeroed, kernel(FILL, 341.0, 30.0), kernel(SCALE, 372.0, 5.0)), BASELINE) is None


def test_a_library_in_place_of_own_kernels_is_not() -> None:
    assert passed_off(seen(kernel(GEMM, 301.0, 50.0)), BASELINE) == (
        "none of its own kernels ran; what ran is `cutlass::Kernel2`"
    )


def test_nor_is_doing_nothing() -> None:
    assert passed_off(seen(), BASELINE) == "none of its own kernels ran; nothing that computes ran"


@pytest.mark.parametrize("us", [60.0, 1.0])
def test_nor_is_a_library_that_computes_where_the_baseline_calls_none(us: float) -> None:
    assert passed_off(seen(kernel(SCALE, 301.0, 5.0), kernel(GEMM, 310.0, us)), BASELINE) == (
        "`cutlass::Kernel2` computes for it, which is not its own kernel, where the baseline computes "
        "with its own alone"
    )


def test_nor_is_a_fig_leaf_beside_copies_that_take_most_of_the_time() -> None:
    assert passed_off(seen(kernel(SCALE, 301.0, 5.0), kernel(COPY, 310.0, 60.0)), BASELINE) == (
        "its own kernels take 5.0 us of 65.0 us; the rest is `at::native::elementwise_kernel`, which is not its own"
    )


def test_copying_memory_as_it_is_computes_nothing() -> None:
    """As a graph of its own does, which works on memory of its own."""
    copied = GpuOperation("memcpy", "Memcpy DtoD (Device -> Device)", MAIN, 310.0, 370.0)
    assert passed_off(seen(kernel(SCALE, 301.0, 5.0), copied), BASELINE) is None
    assert passed_off(seen(copied), BASELINE) == "none of its own kernels ran; nothing that computes ran"


def test_nor_is_a_fig_leaf_beside_more_of_the_baselines_library() -> None:
    mixed = seen(kernel(SCALE, 301.0, 5.0), kernel(GEMM, 307.0, 60.0))
    found = passed_off(seen(kernel(SCALE, 301.0, 5.0), kernel(GEMM, 307.0, 90.0)), mixed)
    assert found is not None
    assert found.startswith("its own kernels take 5.0 us of 95.0 us; the rest is `cutlass::Kernel2`")


def test_copies_beside_own_kernels_that_take_longer_are() -> None:
    assert passed_off(seen(kernel(SCALE, 301.0, 60.0), kernel(COPY, 362.0, 40.0)), BASELINE) is None


def test_what_the_baseline_leaves_to_libraries_a_candidate_may_too() -> None:
    mixed = seen(kernel(SCALE, 301.0, 50.0), kernel(GEMM, 352.0, 60.0))
    quicker = seen(kernel(SCALE, 301.0, 5.0), kernel(GEMM, 307.0, 60.0))
    assert passed_off(quicker, mixed) is None
    assert passed_off(quicker, BASELINE) is not None


def test_a_baseline_without_own_kernels_asks_for_none() -> None:
    assert passed_off(seen(kernel(GEMM, 301.0, 20.0)), seen(kernel(GEMM, 301.0, 60.0))) is None


def test_kernels_that_were_built_and_never_run_are_for_show_beside_a_model() -> None:
    model = read_launch(launch(kernel(GEMM, 301.0, 60.0)), OwnKernels(frozenset()))
    assert passed_off(seen(kernel(GEMM, 301.0, 20.0)), model) == (
        "none of the kernels it was built with ran (`scale`, `ops::softmax`)"
    )
    assert passed_off(seen(kernel(GEMM, 301.0, 20.0), kernel(SCALE, 322.0, 1.0)), model) is None


LAUNCH = seen(kernel(SCALE, 301.0, 100.0))
HARNESS = [kernel("Memset (Device)", 0.0, 45.0), kernel("reduce_kernel", 200.0, 3.0), kernel(FILL, 210.0, 3.0)]


def recorded(count: int, us: float, *others: GpuOperation) -> list[GpuOperation]:
    return [*HARNESS, *(kernel(SCALE, 300.0 * i, us) for i in range(count)), *others]


def test_in_a_recording_own_kernels_are_those_of_a_launch_by_itself() -> None:
    ran = read_timed(recorded(4, 100.0, kernel(SOFTMAX, 5.0, 50.0)), LAUNCH, frozenset(o.name for o in HARNESS))
    assert [(g.name, g.own) for g in ran.groups] == [(SCALE, True), (SOFTMAX, False)]


def test_the_harness_is_known_by_what_the_baselines_launch_does_not_do() -> None:
    names = harness_names(recorded(4, 100.0), launch(kernel(SCALE, 301.0, 100.0)))
    assert names == {"Memset (Device)", "reduce_kernel", FILL}
    timed = read_timed(recorded(4, 100.0), LAUNCH, names)
    assert (timed.own_us, timed.own_share) == (400.0, 1.0)


def enqueued(*work: GpuOperation, flushes: int = 2) -> list[GpuOperation]:
    """A segment that is enqueued launch by launch: every 1000 us a flush of 60 us and, 300 us later, a checksum."""
    marks = [
        operation
        for start in (1000.0 * number for number in range(flushes))
        for operation in (
            kernel("demote", start, 10.0),
            GpuOperation("memset", "Memset (Device)", MAIN, start + 10.0, start + 60.0),
            kernel("kernel_lsp_checksum", start + 360.0, 5.0),
            kernel("kernel_lsp_checksum", start + 366.0, 5.0),
        )
    ]
    return sorted([*marks, *work], key=lambda operation: operation.start_us)


IN_TIME = enqueued(kernel(SCALE, 61.0, 100.0), kernel(SCALE, 1061.0, 100.0))


def test_own_work_between_a_flush_and_its_checksum_is_timed() -> None:
    assert out_of_time(IN_TIME, IN_TIME, LAUNCH) is None
    assert out_of_time(enqueued(flushes=0), enqueued(flushes=0), LAUNCH) is None


@pytest.mark.parametrize("start", [5.0, 20.0, 340.0, 380.0, 900.0, 1400.0])
def test_own_work_beside_a_flush_or_behind_a_checksum_is_not(start: float) -> None:
    assert out_of_time(enqueued(kernel(SCALE, 61.0, 100.0), kernel(SCALE, start, 100.0, SIDE)), IN_TIME, LAUNCH) == (
        "what was timed runs `scale` outside the time that is taken of a launch"
    )


def test_others_work_there_is_not_looked_at() -> None:
    """A checksum of an output that is not contiguous copies it first."""
    assert out_of_time(enqueued(kernel(SCALE, 61.0, 100.0), kernel(COPY, 340.0, 30.0)), IN_TIME, LAUNCH) is None


def test_who_launches_a_kernel_by_the_harnesss_name_is_rejected() -> None:
    posed = enqueued(kernel(SCALE, 61.0, 100.0), kernel("kernel_lsp_checksum", 330.0, 2.0))
    assert out_of_time(posed, IN_TIME, LAUNCH) == (
        "it launches a kernel that is called as the harness's own (`kernel_lsp_checksum`)"
    )


def test_a_recording_must_run_what_a_launch_runs() -> None:
    names = frozenset(o.name for o in HARNESS)
    assert left_out(LAUNCH, read_timed(recorded(4, 100.0), LAUNCH, names), 4) is None
    assert left_out(LAUNCH, read_timed(recorded(5, 100.0), LAUNCH, names), 4) is None
    assert left_out(LAUNCH, read_timed(recorded(1, 100.0), LAUNCH, names), 4) == (
        "what was timed runs `scale` 1 times in 4 launches, where a launch by itself runs it 1 times"
    )


def test_a_library_that_only_the_recording_calls_is_seen() -> None:
    names = frozenset(o.name for o in HARNESS)
    ran = read_timed(recorded(4, 2.0, kernel(GEMM, 5.0, 200.0)), LAUNCH, names)
    assert passed_off(ran, read_timed(recorded(4, 100.0), LAUNCH, names)) is not None


@pytest.mark.parametrize(("claimed", "believed"), [(100.0, True), (140.0, True), (80.0, True), (60.0, False)])
def test_a_launch_cannot_take_less_time_than_its_kernels(claimed: float, believed: bool) -> None:
    timed = read_timed(recorded(4, 100.0), LAUNCH, frozenset(o.name for o in HARNESS))
    assert (claims_too_little(timed, 4, claimed) is None) is believed


def test_a_trace_may_make_short_kernels_longer() -> None:
    timed = read_timed(recorded(4, 3.0), LAUNCH, frozenset(o.name for o in HARNESS))
    assert claims_too_little(timed, 4, 1.2) is None


def test_operations_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HARNESS[0].name = "other"  # type: ignore[misc]
