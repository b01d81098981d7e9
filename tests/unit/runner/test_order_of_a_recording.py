"""The order of a captured graph, by hand: what each launch waits for, and what waits for it."""

import itertools
from collections.abc import Sequence

import pytest

from kernel_lsp.runner.workers.graphs import Edge, GraphOrder, Mark, order

Edges = Sequence[tuple[int, int] | Edge]


def found(edges: Edges, launches: Sequence[tuple[int, int]], end: int, more: Sequence[int] = ()) -> GraphOrder:
    """The order of a graph whose launches start and end at these nodes, and which ends at `end`."""
    nodes = sorted({node for edge in edges for node in edge[:2]} | set(more) | {end})
    marks = [(frozenset({a}), frozenset({b})) for a, b in launches]
    return order(nodes, [Edge(*edge) for edge in edges], marks, frozenset({end}))


def chain(*nodes: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(nodes))


# 0 flush, 1 kernel, 2 flush, 3 kernel, 4 the end: launches are 0-1 and 2-3.
STREAM = chain(0, 1, 2, 3, 4)
LAUNCHES = [(0, 1), (2, 3)]


def test_one_stream_is_in_order() -> None:
    assert found(STREAM, LAUNCHES, 4) == GraphOrder(between=1, sizes=(1, 1))
    assert found(STREAM, LAUNCHES, 4).disorder() == ""


def test_a_side_stream_that_is_forked_and_joined_within_its_launch_is_fine() -> None:
    joined = [*STREAM, (2, 10), (10, 11), (11, 3)]
    assert found(joined, LAUNCHES, 4) == GraphOrder(between=1, sizes=(1, 3))


def test_side_streams_of_a_side_stream_are_fine_too() -> None:
    joined = [*STREAM, (2, 10), (10, 11), (10, 12), (12, 11), (11, 3)]
    assert found(joined, LAUNCHES, 4) == GraphOrder(between=1, sizes=(1, 4))


@pytest.mark.parametrize("fork", [0, 1])
def test_work_forked_from_an_earlier_launch_is_early(fork: int) -> None:
    early = found([*STREAM, (fork, 10), (10, 3)], LAUNCHES, 4)
    assert early.early == (1,)
    assert early.disorder() == "lets work of launch 2 begin before that launch does"


def test_work_that_waits_for_nothing_is_early() -> None:
    assert found([*STREAM, (10, 3)], LAUNCHES, 4).early == (1,)
    assert found([*STREAM, (10, 1)], LAUNCHES, 4).early == (0,)


def test_what_follows_early_work_in_its_stream_is_early_with_it() -> None:
    assert found([*STREAM, (0, 10), (10, 11), (11, 3)], LAUNCHES, 4).early == (1,)


@pytest.mark.parametrize("fork", [0, 2, 3])
def test_work_that_nothing_waits_for_is_loose(fork: int) -> None:
    loose = found([*STREAM, (fork, 10), (10, 11)], LAUNCHES, 4)
    assert (loose.early, loose.loose) == ((), 2)
    assert loose.disorder() == "leaves work behind that nothing waits for"


def test_a_launch_that_is_joined_by_a_later_one_alone_is_in_its_place_there() -> None:
    """What launch 1 left behind and launch 2 waits for began before launch 2 did."""
    assert found([*STREAM, (0, 10), (10, 3)], LAUNCHES, 4).disorder() == (
        "lets work of launch 2 begin before that launch does"
    )


def test_a_kernel_that_may_start_early_waits_for_the_start_of_its_launch_and_not_for_the_kernel_before() -> None:
    """10 is launched programmatically beside 11, whose end nobody waits for then."""
    early = [*chain(0, 1, 2), (2, 11), Edge(11, 10, whole=False), (10, 3), (3, 4)]
    assert found(early, LAUNCHES, 4) == GraphOrder(between=1, loose=1, sizes=(1, 2))
    assert found([*early, (11, 3)], LAUNCHES, 4).disorder() == "does other work in launch 1 than in the last one"
    outright = [*chain(0, 1, 2), Edge(1, 3, whole=False), (3, 4)]
    assert found(outright, LAUNCHES, 4).early == (1,), "no start of the launch is waited for"


def test_work_between_launches_is_counted() -> None:
    assert found(chain(0, 1, 2, 3, 4, 5), [(0, 1), (4, 5)], 5).between == 3
    assert found(chain(0, 1, 2, 3, 4, 5), [(0, 1), (1, 2), (4, 5)], 5).between == 2, "the most"
    beside = [*chain(0, 1, 2, 3, 4), (0, 10), (10, 2)]
    assert found(beside, LAUNCHES, 4).between == 2, "whatever stream it is on"


def test_work_before_the_first_launch_and_after_the_last_is_not() -> None:
    assert found(chain(7, 8, 0, 1, 2, 3, 4, 5), LAUNCHES, 5) == GraphOrder(between=1, sizes=(1, 1))


def test_launches_that_begin_where_nothing_came_before() -> None:
    nothing: Mark = frozenset()
    assert order([1], [], [(nothing, frozenset({1}))], frozenset({1})) == GraphOrder(sizes=(1,))
    assert order([], [], [(nothing, nothing)], nothing) == GraphOrder(sizes=(0,))


def test_launches_that_run_nothing_are_in_order() -> None:
    assert found(chain(0, 1), [(0, 0), (0, 1), (1, 1)], 1) == GraphOrder(sizes=(0, 1, 0))


def test_the_numbers_of_nodes_and_the_order_of_edges_say_nothing() -> None:
    renamed = {0: 940, 1: 12, 2: 77, 3: 500, 4: 1, 10: 3}
    edges = [*STREAM, (0, 10), (10, 3)]
    for shuffled in itertools.permutations(edges, len(edges)):
        told = [(renamed[a], renamed[b]) for a, b in shuffled]
        launches = [(renamed[a], renamed[b]) for a, b in LAUNCHES]
        assert found(told, launches, renamed[4]) == found(edges, LAUNCHES, 4)
