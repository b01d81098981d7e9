"""The worker under test: holds one version of a kernel and runs it when told, on inputs it did not make.

It knows neither the reference nor the seed. The oracle writes inputs into this process's memory from outside and reads
the outputs from there.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from kernel_lsp.build.binary import Binary
from kernel_lsp.device.slab import POISON, Slab, TensorSpec, give_back, make_slab, row_major
from kernel_lsp.errors import KernelLspError, WorkloadError
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.inline import Launches, from_json, load_extension, serving
from kernel_lsp.runner.workers.surroundings import Surroundings, native_threads
from kernel_lsp.workload.answer import Answer, Call
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import bind_launch

if TYPE_CHECKING:
    from kernel_lsp.runner.workers.emulator import Emulator

_BINARY = TypeAdapter(Binary)
_HELD = 4  # outputs of runs that are kept
_HELD_SHARE = 0.05  # of the GPU's memory, for these together; the oldest and the latest are kept whatever they take
_IN_INPUTS = "of the inputs"
_LARGE_BYTES = 1 << 30  # unused memory of torch's that other processes may want
_TRACE, _LAUNCHES = Path("trace.json"), Path("launches.json")
_clock = time.perf_counter


def methods(device: str, probes: dict[str, Any] | None = None, arch: str = "sm_80") -> Mapping[str, Callable[..., Any]]:
    """What this role answers to.

    `probes` is the harness's own binary, needed for timing on `cuda`. On `cpu` kernels are emulated as on `arch`.
    """
    subject = Subject(device, probes, arch)
    return {
        "load": subject.load,
        "bind": subject.bind,
        "rehearse": subject.rehearse,
        "run": subject.run,
        "forget": subject.forget,
        "publish_earlier": subject.publish_earlier,
        "spoil": subject.spoil,
        "retire": subject.retire,
        "unbind": subject.unbind,
        "rest": subject.rest,
        "record": subject.record,
        "refresh": subject.refresh,
        "segment": subject.segment,
        "sustain": subject.sustain,
        "publish": subject.publish,
        "trace": subject.trace,
        "trace_segment": subject.trace_segment,
        "surroundings": subject.surroundings,
        "record_launches": subject.record_launches,
        "ready": subject.ready,
    }


class Subject:
    """State of one worker under test; every method is a request that the parent makes."""

    def __init__(self, device: str, probes: dict[str, Any] | None, arch: str) -> None:
        self._device = device
        self._placement: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._emulator: Emulator | None = None
        self._launch: Callable[..., Any] | None = None
        self._answer: Answer | None = None
        self._launches: dict[str, Callable[..., Any]] = {}
        self._listeners: list[Any] = []
        self._path = Path()
        self._triton = False
        self._bound: dict[str, tuple[Slab, list[Any]]] = {}
        self._lasting = contextlib.ExitStack()  # what holds as long as this process
        self._names: tuple[str, ...] = ()
        self._outbox: Slab | None = None
        self._retired: list[Slab] = []  # memory the oracle may still have open: CUDA wants it kept until then
        self._held: list[tuple[int, tuple[Tensor, ...]]] = []  # by the number of the run, the oldest first
        self._runs = 0
        self._room = math.inf
        self._recordings: dict[str, Any] = {}
        self._pristine: dict[str, Tensor] = {}
        self._watch: Any = None
        self._surroundings: Surroundings | None = None
        self._new_threads: int | None = None
        if device == "cpu":
            self._emulator = _make_emulator(arch)
            self._placement = self._emulator.placement
        else:
            from kernel_lsp.device.driver import LoadedModule
            from kernel_lsp.runner.workers.stopwatch import Stopwatch

            torch.zeros(1, device="cuda")  # makes torch's context the current one
            self._room = _HELD_SHARE * torch.cuda.mem_get_info()[1]
            if probes is not None:
                self._watch = Stopwatch(LoadedModule(_BINARY.validate_python(probes), {}), torch.cuda.Stream())
                self._warm_up()

    def load(
        self,
        *,
        path: str,
        text: str,
        launch_path: str | None = None,
        launch_text: str | None = None,
        binary: dict[str, Any] | None = None,
        types_of: dict[str, list[str]] | None = None,
        names_of: dict[str, list[str]] | None = None,
        extensions: Sequence[dict[str, Any]] = (),
        calls: Sequence[dict[str, Any]] = (),
        case: int = 0,
    ) -> dict[str, Any]:
        """Load a version: a `binary` for a CUDA file, one that was built with its host code, or the module in `text`.

        `extensions` are that one, or those that a Python module asks for when it is run. Of an answer to a KernelBench
        problem, which is called as `calls` say, the model for `case` is built too; `own_weights` are those that it does
        not have under the problem's names.
        """
        self._surroundings = Surroundings(self._device)
        self._path = Path(launch_path or path)
        self._triton = binary is None and Path(path).suffix == ".py"
        if self._emulator is not None:
            self._emulator.expect(Path(path), triton=self._triton)
        with self._placement():
            if binary is not None:
                module = self._load_binary(_BINARY.validate_python(binary), _tuples(types_of), _tuples(names_of))
            elif not self._triton:
                module = load_extension(from_json(extensions[0]), self._device_launches())
            else:
                self._lasting.enter_context(serving(map(from_json, extensions), self._device_launches()))
                if calls:
                    self._answer = Answer(text, Path(path), [Call(**call) for call in calls], self._device)
                    return {"own_weights": list(self._answer.build(case))}
                module = load_module(text, Path(path))
            self._launch = bind_launch(module, Path(path), launch_text, self._path)
        return {"own_weights": []}

    def _device_launches(self) -> Launches:
        if self._emulator is not None:
            from kernel_lsp.runner.workers.emulator import EmulatedLaunches

            return EmulatedLaunches(self._emulator)
        from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

        return GpuLaunches(self._listeners)

    def _load_binary(self, binary: Binary, types: dict[str, tuple[str, ...]], names: dict[str, tuple[str, ...]]) -> Any:
        if self._emulator is not None:
            return self._emulator.module(binary, types, names)
        from kernel_lsp.device.driver import LoadedModule

        return LoadedModule(binary, types, self._listeners)

    def bind(
        self, name: str, arguments: list[Any], nbytes: int, names: Sequence[str] = (), case: int = 0
    ) -> dict[str, Any]:
        """Make memory for one set of inputs; the answer is the handle under which the oracle fills it.

        `names` are what the workload calls them.
        """
        self._names = tuple(names)
        self._recordings.pop(name, None)  # it holds addresses of other memory
        if name in self._bound:
            self._retired.append(self._bound[name][0])
        slab = make_slab(nbytes, self._device)
        values = [slab.view(TensorSpec.from_json(a)) if isinstance(a, dict) else a for a in arguments]
        self._bound[name] = (slab, values)
        if self._answer is not None:
            with self._placement():
                self._launches[name] = self._answer.launch(case)
        return slab.handle

    def rehearse(self, name: str) -> None:
        """Launch once for nothing, so that whatever compiles or tunes itself at first use has done so."""
        with torch.no_grad():
            self._outputs(name)
        self._synchronize()

    def run(self, name: str, unset: int = POISON) -> dict[str, Any]:
        """Launch once, everything that the launch allocates being fenced and full of `unset`, and publish the outputs.

        `places` says where an output lies that has no memory of its own: in the inputs, or where an earlier one does.
        """
        watcher = WatchedAllocations(self._emulator, unset)
        if self._emulator is None:
            with torch.no_grad(), watcher:
                returned = self._call(name)
        else:
            returned = self._emulate(self._emulator, name, watcher)
        outputs = self._outputs_of(returned)
        self._synchronize()
        self._hold(outputs)
        places = self._places(name, outputs)
        return {
            "held": [self._runs - run for run, _ in self._held],
            "trampled": watcher.trampled(),
            "places": places,
            "in_place": any(place.endswith(_IN_INPUTS) for place in places),
            "emulated": self._emulator.end() if self._emulator else None,
        } | self._publish(outputs)

    def _emulate(self, emulator: "Emulator", name: str, watcher: WatchedAllocations) -> Any:
        """Launch on the emulator; what fails there is tried for the next architecture, on inputs as they were."""
        slab, values = self._bound[name]
        pristine = slab.data.clone()
        while True:
            emulator.begin(self._names, values)
            try:
                with torch.no_grad(), emulator.placement(), watcher:
                    return self._call(name)
            except KernelLspError:
                raise
            except Exception:
                if not emulator.grow():
                    raise
                slab.data.copy_(pristine)

    def _hold(self, outputs: tuple[Tensor, ...]) -> None:
        """Keep what a run returned beside what others did: with the oldest there, any that overwrites it shows."""
        self._runs += 1
        self._held = [*self._held[-_HELD + 1 :], (self._runs, outputs)]
        while len(self._held) > 2 and sum(t.nbytes for _, held in self._held for t in held) > self._room:
            del self._held[1]

    def forget(self, room: int | None = None) -> None:
        """Let go of what runs returned; from now on keep at most `room` bytes of it, if that is said."""
        self._held.clear()
        self._room = self._room if room is None else room

    def publish_earlier(self, back: int) -> dict[str, Any]:
        """Publish once more what a run returned, `back` runs before the last one; `run` says which are kept.

        So it shows whether later runs changed it.
        """
        return self._publish(next(outputs for run, outputs in self._held if run == self._runs - back))

    def spoil(self) -> None:
        """Fill what earlier runs returned with 0xFF, so that none of it can pass for the answer to a later one."""
        for output in (output for _, outputs in self._held for output in outputs):
            torch.empty(0, dtype=torch.uint8, device=output.device).set_(output.untyped_storage()).fill_(POISON)
        self._synchronize()

    def retire(self) -> None:
        """Free memory that the oracle has opened anew elsewhere."""
        self._retired.clear()
        self._free_unused()

    def unbind(self, name: str) -> None:
        """Free the memory of one set of inputs; the oracle has let go of it before."""
        for lent in (self._recordings, self._pristine, self._bound, self._launches):
            lent.pop(name, None)
        if self._answer is not None:
            self._answer.unbind()
        self._free_unused()

    def rest(self) -> None:
        """Free all inputs and outputs and what was recorded on them; the oracle has let go of them before."""
        for name in list(self._bound):
            self.unbind(name)
        self._held.clear()
        self._retired.clear()
        self._outbox = None
        self._free_unused(whatever=True)

    def _free_unused(self, *, whatever: bool = False) -> None:
        """Give cached memory back as `give_back` does, where it is much."""
        if self._device == "cuda" and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _LARGE_BYTES:
            give_back(whatever=whatever)

    def publish(self, name: str) -> dict[str, Any]:
        """Publish what the last timed launch of a recording computed."""
        return self._publish(self._recordings[name].outputs)

    def ready(self) -> None:
        """Answers once the process is set up."""

    def _publish(self, outputs: Sequence[Tensor]) -> dict[str, Any]:
        """Copy outputs to where the oracle can read them; `outbox` is the handle when that place is new."""
        specs, size = [], 0
        for output in outputs:
            size = -(-size // 512) * 512
            specs.append(row_major(output, size))
            size += specs[-1].span
        fresh = self._outbox is None or self._outbox.data.numel() < size
        if fresh:
            self._retired += [self._outbox] if self._outbox else []
            self._outbox = make_slab(max(size, 1), self._device)
        assert self._outbox is not None
        for output, spec in zip(outputs, specs, strict=True):
            self._outbox.view(spec).copy_(output)
        self._synchronize()
        return {
            "outputs": [spec.to_json() for spec in specs],
            "strides": [list(output.stride()) for output in outputs],
            "outbox": self._outbox.handle if fresh else None,
        }

    def record(self, name: str, mode: str, launches: int, *, restores: bool, capture: bool) -> None:
        """Make a segment of launches ready for timing; `restores` puts the inputs back before each of them.

        Raises:
            NotCapturableError: see `Recording`; this process is of no further use then.
        """
        from kernel_lsp.runner.workers.stopwatch import Recording

        self._recordings.pop(name, None)
        with torch.no_grad():
            if restores:
                self._pristine[name] = self._bound[name][0].data.clone()
            self._outputs(name)  # what compiles or allocates at first use has done so
            torch.cuda.synchronize()
            self._free_unused()  # a graph has memory of its own
            restore = (lambda: self._restore(name)) if restores else None
            launch = lambda: self._outputs(name)  # noqa: E731
            self._recordings[name] = Recording(self._watch, launch, mode, launches, restore=restore, capture=capture)
            torch.cuda.synchronize()

    def refresh(self, name: str) -> None:
        """Take what now lies in the memory of `name` as the inputs that launches start from."""
        if name in self._pristine:
            self._pristine[name].copy_(self._bound[name][0].data)
            torch.cuda.synchronize()

    def _restore(self, name: str) -> None:
        self._bound[name][0].data.copy_(self._pristine[name])

    def segment(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Run `count` segments of a recording one after the other."""
        with torch.no_grad():
            segments = [self._recordings[name].segment() for _ in range(count)]
        return [{"times_us": s.times_us, "checksums": s.checksums, "clock_mhz": s.clock_mhz} for s in segments]

    def trace(self, name: str) -> dict[str, Any]:
        """What one launch puts on the GPU, between a kernel that spins and one that reads clocks.

        `threads` are those of this process that were started since before the version was loaded.

        It runs on the default stream, where code that names no stream runs too. The spinning kernel keeps the GPU busy
        until everything is enqueued: what does not wait for it does not wait for its inputs either.
        """
        from kernel_lsp.runner.workers.tracer import trace

        with torch.no_grad():
            self._outputs(name)
            torch.cuda.synchronize()
            started = _clock()
            self._outputs(name)
            busy_us = min(1.5e6 * (_clock() - started) + 200, 20_000)
            torch.cuda.synchronize()
            if self._new_threads is None and self._surroundings is not None:  # the profiler starts some of its own
                self._new_threads = native_threads() - self._surroundings.native_threads

            def launch() -> None:
                self._watch.spin(busy_us)
                self._outputs(name)
                self._watch.read_clocks(1)

            return trace(launch, _TRACE)[1] | {"threads": self._new_threads}

    def trace_segment(self, name: str) -> dict[str, Any]:
        """What one segment of a recording does on the GPU, and how many times it measures."""
        from kernel_lsp.runner.workers.tracer import trace

        with torch.no_grad():
            segment, traced = trace(self._recordings[name].segment, _TRACE)
        return traced | {"times": len(segment.times_us)}

    def surroundings(self) -> dict[str, list[str]]:
        """What the version has changed round itself since before it was loaded, and threads it left running."""
        assert self._surroundings is not None, "the parent loads a version first"
        return {"changes": self._surroundings.changes(), "threads": self._surroundings.threads()}

    def record_launches(self, names: list[str]) -> dict[str, str | None]:
        """Keep the launches of a run on each of these inputs in a file.

        Nothing may have been launched in this process before. The answer is the `file`, or the `reason` that there is
        none.
        """
        from kernel_lsp.runner.workers.recorder import NotRepeatableError, Recorder, hearing_triton

        recorder = Recorder()
        self._listeners.append(recorder.launch)
        try:
            with torch.no_grad(), hearing_triton(recorder) if self._triton else contextlib.nullcontext():
                for name in names:
                    recorder.pause()
                    self._outputs(name)  # what compiles or tunes itself at first use has done so
                    recorder.begin(self._bound[name][1])
                    with WatchedAllocations(recorder):
                        self._outputs(name)
            torch.cuda.synchronize()
        except NotRepeatableError as error:
            return {"file": None, "reason": str(error)}
        finally:
            self._listeners.clear()
        file = _LAUNCHES.absolute()
        if not recorder.save(file):
            return {"file": None, "reason": "its launches are made by host code, which is not repeated"}
        return {"file": str(file), "reason": None}

    def sustain(
        self, name: str, seconds: float, launch_us: float, *, restores: bool, capture: bool
    ) -> dict[str, float | None]:
        """Launch without pause for so many seconds; see `stopwatch.run_for`."""
        from kernel_lsp.runner.workers.stopwatch import run_for

        restore = (lambda: self._restore(name)) if restores else None
        launch = lambda: self._outputs(name)  # noqa: E731
        with torch.no_grad():
            self._free_unused()  # a graph has memory of its own
            stretch = run_for(self._watch, launch, seconds, launch_us, restore=restore, capture=capture)
            self._free_unused()  # the other side's turn
        return {"launches": stretch.launches, "seconds": stretch.seconds, "clock_mhz": stretch.clock_mhz}

    def _outputs(self, name: str) -> tuple[Tensor, ...]:
        return self._outputs_of(self._call(name))

    def _call(self, name: str) -> Any:
        launch = self._launches.get(name, self._launch)
        assert launch is not None, "the parent loads a version first"
        return launch(*self._bound[name][1])

    def _outputs_of(self, returned: Any) -> tuple[Tensor, ...]:
        outputs: Any = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        for number, output in enumerate(outputs):
            if type(output) is not Tensor:
                raise WorkloadError(
                    f"`launch` returned a {type(output).__name__} as output {number}, not a plain tensor",
                    self._path,
                    cure="Return the output tensor, or a tuple of output tensors.",
                )
            if output.device.type != self._device:
                raise WorkloadError(f"output {number} of `launch` is on {output.device}", self._path)
            if (why := _not_plain(output)) is not None:
                raise WorkloadError(f"output {number} of `launch` {why}", self._path, cure="Return a plain tensor.")
        return outputs

    def _places(self, name: str, outputs: Sequence[Tensor]) -> list[str]:
        slab, begun, places = self._bound[name][0].data, dict[int, str](), list[str]()
        for number, output in enumerate(outputs):
            address = output.data_ptr()  # null where there are no elements
            into = address - slab.data_ptr()
            places.append(f"byte {into} {_IN_INPUTS}" if 0 <= into < slab.numel() else begun.get(address, ""))
            if address:
                begun.setdefault(address, f"the memory of output {number}")
        return places

    def _warm_up(self) -> None:
        """Have CUDA load the library kernels that checks and timing use, before a candidate waits for them."""
        from kernel_lsp.runner.workers.stopwatch import Recording

        x = torch.zeros(4096, device="cuda")
        Recording(self._watch, lambda: (torch.empty_like(x).copy_(x),), "cold", 2).segment()
        with WatchedAllocations() as watcher:
            torch.empty_like(x)
        watcher.trampled()
        torch.cuda.synchronize()

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def _not_plain(output: Tensor) -> str | None:
    """Why the bytes of a tensor are not its values, if they are not."""
    if output.layout is not torch.strided or output.is_quantized:
        return f"is stored as {output.layout}"
    if output.is_conj() or output.is_neg():
        return "is a view that computes when it is read"
    if output.numel() and not output.data_ptr():
        return "has no memory"
    return "carries attributes of its own" if vars(output) else None


def _make_emulator(arch: str) -> "Emulator":
    from kernel_lsp.runner.workers.emulator import Emulator

    return Emulator(arch)


def _tuples(lists: dict[str, list[str]] | None) -> dict[str, tuple[str, ...]]:
    return {name: tuple(items) for name, items in (lists or {}).items()}
