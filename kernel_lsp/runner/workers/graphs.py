"""Check the order of work in a captured CUDA graph: each launch must begin after its start and end before its end.

A recording marks where each launch starts and ends by the nodes that its stream's next work would wait for. A node
belongs to the first launch whose end waits for it. It is in order if it waits for that launch's start; work that was
forked from an earlier launch, or is never joined, is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kernel_lsp.device.driver import check, cu

Mark = frozenset[int]
"""Nodes that the next work of a stream waits for."""


class Edge(NamedTuple):
    """Two nodes, of which the second waits for the first: for all of it, or (programmatic) only for its beginning."""

    first: int
    second: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class GraphOrder:
    """The order of work in a graph.

    Attributes:
        early: launches with work that does not wait for their start, from 0.
        loose: nodes that no launch's end waits for.
        between: the most nodes between the end of a launch and the start of the next.
        sizes: nodes of each launch.
    """

    early: tuple[int, ...] = ()
    loose: int = 0
    between: int = 0
    sizes: tuple[int, ...] = ()

    def disorder(self) -> str:
        """Return what is out of order, as the end of a sentence; empty if nothing is."""
        if self.early:
            return f"lets work of launch {self.early[0] + 1} begin before that launch does"
        if self.loose:
            return "leaves work behind that nothing waits for"
        odd = next((n for n, size in enumerate(self.sizes) if size != self.sizes[-1]), None)
        return "" if odd is None else f"does other work in launch {odd + 1} than in the last one"


def tail(stream: int) -> Mark:
    """Return the nodes that the next work on a stream under capture waits for."""
    _, _, _, nodes, *_ = check(cu.cuStreamGetCaptureInfo(stream), "asking for the state of a capture")
    return frozenset(map(int, nodes))


def edges_of(graph: int) -> tuple[list[int], list[Edge]]:
    """Return the nodes of a graph, and its edges."""
    handle = cu.CUgraph(graph)
    _, count = check(cu.cuGraphGetNodes(handle), "counting the nodes of a graph")
    nodes, _ = check(cu.cuGraphGetNodes(handle, count), "reading the nodes of a graph")
    *_, count = check(cu.cuGraphGetEdges(handle), "counting the edges of a graph")
    begins, ends, data, _ = check(cu.cuGraphGetEdges(handle, count), "reading the edges of a graph")
    whole = int(cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
    edges = [
        Edge(int(a), int(b), whole=not data or int(data[number].type) == whole)
        for number, (a, b) in enumerate(zip(begins, ends, strict=True))
    ]
    return [int(node) for node in nodes], edges


def order(nodes: Sequence[int], edges: Sequence[Edge], launches: Sequence[tuple[Mark, Mark]], end: Mark) -> GraphOrder:
    """Check the nodes of a graph against the marks (start, end) of its launches; `end` is the mark after them all."""
    before = _ancestors(nodes, edges)
    early: list[int] = []
    sizes: list[int] = []
    between, done = 0, 0
    for number, (start, finish) in enumerate(launches):
        started, finished = _up_to(before, start), _up_to(before, finish)
        if number:
            between = max(between, (started & ~done).bit_count())
        work = finished & ~started
        sizes.append(work.bit_count())
        wanted = sum(1 << _place(before, node) for node in start)
        if any(before[node][1] & wanted != wanted for node in before if work >> before[node][0] & 1):
            early.append(number)
        done = finished
    loose = len(nodes) - (_up_to(before, end) | done).bit_count()
    return GraphOrder(tuple(early), loose, between, tuple(sizes))


def _ancestors(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, tuple[int, int]]:
    """Return for each node its index, and as a bit set the indices of nodes whose end it waits for, itself included."""
    waits: dict[int, list[Edge]] = {node: [] for node in nodes}
    missing = dict.fromkeys(nodes, 0)
    followed: dict[int, list[int]] = {node: [] for node in nodes}
    for edge in edges:
        waits[edge.second].append(edge)
        followed[edge.first].append(edge.second)
        missing[edge.second] += 1
    ready = [node for node in nodes if not missing[node]]
    found: dict[int, tuple[int, int]] = {}
    while ready:
        node = ready.pop()
        place = len(found)
        bits = 1 << place
        for edge in waits[node]:
            own, ended = found[edge.first]
            bits |= ended if edge.whole else ended & ~(1 << own)
        found[node] = (place, bits)
        for later in followed[node]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return found


def _up_to(before: dict[int, tuple[int, int]], mark: Mark) -> int:
    bits = 0
    for node in mark:
        bits |= before[node][1] if node in before else 0
    return bits


def _place(before: dict[int, tuple[int, int]], node: int) -> int:
    return before[node][0]
