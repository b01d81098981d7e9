"""Reads and adds up the records that a captured program's processes wrote."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kernel_lsp.capture.device_record import DeviceRecord, read_device, sampled_record
from kernel_lsp.source.host_launches import find_host_launches
from kernel_lsp.source.outline import outline
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.capture import Capture, CapturedCase, form_of

_MOST_OF_A_LINE = 1 << 28


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel that was launched.

    Attributes:
        name: name of its function.
        file: its file; empty if it was generated.
        line: line of its function; 0 if it was generated.
        launches: number of launches.
        function: the function that launches it and became a workload; empty without one.
        why: the reason why there is none; empty with one.
        seconds: host time within the calls of that function; 0 without one.
        calls: number of calls of that function.
        shapes: number of different signatures of these calls.
    """

    name: str
    file: str = ""
    line: int = 0
    launches: int = 0
    function: str = ""
    why: str = ""
    seconds: float = 0.0
    calls: int = 0
    shapes: int = 0


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """The record of a program.

    Attributes:
        seconds: from the first process's first kernel to the end.
        device: the GPU's name; empty without one.
        captures: one for each workload.
        kernels: the launched kernels, most host time first, then by launches.
        processes: number of processes that launched any.
        errors: the recorder's own errors.
        on_device: times of all its kernels on the GPU; without kernels if they were not recorded.
    """

    seconds: float = 0.0
    device: str = ""
    captures: tuple[Capture, ...] = ()
    kernels: tuple[LaunchedKernel, ...] = ()
    processes: int = 0
    errors: tuple[str, ...] = ()
    on_device: DeviceRecord = field(default_factory=DeviceRecord)


@dataclass
class _Function:
    """Sums of one function over all processes."""

    file: str
    name: str
    program: str
    text: str = ""
    kernels: list[str] = field(default_factory=list[str])
    cases: dict[str, CapturedCase] = field(default_factory=dict[str, CapturedCase])
    calls: int = 0
    seconds: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter[str])
    is_kernel: bool = False


def read_seen(folder: Path) -> ProgramRecord:
    """Return the record in a folder's files. A line that was cut off, as by the end of its process, is ignored."""
    functions: dict[tuple[str, str], _Function] = {}
    kernels: dict[tuple[str, str], dict[str, Any]] = {}
    seconds, device, errors, processes = 0.0, "", list[str](), 0
    events = list[dict[str, list[float]]]()
    for path in sorted(folder.glob("*.jsonl")):
        cases, counts = _lines(path)
        if counts is None:
            continue
        processes += 1
        seconds, device = max(seconds, counts["seconds"]), device or counts["device"]
        errors += counts["errors"]
        events.append(counts.get("events", {}))
        generated = [{"file": "", "line": 0, "why": "", **one} for one in counts["generated"]]
        for kernel in cast("list[dict[str, Any]]", [*counts["kernels"], *generated]):
            known = kernels.setdefault((kernel["file"], kernel["name"]), {**kernel, "launches": 0})
            known["launches"] += kernel["launches"]
        for counted in counts["functions"]:
            own = [case for case in cases if (case["file"], case["function"]) == (counted["file"], counted["name"])]
            key = (counted["file"], counted["name"])
            function = functions.setdefault(key, _Function(*key, counts["program"]))
            function.is_kernel |= counted["is_kernel"]
            _add(function, counted, own)
    _leave_out_known_kernels(functions)
    spent = sum(function.seconds for function in functions.values())
    captures = [made for function in functions.values() if (made := _capture(function, spent)) is not None]
    on_device = sampled_record(read_device(folder), events)
    return ProgramRecord(
        seconds=max(seconds, on_device.span),
        device=device or on_device.device,
        captures=tuple(with_gpu_time(capture, captures, on_device) for capture in captures),
        kernels=_launched(kernels.values(), functions, captures),
        processes=max(processes, on_device.processes),
        errors=tuple(errors),
        on_device=on_device,
    )


def _leave_out_known_kernels(functions: dict[tuple[str, str], _Function]) -> None:
    """Remove the kernels that were seen by themselves and in a function's calls too, which may be tuned as a whole."""
    whole = [one for one in functions.values() if not one.is_kernel and _capture(one, 0) is not None]
    known = {(one.file, name) for one in whole for name in one.kernels}
    for key in [key for key, one in functions.items() if one.is_kernel and key in known]:
        del functions[key]


def with_gpu_time(capture: Capture, captures: Iterable[Capture], on_device: DeviceRecord) -> Capture:
    """Return a capture with the GPU time of its kernels; as it is if that was not recorded, or is not its own."""
    own = () if on_device.sampled else on_device.kernels_of(capture)
    others = {kernel for other in captures if other is not capture for kernel in on_device.kernels_of(other)}
    if not own or others.intersection(own):
        return capture
    spent = sum(kernel.seconds for kernel in own)
    return replace(capture, gpu_seconds=spent, program_gpu_seconds=on_device.seconds)


