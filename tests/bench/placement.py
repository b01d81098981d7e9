"""What the process, the allocation, the place in it and the loaded code make of a kernel's time.

    python -m tests.bench.placement [--kinds elementwise reduction gemm] [--processes 8] [--rounds 7] [--record]

The same machine code does the same work, yet one process measures it a little faster than the next, and no number of
launches in one process shows that. Several processes take turns here. Each has loaded the code several times, and has
its inputs and outputs in several places of several allocations; in each round it times every combination once, its
caches flushed. Of each component the standard deviation of its effect on ln(time) is told, from the medians over the
rounds: of the processes' means, and within a process of the means of its allocations, of places within an allocation,
and of the loaded code.
"""

import argparse
import itertools
import math
import multiprocessing
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_lsp.build.cuda import build_cuda
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.source.candidate import SourceFile
from tests.bench import power, specimens
from tests.bench.record import record

if TYPE_CHECKING:
    from torch import Tensor

NAME = "placement"
ALLOCATIONS, PLACES, LOADS = 3, 4, 4
_FLUSH_BYTES = 256 << 20
_ALIGNMENT = 2 << 20

Combination = tuple[int, int, int]  # allocation, place, load
Timing = dict[Combination, float]  # microseconds


def serve(connection: Connection, path: Path, kind: str) -> None:
    """One process: a round for each seed that it is sent, until it is sent None."""
    import torch

    from kernel_lsp.device.driver import LoadedModule
    from kernel_lsp.workload.load import bind_launch, load_workload
    from kernel_lsp.workload.workload import make_inputs

    built = build_cuda(SourceFile(path, path.read_text()), find_gpus()[0].arch)
    assert built.binary is not None, built.log
    workload_path = path.with_name(f"{kind}_workload.py")
    text = workload_path.read_text()
    workload = load_workload(text, workload_path)
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    modules = [LoadedModule(built.binary, {}) for _ in range(LOADS)]
    inputs = make_inputs(workload, workload.cases[0])
    tensors = [*inputs, bind_launch(modules[0], path, text, workload_path)(*inputs)]
    allocations = [in_places(tensors) for _ in range(ALLOCATIONS)]
    launch = specimens.launch_into(kind)

    def timed(combination: Combination) -> float:
        allocation, place, load = combination
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        launch(modules[load], *allocations[allocation][place])
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000

    every = list(itertools.product(range(ALLOCATIONS), range(PLACES), range(LOADS)))
    for combination in every:
        timed(combination)
    connection.send("ready")
    while (seed := connection.recv()) is not None:
        connection.send({each: timed(each) for each in random.Random(seed).sample(every, len(every))})


def in_places(tensors: "Sequence[Tensor]") -> "list[list[Tensor]]":
    """Copies of tensors in one new allocation, as often as it has places."""
    import torch

    sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]
    slab = torch.empty(PLACES * sum(sizes), dtype=torch.uint8, device=tensors[0].device)
    starts = itertools.accumulate(sizes * PLACES, initial=0)
    places: list[list[Tensor]] = [[] for _ in range(PLACES)]
    for place in places:
        for tensor, at in zip(tensors, starts, strict=False):  # tensors first: no start is taken for none of them
            place.append(slab[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor))
    return places


def measure(kind: str, processes: int, rounds: int, folder: Path) -> list[Timing]:
    """Of each process the median time of each combination."""
    elements, depth = power.SHAPES[kind]
    path = specimens.write(folder, kind, elements, specimens.BASE_EXTRA, depth)
    context = multiprocessing.get_context("spawn")
    ends: list[Connection] = []
    for _ in range(processes):
        mine, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, path, kind), daemon=True).start()
        ends.append(mine)
    for end in ends:
        assert end.recv() == "ready"
    seen: list[list[Timing]] = [[] for _ in ends]
    rng = random.Random(kind)
    for _ in range(rounds):
        for number in rng.sample(range(processes), processes):
            ends[number].send(rng.getrandbits(32))
            seen[number].append(ends[number].recv())
    for end in ends:
        end.send(None)
    return [{each: statistics.median(timing[each] for timing in timings) for each in timings[0]} for timings in seen]


def components(found: Sequence[Timing]) -> dict[str, Any]:
    """Standard deviations of ln(time) by where they come from, and the processes' mean times."""
    logs = [{each: math.log(us) for each, us in timing.items()} for timing in found]
    return {
        "us": round(statistics.fmean(us for timing in found for us in timing.values()), 3),
        "process": round(statistics.stdev(statistics.fmean(log.values()) for log in logs), 6),
        "allocation": _within(logs, lambda each: (), lambda each: each[:1]),
        "place": _within(logs, lambda each: each[:1], lambda each: each[:2]),
        "load": _within(logs, lambda each: (), lambda each: each[2:]),
        "process_us": [round(statistics.fmean(timing.values()), 3) for timing in found],
    }


def _within(
    logs: Iterable[dict[Combination, float]],
    outer: Callable[[Combination], tuple[int, ...]],
    inner: Callable[[Combination], tuple[int, ...]],
) -> float:
    """The deviation of the means of the inner groups from that of the outer group they are in, in each process."""
    squares: list[float] = []
    for log in logs:
        groups: dict[tuple[int, ...], dict[tuple[int, ...], list[float]]] = {}
        for each, value in log.items():
            groups.setdefault(outer(each), {}).setdefault(inner(each), []).append(value)
        squares += [statistics.variance(map(statistics.fmean, group.values())) for group in groups.values()]
    return round(math.sqrt(statistics.fmean(squares)), 6)


def table(figures: dict[str, Any]) -> str:
    """The components as a Markdown table."""
    names = ("process", "allocation", "place", "load")
    lines = [f"| kernel | us | {' | '.join(names)} |", "| --- " * (2 + len(names)) + "|"]
    for kind, found in figures.items():
        shares = " | ".join(f"{found[name]:.2%}" for name in names)
        lines.append(f"| {kind} | {found['us']} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Measure each kind, print the components, and record them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=power.KINDS, choices=power.KINDS)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true", help="write a result file, see README.md")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        for kind in options.kinds:
            figures[kind] = components(measure(kind, options.processes, options.rounds, Path(folder)))
            print(f"{kind}: {figures[kind]}", flush=True)
    print(f"\n{table(figures)}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
