"""Where outputs of a launch lie, what counts as one, and who keeps its memory."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.errors import WorkloadError  # noqa: E402
from kernel_lsp.runner.workers.outputs import HeldOutputs, OutputPlace, places_of, plain_outputs  # noqa: E402

FILE = Path("workload.py")
OWN = OutputPlace()


def inputs():
    """64 bytes of inputs, in memory that holds other things before and behind them."""
    return torch.zeros(256, dtype=torch.uint8)[64:128]


def test_memory_of_its_own_for_each_is_the_rule():
    assert places_of([torch.zeros(8), torch.zeros(8)], inputs()) == (OWN, OWN)


def test_an_output_in_the_inputs_says_at_which_byte():
    given = inputs()
    whole = given.untyped_storage()
    inside = torch.empty(0, dtype=torch.float32).set_(whole, 18, (4,))
    assert places_of([inside], given) == (OutputPlace("byte 8 of the inputs", in_inputs=True),)
    before = torch.empty(0, dtype=torch.uint8).set_(whole, 60, (8,))
    assert places_of([before], given) == (OutputPlace("byte -4 of the inputs", in_inputs=True),)


@pytest.mark.parametrize("start", [32, 128])
def test_beside_the_inputs_in_one_allocation_is_not_in_them(start):
    given = inputs()
    beside = torch.empty(0, dtype=torch.uint8).set_(given.untyped_storage(), start, (32,))
    assert places_of([beside], given) == (OWN,)


def test_side_by_side_in_one_allocation_is_fine():
    together = torch.zeros(32)
    assert places_of([together[:16], together[16:]], inputs()) == (OWN, OWN)
    assert places_of([together[16:], together[:16]], inputs()) == (OWN, OWN)


def test_an_output_that_shares_bytes_with_an_earlier_one_says_where():
    together = torch.zeros(32)
    first, second = places_of([together[8:16], together[12:]], inputs())
    assert (first, second) == (OWN, OutputPlace("byte 16 of the memory of output 0"))
    assert places_of([together[12:], together[:16]], inputs())[1].text == "byte -48 of the memory of output 0"
    assert places_of([torch.zeros(4), together, together], inputs())[2].text == "byte 0 of the memory of output 1"


def test_one_byte_in_common_is_enough_and_strides_are_reckoned_with():
    together = torch.zeros(32)
    assert places_of([together[:17], together[16:]], inputs())[1] != OWN
    columns = together.view(4, 8)
    assert places_of([columns[:2, 0], columns[2:, 1]], inputs()) == (OWN, OWN)
    assert places_of([columns[:3, 0], columns[2:, 1]], inputs()) == (OWN, OWN), "9 elements further"
    assert places_of([columns[:3, 3], columns[2:, 1]], inputs())[1] != OWN


def test_an_output_without_elements_lies_nowhere():
    given = inputs()
    nothing = given[8:8]
    assert places_of([nothing, nothing], given) == (OWN, OWN)
    together = torch.zeros(8)
    assert places_of([together, together[4:4]], given) == (OWN, OWN)


def test_who_keeps_an_output_is_found():
    held, kept = HeldOutputs(1 << 30), list[object]()
    for _ in range(3):
        outputs = (torch.zeros(4), torch.zeros(4))
        kept.append(outputs[1].view(2, 2))  # another tensor on the same memory
        held.add(outputs)
        del outputs
    assert held.forget() == (1,)
    assert held.forget() == (), "nothing is held any more"


def test_outputs_that_nobody_keeps_are_the_callers():
    held = HeldOutputs(1 << 30)
    held.add((torch.zeros(4), torch.zeros(4)))
    assert held.forget() == ()


def test_two_outputs_in_one_allocation_are_kept_by_nobody_else():
    together, held = torch.zeros(8), HeldOutputs(1 << 30)
    held.add((together[:4], together[4:]))
    del together
    assert held.forget() == ()


def test_the_last_four_runs_are_held_with_their_distance():
    held = HeldOutputs(1 << 30)
    assert [held.add((torch.full((2,), float(run)),)) for run in range(6)] == [
        (0,),
        (1, 0),
        (2, 1, 0),
        (3, 2, 1, 0),
        (3, 2, 1, 0),
        (3, 2, 1, 0),
    ]
    assert [float(held.earlier(back)[0][0]) for back in (0, 1, 3)] == [5.0, 4.0, 2.0]


def test_large_outputs_are_held_at_both_ends():
    held = HeldOutputs(100 * 20)
    told = [held.add((torch.zeros(10),)) for _ in range(4)]
    assert told == [(0,), (1, 0), (2, 0), (3, 0)], "100 bytes hold two of 40 and not three"


def test_spoiled_outputs_pass_for_no_answer():
    held, output = HeldOutputs(1 << 30), torch.zeros(4)
    held.add((output[:2],))
    held.spoil()
    assert output.isnan().all(), "all of its memory"


class Fancy(torch.Tensor):
    """A tensor that could compute when it is looked at."""


def attributed():
    tensor = torch.zeros(4)
    tensor.answer = 42
    return tensor


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "returned a NoneType as output 0"),
        ((torch.zeros(2), 1.0), "returned a float as output 1"),
        (torch.zeros(2).as_subclass(Fancy), "returned a Fancy as output 0"),
        (torch.nn.Parameter(torch.zeros(2)), "returned a Parameter as output 0"),
        (torch.zeros(2, device="meta"), "output 0 of `launch` is on meta"),
        (torch.zeros(2, 2).to_sparse(), "is stored as torch.sparse_coo"),
        (torch.zeros(2, dtype=torch.complex64).conj(), "is a view that computes when it is read"),
        (attributed(), "carries attributes of its own"),
    ],
)
def test_only_plain_tensors_are_outputs(returned, why):
    with pytest.raises(WorkloadError) as raised:
        plain_outputs(returned, "cpu", FILE)
    assert why in raised.value.message


def test_one_tensor_or_several_are_outputs_in_order():
    a, b = torch.zeros(2), torch.zeros(3)
    assert [each.data_ptr() for each in plain_outputs([a, b], "cpu", FILE)] == [a.data_ptr(), b.data_ptr()]
    assert [each.data_ptr() for each in plain_outputs(a, "cpu", FILE)] == [a.data_ptr()]


class Late(list[object]):
    def __iter__(self):
        raise AssertionError("it computes once it is asked")


def test_a_list_is_read_without_code_of_its_own():
    a, b = torch.zeros(8), torch.zeros(8)
    assert [each.data_ptr() for each in plain_outputs(Late((a, b)), "cpu", FILE)] == [a.data_ptr(), b.data_ptr()]