def _lines(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    cases, counts = list[dict[str, Any]](), None
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                document = cast("dict[str, Any]", json.loads(line[:_MOST_OF_A_LINE]))
            except ValueError:
                continue
            if document["kind"] == "case":
                cases.append(document)
            else:
                counts = document
    return cases, counts


def _add(function: _Function, counted: dict[str, Any], cases: Iterable[dict[str, Any]]) -> None:
    function.calls += counted["calls"]
    function.seconds += counted["seconds"]
    if counted["dropped"]:
        function.dropped["beyond 64 kinds of calls"] += counted["dropped"]
    described = {str(case["number"]): case for case in cases}
    for number, (count, seconds) in counted["signatures"].items():
        case = described.get(number)
        if case is None:
            if count:
                function.dropped["within the capture of a CUDA graph, or not to its end"] += count
            continue
        function.text = case["text"]
        function.kernels += [kernel for kernel in case["kernels"] if kernel not in function.kernels]
        made = CapturedCase(case["arguments"], tuple(case["mutated"]), case["returned"], count, seconds)
        key = json.dumps([form_of(made), _shapes(made)])
        before = function.cases.get(key)
        if before is not None:
            both = before.count + count, before.seconds + seconds
            made = CapturedCase(before.arguments, before.mutated, before.returned, *both)
        function.cases[key] = made


def _shapes(case: CapturedCase) -> list[Any]:
    return list(_forms(case.arguments.values()))


def _forms(arguments: Iterable[Any]) -> Iterator[Any]:
    for one in arguments:
        if one["kind"] == "tensor":
            yield [one["dtype"], one["shape"], one["stride"], one["align"]]
        elif one["kind"] in ("tuple", "list"):
            yield from _forms(one["items"])
        elif one["kind"] not in ("int", "float"):
            yield one.get("value")


def _capture(function: _Function, program_seconds: float) -> Capture | None:
    """Return the capture of a function; None if no call can be a case."""
    cases = sorted(function.cases.values(), key=lambda case: -case.seconds)
    fruitful = [case for case in cases if case.returned or case.mutated]
    function.dropped["it returns no tensor and changes none"] += sum(c.count for c in cases) - sum(
        c.count for c in fruitful
    )
    if not fruitful:
        return None
    weights = Counter[str]()
    for case in fruitful:
        weights[form_of(case)] += case.count
    form = weights.most_common(1)[0][0]
    kept = tuple(case for case in fruitful if form_of(case) == form)
    function.dropped["called with arguments of another form"] += weights.total() - weights[form]
    return Capture(
        program=function.program,
        kernel=str(Path(function.file).resolve()),
        function=function.name,
        kernels=tuple(function.kernels) if is_python(Path(function.file)) else _launched_by(function),
        text=function.text,
        cases=kept,
        calls=function.calls,
        dropped={why: count for why, count in function.dropped.items() if count},
        program_seconds=program_seconds,
        seconds=function.seconds,
        is_kernel=function.is_kernel,
    )


def _launched_by(function: _Function) -> tuple[str, ...]:
    """Return the kernels that a function of a CUDA file launches, or all that the file does where others do it."""
    data = function.text.encode()
    own = b"".join(
        data[made.span.start : made.span.end] + b"\n"
        for made in outline(data).declarations
        if made.declarator is not None and made.head[made.declarator[0]].text == function.name.encode()
    )
    found = find_host_launches(own.decode()) or find_host_launches(function.text)
    return tuple(dict.fromkeys(launch.kernel.partition("<")[0] for launch in found))


def _launched(
    kernels: Iterable[dict[str, Any]], functions: dict[tuple[str, str], _Function], captures: Iterable[Capture]
) -> tuple[LaunchedKernel, ...]:
    made = {capture.function for capture in captures}
    found: list[LaunchedKernel] = []
    for kernel in kernels:
        launching = [f for f in functions.values() if f.file == kernel["file"] and kernel["name"] in f.kernels]
        best = max(launching, key=lambda f: f.seconds, default=None)
        one = LaunchedKernel(kernel["name"], kernel["file"], kernel["line"], kernel["launches"], why=kernel["why"])
        if best is not None:
            workload = best.name if best.name in made else ""
            why = "" if workload else next(iter(best.dropped), "")
            figures = (best.seconds, best.calls, len(best.cases))
            one = LaunchedKernel(one.name, one.file, one.line, one.launches, workload, why, *figures)
        elif not one.file:
            one = LaunchedKernel(one.name, launches=one.launches, why="generated by torch.compile")
        found.append(one)
    return tuple(sorted(found, key=lambda one: (-one.seconds, -one.launches, one.name)))
