"""What a trace of the GPU says of a version: whose kernels ran, in which order, and whether the times agree."""

import dataclasses

import pytest

from kernel_lsp.judge.integrity.trace import (
    Operation,
    OwnKernels,
    claims_too_little,
    harness_names,
    left_out,
    out_of_order,
    passed_off,
    read_launch,
    read_operations,
    read_timed,
)

OWN = OwnKernels(frozenset({"_Z5scalePKfPfi", "_ZN3ops7softmaxIfEEvPKT_PS1_i"}))
SCALE, SOFTMAX = "scale(float const*, float*, int)", "void ops::softmax<float>(float const*, float*, int)"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass::Params)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
MAIN, SIDE = 7, 13


def kernel(name: str, start: float, us: float, stream: int = MAIN) -> Operation:
    return Operation("kernel", name, stream, start, start + us)


def launch(*work: Operation, spin: float = 300.0, end: float = 900.0) -> list[Operation]:
    """A trace as a worker makes it: a spinning kernel from 0 on, the work, a clock reading."""
    return [kernel("spin", 0.0, spin), *work, kernel("read_clock", end, 2.0)]


def seen(*work: Operation):
    return read_launch(launch(*work), OWN)


def test_a_workers_answer_is_read_in_the_order_of_time() -> None:
    later = {
        "kind": "kernel",
        "name": "b",
        "stream": 7,
        "start_us": 10.5,
        "us": 2.0,
        "grid": [4, 1, 1],
        "block": [9, 1, 1],
    }
    first = {"kind": "memset", "name": "Memset (Device)", "stream": 7, "start_us": 3.0, "us": 1.5, "nbytes": 64}
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
def test_a_kernel_is_known_by_its_whole_declaration(name: str, own: bool) -> None:
    assert OWN.holds(name) is own


def test_where_only_the_source_is_known_names_are_compared_without_template_arguments() -> None:
    own = OwnKernels(frozenset(), frozenset({"ops::softmax", "plain_kernel"}))
    assert own.holds("void ops::softmax<float, 256>(float const*)")
    assert own.holds("plain_kernel")
    assert not own.holds("void softmax<float>(float const*)")


def test_who_names_a_kernel_like_a_librarys_has_none_of_its_own() -> None:
    assert not OwnKernels(frozenset({"ampere_sgemm_128x64_nn"})).holds("ampere_sgemm_128x64_nn")


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
    zeroed = Operation("memset", "Memset (Device)", MAIN, 301.0, 340.0)
    assert passed_off(seen(zeroed, kernel(FILL, 341.0, 30.0), kernel(SCALE, 372.0, 5.0)), BASELINE) is None


def test_a_library_in_place_of_own_kernels_is_not() -> None:
    assert passed_off(seen(kernel(GEMM, 301.0, 50.0)), BASELINE) == (
        "none of its own kernels ran; what ran is `cutlass::Kernel2`"
    )


def test_nor_is_doing_nothing() -> None:
    assert passed_off(seen(), BASELINE) == "none of its own kernels ran; nothing ran at all"


@pytest.mark.parametrize("other", [kernel(GEMM, 310.0, 60.0), kernel(COPY, 310.0, 60.0)])
def test_a_fig_leaf_beside_a_library_is_not(other: Operation) -> None:
    found = passed_off(seen(kernel(SCALE, 301.0, 5.0), other), BASELINE)
    assert found is not None
    assert found.startswith("its own kernels take 5.0 us of 65.0 us; the rest is `")


def test_a_small_share_of_a_library_is() -> None:
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


def recorded(count: int, us: float, *others: Operation) -> list[Operation]:
    return [*HARNESS, *(kernel(SCALE, 300.0 * i, us) for i in range(count)), *others]


def test_the_harness_is_known_by_what_the_baselines_launch_does_not_do() -> None:
    names = harness_names(recorded(4, 100.0), launch(kernel(SCALE, 301.0, 100.0)))
    assert names == {"Memset (Device)", "reduce_kernel", FILL}
    timed = read_timed(recorded(4, 100.0), OWN, names)
    assert (timed.own_us, timed.own_share) == (400.0, 1.0)


def test_a_recording_must_run_what_a_launch_runs() -> None:
    names = frozenset(o.name for o in HARNESS)
    assert left_out(LAUNCH, read_timed(recorded(4, 100.0), OWN, names), 4) is None
    assert left_out(LAUNCH, read_timed(recorded(5, 100.0), OWN, names), 4) is None
    assert left_out(LAUNCH, read_timed(recorded(1, 100.0), OWN, names), 4) == (
        "what was timed runs `scale` 1 times in 4 launches, where a launch by itself runs it 1 times"
    )


def test_a_library_that_only_the_recording_calls_is_seen() -> None:
    names = frozenset(o.name for o in HARNESS)
    ran = read_timed(recorded(4, 2.0, kernel(GEMM, 5.0, 200.0)), OWN, names)
    assert passed_off(ran, read_timed(recorded(4, 100.0), OWN, names)) is not None


@pytest.mark.parametrize(("claimed", "believed"), [(100.0, True), (140.0, True), (80.0, True), (60.0, False)])
def test_a_launch_cannot_take_less_time_than_its_kernels(claimed: float, believed: bool) -> None:
    timed = read_timed(recorded(4, 100.0), OWN, frozenset(o.name for o in HARNESS))
    assert (claims_too_little(timed, 4, claimed) is None) is believed


def test_a_trace_may_make_short_kernels_longer() -> None:
    timed = read_timed(recorded(4, 3.0), OWN, frozenset(o.name for o in HARNESS))
    assert claims_too_little(timed, 4, 1.2) is None


def test_operations_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HARNESS[0].name = "other"  # type: ignore[misc]
