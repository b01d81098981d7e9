"""Oracle and worker together: the right candidate passes, and each way of being wrong shows where it is."""

import asyncio
import math
import struct
import time
from pathlib import Path

import pytest
from runner_support import KERNEL_PATH, SECONDS, Trial

from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages import oracle as asked_of_oracle
from kernel_lsp.runner.messages import subject as asked_of_subject
from kernel_lsp.runner.messages.oracle_answers import Compared, TrampledInput
from kernel_lsp.runner.messages.subject_answers import Ran
from kernel_lsp.runner.protocol import WorkerFailure

ROWS, COLS = 3, 40
WORKLOAD = f"""
import torch
CASES = [dict(rows={ROWS}, cols={COLS})]
def inputs(rows, cols):
    return torch.randn(rows, cols, device="cuda"), torch.randn(cols, device="cuda") + 2, 3
def reference(x, weight, bias):
    return x * weight + bias
"""
FAMILIES = ("normal", "large", "outliers", "nonfinite", "unaligned", "strided")


def launch(*lines: str) -> str:
    """A kernel file whose `launch` allocates `y`, does this and returns `y`."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"import ctypes\nimport torch\nheld = []\ndef launch(module, x, weight, bias):\n{body}"


ALLOCATE, FILL, RETURN = "y = torch.empty_like(x)", "torch.add(x * weight, bias, out=y)", "return y"
RIGHT = launch(ALLOCATE, FILL, RETURN)


@pytest.fixture(scope="module")
def trial(pool, run):
    async def start() -> Trial:
        made = await Trial.start(pool, WORKLOAD)
        keys = [*[await made.draw(family) for family in FAMILIES], await made.draw(number=1)]
        for found in await made.baseline(RIGHT, keys):
            assert found.distances[0].index is None
        return made

    made = run(start())
    yield made
    made.kill()


@pytest.fixture
def judge(trial, run):
    """What is published and found of a version on the plain inputs."""

    def on(text: str, key: str = "0/normal/0"):
        async def main():
            version = await trial.enter(text)
            try:
                return await version.judge(key)
            finally:
                await version.leave()

        return run(main())

    return on


def faults(ran: Ran, compared: Compared) -> list[str]:
    """Names of everything that was found."""
    return [
        *(["shape"] if compared.mismatch else []),
        *("wrong" for distance in compared.distances if distance.index is not None),
        *("past an output" for _ in ran.trampled),
        *("past an input" for _ in compared.trampled),
        *("input changed" for _ in compared.changed_inputs),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_right_candidate_has_no_fault(judge, family):
    y = "torch.mul(x, weight, out=y).add_(bias)"
    ran, compared = judge(launch(ALLOCATE, y, RETURN), f"0/{family}/0")
    assert faults(ran, compared) == []
    assert not ran.in_place
    (found,) = compared.distances
    assert found.total == ROWS * COLS
    assert 0 < found.max <= 4


@pytest.mark.parametrize(
    ("lines", "first", "count"),
    [
        (("y = torch.zeros_like(x)", RETURN), 0, ROWS * COLS),
        ((ALLOCATE, FILL, "y[1, 7] += 1", RETURN), COLS + 7, 1),
        ((ALLOCATE, FILL, "y[-1, -1] = 0", RETURN), ROWS * COLS - 1, 1),
        (("return (x * weight + bias).half().float()",), None, None),
        (("return x * weight",), 0, ROWS * COLS),
    ],
    ids=["zeros", "one element", "the last element", "half precision", "a parameter ignored"],
)
def test_a_wrong_element_is_named(judge, lines, first, count):
    ran, compared = judge(launch(*lines))
    assert faults(ran, compared) == ["wrong"]
    (found,) = compared.distances
    if first is not None:
        assert (found.index, found.wrong) == (divmod(first, COLS), count)
    assert not math.isclose(float(found.expected), float(found.actual), rel_tol=1e-5)


def test_an_element_that_is_not_written_holds_poison(judge):
    ran, compared = judge(launch(ALLOCATE, "y.view(-1)[:-1] = (x * weight + bias).view(-1)[:-1]", RETURN))
    assert faults(ran, compared) == ["wrong"]
    (found,) = compared.distances
    assert (found.index, found.wrong, found.actual) == ((ROWS - 1, COLS - 1), 1, "nan")


@pytest.mark.parametrize(
    "make",
    [
        "torch.empty(x.shape, device='cuda')",
        "torch.empty(*x.shape, device=x.device)",
        "torch.empty_like(x)",
        "x.new_empty(x.shape)",
        "torch.empty_strided(x.shape, x.stride(), device='cuda')",
        "x.new_empty_strided(x.shape, x.stride())",
    ],
)
def test_every_way_to_allocate_is_poisoned(judge, make):
    ran, compared = judge(launch(f"y = {make}", RETURN))
    assert faults(ran, compared) == ["wrong"]
    assert compared.distances[0].actual == "nan"


@pytest.mark.parametrize(
    "make",
    ["torch.zeros_like(x)", "torch.ones(x.shape, device='cuda')", "torch.full_like(x, 5.0)", "x.new_zeros(x.shape)"],
)
def test_every_way_to_allocate_keeps_its_values_and_is_guarded(judge, make):
    lines = (f"y = {make}", "before = y.clone()", "ctypes.memset(y.data_ptr() + y.nbytes, 0, 4)")
    ran, compared = judge(launch(*lines, "assert not torch.isnan(before).any()", FILL, RETURN))
    assert faults(ran, compared) == ["past an output"]


@pytest.mark.parametrize(
    ("line", "side", "away", "count"),
    [
        ("ctypes.memset(y.data_ptr() + y.nbytes, 1, 4)", "past", 0, 4),
        ("ctypes.memset(y.data_ptr() + y.nbytes + 100, 1, 1)", "past", 100, 1),
        ("ctypes.memset(y.data_ptr() - 8, 1, 8)", "before", 8, 8),
        ("torch.as_strided(y, (1,), (1,), y.storage_offset() + y.numel()).fill_(1.0)", "past", 0, 4),
        ("torch.as_strided(y, (1,), (1,), y.storage_offset() - 1).fill_(1.0)", "before", 4, 4),
    ],
)
def test_a_write_outside_of_an_output_is_seen(judge, line, side, away, count):
    ran, compared = judge(launch(ALLOCATE, FILL, line, RETURN))
    assert faults(ran, compared) == ["past an output"]
    (found,) = ran.trampled
    assert (found.shape, found.side, found.away, found.count) == ((ROWS, COLS), side, away, count)
    assert found.element == (ROWS * COLS + away // 4 if side == "past" else -1)


def test_a_write_past_scratch_memory_that_is_not_returned_is_seen(judge):
    line = "scratch = torch.empty(7, dtype=torch.uint8, device='cuda'); ctypes.memset(scratch.data_ptr() + 7, 1, 1)"
    ran, compared = judge(launch(ALLOCATE, FILL, line, RETURN))
    assert faults(ran, compared) == ["past an output"]
    assert (ran.trampled[0].shape, ran.trampled[0].element) == ((7,), 7)


@pytest.mark.parametrize(
    ("line", "name", "side", "away"),
    [
        ("ctypes.memset(x.data_ptr() + x.nbytes, 1, 2)", "x", "past", 0),
        ("ctypes.memset(weight.data_ptr() - 4, 1, 2)", "weight", "before", 4),
    ],
)
@pytest.mark.parametrize("family", ["normal", "unaligned"])
def test_a_write_outside_of_an_input_is_seen(judge, line, name, side, away, family):
    ran, compared = judge(launch(ALLOCATE, FILL, line, RETURN), f"0/{family}/0")
    assert faults(ran, compared) == ["past an input"]
    assert compared.trampled == (TrampledInput(name, side, away, 2),)


def test_an_input_that_is_changed_is_named(judge):
    ran, compared = judge(launch(ALLOCATE, FILL, "weight[0] += 1", RETURN))
    assert faults(ran, compared) == ["input changed"]
    assert compared.changed_inputs == ("weight",)


def test_one_bit_changed_in_an_input_is_seen(judge):
    _, compared = judge(launch(ALLOCATE, FILL, "x.view(torch.int32)[0, 3] ^= 1", RETURN))
    assert compared.changed_inputs == ("x",)


def test_an_output_in_place_of_an_input_is_said_to_be(judge):
    ran, compared = judge(launch("return x.mul_(weight).add_(bias)"))
    assert ran.in_place
    assert faults(ran, compared) == ["input changed"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("return y[:-1]", f"output 0 has shape [{ROWS - 1}, {COLS}] where the reference has [{ROWS}, {COLS}]"),
        ("return y.t()", f"output 0 has shape [{COLS}, {ROWS}] where the reference has [{ROWS}, {COLS}]"),
        ("return y, y", "`launch` returned 2 outputs where the reference has 1"),
        ("return ()", "`launch` returned 0 outputs where the reference has 1"),
    ],
)
def test_outputs_of_another_shape_or_number_are_refused(judge, line, says):
    assert judge(launch(ALLOCATE, FILL, line))[1].mismatch == says


def test_the_type_and_strides_of_an_output_are_told(judge):
    ran, compared = judge(launch(ALLOCATE, FILL, "return y.t().contiguous().t().double()"))
    assert ran.published.outputs[0].dtype == "float64"
    assert ran.published.strides == ((1, ROWS),)
    assert compared.mismatch == "output 0 has type float64 where the baseline's has float32"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("return None", "NoneType"),
        ("return 1.0", "float"),
        ("return [y.tolist()]", "list"),
        ("return torch.nn.Parameter(y)", "Parameter"),
        ("class Lazy(torch.Tensor): pass\n    return y.as_subclass(Lazy)", "Lazy"),
    ],
)
def test_what_is_not_a_plain_tensor_is_refused(judge, line, kind):
    with pytest.raises(WorkloadError) as caught:
        judge(launch(ALLOCATE, FILL, line))
    assert caught.value.message == f"`launch` returned a {kind} as output 0, not a plain tensor"
    assert caught.value.path == Path(KERNEL_PATH)


def test_the_worker_under_test_cannot_ask_for_expected_values(trial, run):
    async def main():
        version = await trial.enter(RIGHT)
        try:
            compare = asked_of_oracle.Compare(subject=version.name, buffer="0/normal", key="0/normal/0", outputs=())
            with pytest.raises(WorkerFailure, match="AttributeError"):
                await version.worker.ask(compare, deadline=SECONDS)
        finally:
            await version.leave()

    run(main())


def test_new_values_at_the_same_addresses_give_new_answers(trial, run):
    first, second = "0/normal/0", "0/normal/1"
    memo = launch("if not held: held.append(x * weight + bias)", "return held[0].clone()")

    async def main(text: str) -> list[list[str]]:
        version = await trial.enter(text)
        try:
            return [faults(*await version.judge(key)) for key in (first, second, first)]
        finally:
            await version.leave()

    assert run(main(RIGHT)) == [[], [], []]
    assert run(main(memo)) == [[], ["wrong"], []]


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_output_buffers_that_later_calls_overwrite_are_found(trial, run, buffers):
    keys = ["0/normal/0", "0/normal/1", "0/normal/1", "0/normal/1"]
    static = launch(
        f"while len(held) < {buffers}: held.append(torch.empty_like(x))",
        "held.append(held.pop(0))",
        "y = held[-1]",
        FILL,
        RETURN,
    )

    async def right(text: str) -> list[bool]:
        version = await trial.enter(text)
        try:
            await version.judge(keys[0])
            await version.worker.ask(asked_of_subject.Forget(), deadline=SECONDS)
            for key in keys:
                ran, compared = await version.judge(key)
                assert faults(ran, compared) == []
            found = []
            assert ran.held == (3, 2, 1, 0)
            for back in ran.held[:-1]:
                earlier = asked_of_subject.PublishEarlier(back=back)
                published = await version.worker.ask(earlier, deadline=SECONDS)
                found.append((await version.compare(keys[-1 - back], published)).distances[0].index is None)
            return found
        finally:
            await version.leave()

    assert all(run(right(RIGHT)))
    assert not all(run(right(static)))


def test_an_answer_kept_by_the_inputs_values_is_found(trial, run):
    kept = launch(
        "key = float(x.sum())",
        "if not held: held.append({})",
        "if key not in held[0]: held[0][key] = x * weight + bias",
        "return held[0][key]",
    )

    async def main(text: str) -> list[str]:
        version = await trial.enter(text)
        try:
            assert faults(*await version.judge("0/normal/0")) == []
            await version.worker.ask(asked_of_subject.Spoil(), deadline=SECONDS)
            version.forget()
            return faults(*await version.judge("0/normal/0"))
        finally:
            await version.leave()

    assert run(main(RIGHT)) == []
    assert run(main(kept)) == ["wrong"]


def test_the_same_bits_have_the_same_fingerprint_and_others_another(trial, run):
    noisy = launch(ALLOCATE, FILL, "y.view(-1)[len(held)] *= 1 + 2**-23", "held.append(0)", RETURN)

    async def prints(text: str, *keys: str) -> set:
        version = await trial.enter(text)
        try:
            return {(await version.judge(key))[1].fingerprints for key in keys}
        finally:
            await version.leave()

    first, second = "0/normal/0", "0/normal/1"
    same = run(prints(RIGHT, first, first, first))
    assert len(same) == 1
    assert run(prints(RIGHT, first)) == same, "a version in another process too"
    assert len(run(prints(RIGHT, first, second))) == 2
    assert len(run(prints(noisy, first, first, first))) == 3


def test_memory_of_a_worker_that_is_gone_is_gone(trial, run):
    async def main() -> tuple[bool, bool]:
        version = await trial.enter(RIGHT)
        made = trial.made("0/normal/0")
        bind = asked_of_subject.Bind(buffers=("a",), arguments=made.arguments, nbytes=made.nbytes)
        handle = await version.worker.ask(bind, deadline=SECONDS)
        before = Path(handle.file).exists()
        version.worker.kill()
        end = time.monotonic() + 60
        while Path(handle.file).exists() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return before, Path(handle.file).exists()

    assert run(main()) == (True, False)


def test_what_a_kernel_reads_outside_of_its_inputs_is_not_a_number(trial, run):
    peek = (
        "before, past = (ctypes.string_at(at, 4) for at in (x.data_ptr() - 4, x.data_ptr() + x.nbytes))",
        "raise ValueError((before + past).hex())",
    )

    async def main() -> str:
        version = await trial.enter(launch(*peek))
        try:
            with pytest.raises(WorkerFailure) as caught:
                await version.judge("0/normal/0")
            return caught.value.message
        finally:
            await version.leave()

    found = bytes.fromhex(run(main()))
    assert all(math.isnan(number) for number in struct.unpack("<ff", found))


@pytest.mark.parametrize(
    ("reference", "trivial"),
    [
        ("x * 1e-9 * (weight > 1e9)", {"all zeros", "the mean everywhere", "the answer to other inputs"}),
        ("x * 1 + 0 * weight", {"a copy of `x`"}),
        ("torch.ones_like(x) * 7", {"the mean everywhere", "the answer to other inputs"}),
        ("x * weight + bias", set()),
        ("(x + 1000 > 0)", {"a copy of `x`", "the mean everywhere", "the answer to other inputs"}),
        ("(x * 0).long()", {"all zeros", "the mean everywhere", "the answer to other inputs"}),
        ("(x * 100).round().long()", set()),
    ],
)
def test_trivial_answers_to_a_weak_workload_are_named(pool, run, reference, trivial):
    workload = WORKLOAD.replace("x * weight + bias", reference)
    baseline = f"import torch\ndef launch(module, x, weight, bias):\n    return {reference}\n"

    async def main() -> tuple[str, ...]:
        trial = await Trial.start(pool, workload)
        try:
            keys = [await trial.draw(), await trial.draw(number=1)]
            version = await trial.enter(baseline)
            ran, compared = await version.judge(keys[0], baseline=True)
            assert faults(ran, compared) == []
            await version.leave()
            kinds = tuple(output.dtype for output in ran.published.outputs)
            weak = asked_of_oracle.Discriminate(key=keys[0], other=keys[1], outputs=kinds)
            return await trial.oracle.ask(weak, deadline=SECONDS)
        finally:
            trial.kill()

    assert set(run(main())) == trivial
